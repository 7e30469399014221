#!/usr/bin/perl
# w5.pl SYSTEM DIR READ_DIR PAIRS BYTES SECONDS
#
# After MLDBM::Sync: PAIRS records of BYTES bytes are stored under new keys, each read back at once, for up to SECONDS. SYSTEM is
#
#   sdbm msdbm gdbm dbfile  SDBM_File, MLDBM::Sync::SDBM_File, GDBM_File, DB_File through MLDBM::Sync: every access
#                           locks, ties, unties
#   sqlite                  WAL, synchronous=normal, connected for each access
#   sqlite-held             the same, connected once
#   files                   one file a record: open > print close; open < read close
#   storefs                 the same on a mount, reading in READ_DIR
#
# Prints "metric <TAB> value". Exit status 3: what was read is not what was written. SDBM_File has no room for long records: status 4.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Peer;

my ($system, $dir, $read_dir, $pairs, $bytes, $seconds) = @ARGV;
my ($write, $read, $end) = make();
my ($value, $bad) = (Peer::random($bytes), 0);
my $done = eval {
    Peer::timed('pair_us', $pairs, $seconds, sub {
        my ($i) = @_;
        substr $value, $i % $bytes, 1, chr(33 + $i % 90);
        $write->("key$i", $value);
        my $got = $read->("key$i");
        $bad++ if !defined $got || $got ne $value;
    });
};
if (!defined $done) {
    print STDERR $@;
    exit($system eq 'sdbm' && $bytes > 900 ? 4 : 3);
}
$end->() if $end;
Peer::emit('disk_ratio', Peer::on_disk($dir) / ($done * $bytes)) unless $system eq 'storefs';
exit($bad ? 3 : 0);

sub make {
    if ($system eq 'files' || $system eq 'storefs') {
        return (sub { Peer::spew("$dir/$_[0]", $_[1]) }, sub { Peer::slurp("$read_dir/$_[0]") });
    }
    if ($system eq 'sqlite-held') {
        my $db = Peer::sqlite("$dir/db", 'normal');
        return ($db->{put}, $db->{get}, $db->{close});
    }
    if ($system eq 'sqlite') {
        my $with = sub {
            my ($what, @args) = @_;
            my $db = Peer::sqlite("$dir/db", 'normal');
            my $v = $db->{$what}->(@args);
            $db->{close}->();
            return $v;
        };
        return (sub { $with->('put', @_) }, sub { $with->('get', @_) });
    }
    require MLDBM;
    require MLDBM::Sync;
    require MLDBM::Sync::SDBM_File;
    my ($class, $flags) = Peer::dbm($system) or die "w5.pl: no such system: $system\n";
    no warnings 'once';
    local ($MLDBM::UseDB, $MLDBM::Serializer) = ($class, 'Storable');
    my %h;
    tie %h, 'MLDBM::Sync', "$dir/db", $flags, 0640 or die "tie: $!\n";
    return (sub { $h{ $_[0] } = $_[1] }, sub { $h{ $_[0] } });
}
