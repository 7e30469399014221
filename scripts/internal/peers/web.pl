#!/usr/bin/perl
# web.pl: a CGI program that shows one of 1 000 pages of 2 000 bytes and counts the visit. In the environment: KV, the directory, and
# SYSTEM, which is
#
#   files    pages in files; the counter under flock, written in place
#   storefs  pages and counter in files of a mount; the counter under flock
#   gdbm     one database, tied once a request under flock
#   sqlite   one database, WAL, synchronous=off, connected once a request
#
# Called with "make" it makes the pages; with "count" it prints the counter.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Peer;
use Fcntl qw(:flock);

my ($system, $dir) = @ENV{qw(SYSTEM KV)};
my $pages = 1000;
sub page { sprintf("<h1>page %04d</h1>\n", $_[0]) . 'text ' x 396 . "\n" }

my $place = make();
my $do = $ARGV[0] // '';
if ($do eq 'make') {
    $place->(sub { my ($db) = @_; $db->{put}->("page$_", page($_)) for 0 .. $pages - 1; $db->{put}->('visits', 0) });
} elsif ($do eq 'count') {
    $place->(sub { print $_[0]{get}->('visits'), "\n" });
} else {
    my ($i, $text) = (int rand $pages);
    $place->(sub {
        my ($db) = @_;
        $text = $db->{get}->("page$i");
        $db->{count}->();
    });
    $text eq page($i) or die "page $i is not what was written\n";
    print "Content-Type: text/html\n\n", $text;
}

sub make {
    my $read = sub { Peer::slurp("$dir/$_[0]") };
    my $write = sub { Peer::spew("$dir/$_[0]", $_[1]) };
    if ($system eq 'files') {
        my $count = sub {
            open my $f, '+<', "$dir/visits" or die "visits: $!\n";
            flock $f, LOCK_EX or die "flock: $!\n";
            my $n = <$f>;
            seek $f, 0, 0;
            print $f $n + 1;
            close $f or die "visits: $!\n";
        };
        return sub { $_[0]->({ get => $read, put => $write, count => $count }) };
    }
    if ($system eq 'storefs') {
        my $count = sub {
            open my $lock, '<', "$dir/visits" or die "visits: $!\n";
            flock $lock, LOCK_EX or die "flock: $!\n";
            $write->('visits', $read->('visits') + 1);
        };
        return sub { $_[0]->({ get => $read, put => $write, count => $count }) };
    }
    if ($system eq 'sqlite') {
        return sub {
            my $db = Peer::sqlite("$dir/db", 'off');
            $db->{begin}->() if $do eq 'make';
            $_[0]->({ %$db, count => sub { $db->{add}->('visits') } });
            $db->{end}->() if $do eq 'make';
            $db->{close}->();
        };
    }
    my ($class, $flags) = Peer::dbm($system) or die "web.pl: no such system: $system\n";
    return sub {
        open my $lock, '>>', "$dir/lock" or die "lock: $!\n";
        flock $lock, LOCK_EX or die "flock: $!\n";
        tie my %h, $class, "$dir/db", $flags, 0640 or die "tie: $!\n";
        $_[0]->({ get => sub { $h{ $_[0] } }, put => sub { $h{ $_[0] } = $_[1] }, count => sub { $h{visits}++ } });
        untie %h;
    };
}
