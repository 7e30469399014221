#!/usr/bin/perl
# w2.pl SYSTEM DIR READ_DIR WRITES READS SECONDS
#
# After Storable: one HTML page of 10 KB is written WRITES times, then read READS times, each for up to SECONDS. SYSTEM is
#
#   files     open, flock, print over the old one, truncate, close; open, read, close
#   storable  lock_store, lock_retrieve
#   storefs   on a mount: open >, print, close; in READ_DIR open, read, close
#
# Prints "metric <TAB> value". Exit status 3: what was read is not what was written.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Peer;
use Fcntl qw(:flock);
use Storable qw(lock_store lock_retrieve);

my ($system, $dir, $read_dir, $writes, $reads, $seconds) = @ARGV;
my $page = "<!DOCTYPE html>\n";
$page .= sprintf("<p id=\"l%03d\">", $_) . 'page ' x 8 . "\n" for 1 .. 200;
$page = substr $page, 0, 10240;
my ($to, $from) = ("$dir/page", "$read_dir/page");

my %write = (
    files => sub {
        open my $out, '+<', $to or die "$to: $!\n";
        flock $out, LOCK_EX or die "flock: $!\n";
        print $out $page or die "$to: $!\n";
        truncate $out, tell $out or die "$to: $!\n";
        close $out or die "$to: $!\n";
    },
    storable => sub { lock_store(\$page, $to) or die "lock_store: $!\n" },
    storefs  => sub { Peer::spew($to, $page) },
);
my %read = (
    files    => sub { Peer::slurp($from) },
    storable => sub { ${ lock_retrieve($from) } },
    storefs  => sub { Peer::slurp($from) },
);
my ($w, $r) = ($write{$system}, $read{$system});
$w or die "w2.pl: no such system: $system\n";
Peer::spew($to, $page);
$w->();
$r->();
my $bad = 0;
Peer::timed('write_us', $writes, $seconds, $w);
Peer::timed('read_us', $reads, $seconds, sub { $r->() eq $page or $bad++ });
exit($bad ? 3 : 0);
