#!/usr/bin/perl
# counter.pl: a page that counts its visitors. KV is a folder in a storefs mount.
#
# The count is one number in one key. The lock belongs to the key, in whatever version and through whatever mount; what is
# opened after the lock was got is the newest version, so lock first, and open again to read and to write. The key must be there
# first: a new one is not there for others before it is closed.
use strict;
use warnings;
use Fcntl ':flock';

my $kv = $ENV{KV} // die "KV is to be the folder that holds the counter\n";

sub fail { print "Status: 503\r\nContent-Type: text/plain\r\n\r\n$_[0]: $!\n"; exit 1 }

unless (-e "$kv/count") {
    open my $new, '>>', "$kv/count" or fail 'no counter';
    close $new or fail 'no counter';
}
open my $lock, '<', "$kv/count" or fail 'no counter';
flock $lock, LOCK_EX or fail 'no lock';
open my $in, '<', "$kv/count" or fail 'no counter';
my $n = (<$in> // 0) + 1;
open my $out, '>', "$kv/count" or fail 'no room for another hit';
print $out "$n\n" and close $out or fail 'not counted';    # close publishes: its error is the one that counts
close $lock;
print "Content-Type: text/plain\r\n\r\nhit number $n\n";
