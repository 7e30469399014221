#!/usr/bin/perl
# w4.pl SYSTEM DIR OPS SECONDS
#
# After Movable Type's publishing: values of random sizes up to 64 KiB under 128 names, OPS of them for up to SECONDS. SYSTEM is
#
#   overwrite  open >, print, close
#   rename     the same under a new name, then rename
#   content    makes names and values only: what is not writing in the two others
#
# Prints "metric <TAB> value". Exit status 3: a file is not what was written last.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Peer;

my ($system, $dir, $ops, $seconds) = @ARGV;
sub content { my ($n) = @_; sprintf("%08d\n", $n) . '0' x ($n - 9) }
my %write = (
    content   => sub { },
    overwrite => sub { Peer::spew("$dir/$_[0]", $_[1]) },
    rename    => sub {
        my $new = "$dir/$_[0].new";
        Peer::spew($new, $_[1]);
        rename $new, "$dir/$_[0]" or die "rename: $!\n";
    },
);
my $write = $write{$system} or die "w4.pl: no such system: $system\n";
srand 4;
my %last;
Peer::timed('write_us', $ops, $seconds, sub {
    my ($name, $n) = (int(rand 128) . '.txt', 16 + int rand 65520);
    $write->($name, content($n));
    $last{$name} = $n;
});
exit 0 if $system eq 'content';
my $bad = 0;
Peer::slurp("$dir/$_") eq content($last{$_}) or $bad++ for keys %last;
exit($bad ? 3 : 0);
