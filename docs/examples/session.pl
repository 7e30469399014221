#!/usr/bin/perl
# session.pl: remembers each visitor: how often they came, and when last. KV is a folder in a storefs mount.
#
# A session is a key, sessions.pl/ID, that Storable writes and reads. Its lock makes "read it, change it, write it" one step,
# and keeps nobody out of other sessions.
use strict;
use warnings;
use Fcntl ':flock';
use Storable qw(nstore fd_retrieve);

my $kv = $ENV{KV} // die "KV is to be the folder that holds the sessions\n";

sub fail { print "Status: 503\r\nContent-Type: text/plain\r\n\r\n$_[0]: $!\n"; exit 1 }

my ($id) = ($ENV{HTTP_COOKIE} // '') =~ /session=([0-9a-f]{32})/;
my $new = !defined $id;
if ($new) {
    open my $random, '<:raw', '/dev/urandom' or fail 'no random numbers';
    read $random, my $bytes, 16;
    $id = unpack 'H*', $bytes;
    -d "$kv/sessions.pl" or mkdir "$kv/sessions.pl" or $!{EEXIST} or fail 'no room for a session';
}
my $path = "$kv/sessions.pl/$id";
unless (-e $path) {    # a new key is not there for others before it is closed
    open my $made, '>>', $path or fail 'no room for a session';
    close $made or fail 'no room for a session';
}
open my $lock, '<', $path or fail 'no session';
flock $lock, LOCK_EX or fail 'no lock';
open my $in, '<', $path or fail 'no session';
my $session = -s $in ? fd_retrieve $in : { visits => 0, last => 'never' };
my $last = $session->{last};
$session->{visits}++;
$session->{last} = localtime;
eval { nstore $session, $path } or fail 'not remembered';    # it looks at the error of close
close $lock;
print "Set-Cookie: session=$id; HttpOnly; SameSite=Lax\r\n" if $new;
print "Content-Type: text/plain\r\n\r\nvisit $session->{visits}, the last one: $last\n";
