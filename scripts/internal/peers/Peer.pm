package Peer;
# What the Perl programs beside it share: the clock, values that can be recognised, what a store takes on disk.
use strict;
use warnings;
use Time::HiRes ();

sub now { Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()) }

# emit prints a figure.
sub emit { my ($metric, $value) = @_; print "$metric\t$value\n" }

# timed calls $code with 0, 1, ... up to $n times, as long as $seconds go, and prints microseconds a call. Returns the number of calls.
sub timed {
    my ($metric, $n, $seconds, $code) = @_;
    my ($began, $i) = (now(), 0);
    while ($i < $n) {
        $code->($i++);
        last if now() - $began > $seconds;
    }
    emit($metric, (now() - $began) / $i * 1e6);
    return $i;
}

# random returns $n bytes that do not compress, always the same.
sub random {
    my ($n) = @_;
    my ($x, $out) = (88172645463325252, '');
    use integer;
    no warnings 'portable';
    while (length $out < $n) {
        $x ^= $x << 13;
        $x ^= ($x >> 7) & 0x01ffffffffffffff;
        $x ^= $x << 17;
        $out .= pack 'q', $x;
    }
    return substr $out, 0, $n;
}

# on_disk returns the bytes that the files in a directory take.
sub on_disk {
    my ($dir) = @_;
    my $sum = 0;
    opendir my $d, $dir or die "$dir: $!\n";
    for my $name (readdir $d) {
        next if $name eq '.' || $name eq '..';
        $sum += ((lstat "$dir/$name")[12] || 0) * 512;
    }
    return $sum;
}

sub slurp {
    my ($path) = @_;
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    my $value = <$in>;
    close $in;
    return $value;
}

# spew replaces what is in a file in place.
sub spew {
    my ($path, $value) = @_;
    open my $out, '>', $path or die "$path: $!\n";
    print $out $value or die "$path: $!\n";
    close $out or die "$path: $!\n";
}

# dbm returns the class, flags and further arguments with which a hash is tied.
sub dbm {
    my ($system) = @_;
    require Fcntl;
    my $create = Fcntl::O_CREAT() | Fcntl::O_RDWR();
    if ($system eq 'gdbm') {
        require GDBM_File;
        return ('GDBM_File', GDBM_File::GDBM_WRCREAT() | GDBM_File::GDBM_NOLOCK());
    }
    my $class = { sdbm => 'SDBM_File', msdbm => 'MLDBM::Sync::SDBM_File', dbfile => 'DB_File' }->{$system} or return;
    require DB_File if $system eq 'dbfile';
    return ($class, $create);
}

# sqlite opens a database with a table kv in it.
sub sqlite {
    my ($path, $sync) = @_;
    require DBI;
    my $db = DBI->connect("dbi:SQLite:dbname=$path", '', '', { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
    $db->sqlite_busy_timeout(30_000);
    $db->do('PRAGMA journal_mode=WAL');
    $db->do("PRAGMA synchronous=$sync");
    $db->do('CREATE TABLE IF NOT EXISTS kv (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID');
    my $put = $db->prepare('INSERT OR REPLACE INTO kv VALUES (?, ?)');
    $put->bind_param(2, undef, DBI::SQL_BLOB());
    my $get = $db->prepare('SELECT v FROM kv WHERE k = ?');
    my $add = $db->prepare('UPDATE kv SET v = v + 1 WHERE k = ?');
    my $del = $db->prepare('DELETE FROM kv WHERE k = ?');
    return {
        put   => sub { $put->execute(@_) },
        get   => sub { $get->execute($_[0]); my ($v) = $get->fetchrow_array; $get->finish; $v },
        add   => sub { $add->execute(@_) },
        drop  => sub { $del->execute(@_) },
        begin => sub { $db->begin_work },
        end   => sub { $db->commit },
        close => sub { undef $_ for $put, $get, $add, $del; $db->disconnect; undef $db },
    };
}

1;
