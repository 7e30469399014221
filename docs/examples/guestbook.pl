#!/usr/bin/perl
# guestbook.pl: shows a guest book; what is posted to it (a form with enctype="text/plain", or just text) is added first. KV
# is a folder in a storefs mount.
#
# There is one key, the page, and it is rewritten as a whole: whoever reads it sees the page before or the page after. The
# lock makes "read it, add to it, write it" one step.
use strict;
use warnings;
use Fcntl ':flock';

my $kv = $ENV{KV} // die "KV is to be the folder that holds the guest book\n";

sub fail { print "Status: 503\r\nContent-Type: text/plain\r\n\r\n$_[0]: $!\n"; exit 1 }

sub page {
    my @entries = @_;
    return sprintf "<html><title>Guest book</title><!-- %d entries --><ol>\n%s</ol></html>\n", scalar @entries, join '', @entries;
}

sub entries {
    open my $in, '<', "$kv/book.html" or return;
    return grep { /^<li>/ } <$in>;
}

my $page;
if (($ENV{REQUEST_METHOD} // 'GET') eq 'POST') {
    read STDIN, my $entry, 1000;
    $entry =~ s/^entry=//;
    $entry =~ s/\s+/ /g;
    $entry =~ s/([&<>])/'&#' . ord($1) . ';'/ge;
    open my $lock, '>>', "$kv/book.lock" or fail 'no guest book';    # not the page: it need not be there yet
    flock $lock, LOCK_EX or fail 'no lock';
    $page = page(entries(), "<li>$entry\n");
    open my $out, '>', "$kv/book.html" or fail 'no room for the page';
    print $out $page and close $out or fail 'the entry is lost';    # close publishes: its error is the one that counts
    close $lock;
}
print "Content-Type: text/html\r\n\r\n", $page // page(entries());
