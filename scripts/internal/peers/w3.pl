#!/usr/bin/perl
# w3.pl SYSTEM DIR KEYS SECONDS
#
# After DirectoryStorage: what opening, reading, updating and adding cost among KEYS keys of 500 bytes. The keys are made
# if DIR has none, and stay there; what was added is removed. SYSTEM is
#
#   gdbm dbfile  GDBM_File, DB_File (hash), open for the whole run
#   sqlite       WAL, synchronous=off, one connection, each change a transaction
#   files        one file a key in one directory: open > to write, open < to read
#   storefs      the same, in a directory of a mount where "storefs bench --keep" has made the keys
#
# Prints "metric <TAB> value". Exit status 3: what was read is not what was written.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Peer;

my ($system, $dir, $keys, $seconds) = @ARGV;
my $filler = '0' x 600;
sub value { substr(sprintf("%08d\n", $_[0]) . $filler, 0, 500) }
sub name { sprintf 'k%08d', $_[0] }

my $place = make();
if (!-e "$dir/loaded" && $system ne 'storefs') {
    $place->{open}->();
    $place->{begin}->() if $place->{begin};
    my $began = Peer::now();
    $place->{put}->(name($_), value($_)) for 0 .. $keys - 1;
    $place->{end}->() if $place->{end};
    $place->{close}->();
    Peer::emit('load_us', (Peer::now() - $began) / $keys * 1e6);
    Peer::emit('disk_ratio', Peer::on_disk($dir) / ($keys * 500));
    Peer::spew("$dir/loaded", '');
}
my $bad = 0;
Peer::timed('open_us', 100, $seconds, sub {
    $place->{open}->();
    $place->{get}->(name(0)) eq value(0) or $bad++;
    $place->{close}->();
}) unless $system =~ /\A(?:files|storefs)\z/;
$place->{open}->();
srand $keys;
Peer::timed('read_us', 20000, $seconds, sub {
    my $i = int rand $keys;
    $place->{get}->(name($i)) eq value($i) or $bad++;
});
Peer::timed('update_us', 20000, $seconds, sub {
    my $i = int rand $keys;
    $place->{put}->(name($i), value($i));
});
my $added = Peer::timed('insert_us', 2000, $seconds, sub { $place->{put}->(name($keys + $_[0]), value($_[0])) });
$place->{drop}->(name($keys + $_)) for 0 .. $added - 1;
$place->{close}->();
exit($bad ? 3 : 0);

sub make {
    if ($system eq 'files' || $system eq 'storefs') {
        return {
            open  => sub { }, close => sub { },
            put   => sub { Peer::spew("$dir/$_[0]", $_[1]) },
            get   => sub { Peer::slurp("$dir/$_[0]") },
            drop  => sub { unlink "$dir/$_[0]" or die "$dir/$_[0]: $!\n" },
        };
    }
    my $db;
    if ($system eq 'sqlite') {
        return {
            open => sub { $db = Peer::sqlite("$dir/db", 'off') },
            map { my $name = $_; $name => sub { $db->{$name}->(@_) } } qw(put get drop begin end close),
        };
    }
    my ($class, $flags) = Peer::dbm($system) or die "w3.pl: no such system: $system\n";
    my %h;
    return {
        open  => sub { tie %h, $class, "$dir/db", $flags, 0640 or die "tie: $!\n" },
        close => sub { untie %h },
        put   => sub { $h{ $_[0] } = $_[1] },
        get   => sub { $h{ $_[0] } },
        drop  => sub { delete $h{ $_[0] } },
    };
}
