package integration

import "testing"

func TestToolsLanguages(t *testing.T) {
	runTools(t, []tool{
		{"perl", "perl", `perl -w - "$O" <<'END'
use strict; use Fcntl qw(:DEFAULT :flock :seek); use File::Copy; use File::Find; use File::Path qw(make_path remove_tree); use File::Temp;
use Storable qw(lock_store lock_retrieve); use SDBM_File;
my $o = shift;
sub slurp { open my $f, '<', $_[0] or die "$_[0]: $!"; local $/; my $s = <$f>; defined $s ? $s : '' }
open my $f, '>', 'k' or die; print $f "line $_\n" for 1 .. 1000; close $f or die;
die unless -s 'k' == 8893 && slurp("$o/k") =~ /line 1000\n\z/;
open $f, '+<', 'k' or die; seek $f, -5, SEEK_END; print $f "ABCD\n"; close $f or die; die unless slurp("$o/k") =~ /line ABCD\n\z/;
open $f, '>>', 'k' or die; flock $f, LOCK_EX or die; print $f "end\n"; close $f or die; die unless slurp("$o/k") =~ /ABCD\nend\n\z/;
open $f, '+>', 'rw' or die; print $f "abc"; seek $f, 0, SEEK_SET; die unless <$f> eq 'abc'; truncate $f, 2 or die; close $f or die; die unless slurp("$o/rw") eq 'ab';
sysopen $f, 'excl', O_WRONLY|O_CREAT|O_EXCL or die; close $f or die; die if sysopen $f, 'excl', O_WRONLY|O_CREAT|O_EXCL;
copy 'k', 'k2' or die; move 'k2', 'k3' or die; die unless slurp('k3') eq slurp('k');
lock_store { n => $_, list => [1 .. 100] }, 'storable' for 1 .. 5; die unless lock_retrieve("$o/storable")->{n} == 5;
tie my %h, 'SDBM_File', 'sdbm', O_RDWR|O_CREAT, 0644 or die $!; $h{$_} = $_ x 3 for 1 .. 200; untie %h;
tie %h, 'SDBM_File', "$o/sdbm", O_RDONLY, 0644 or die $!; die unless keys %h == 200 && $h{77} eq '777777'; untie %h;
make_path 'a/b/c'; my $t = File::Temp->new(DIR => 'a/b'); print $t "x"; close $t or die; rename $t->filename, 'a/b/c/moved' or die;
my @found; find sub { push @found, $File::Find::name if -f }, "$o/a"; die "@found" unless "@found" eq "$o/a/b/c/moved";
utime 1, 1000000000, 'k' or die; die unless (stat "$o/k")[9] == 1000000000; chmod 0600, 'k'; die unless ((stat 'k')[2] & 0777) == 0600;
opendir my $d, '.' or die; die unless grep { $_ eq 'sdbm.pag' } readdir $d; remove_tree 'a'; die if -e "$o/a";
END`},
		{"python3", "python3", `python3 - "$O" <<'END'
import csv, dbm.dumb, errno, fcntl, json, os, pathlib, pickle, shelve, shutil, sys, tempfile, zipfile, logging
o = pathlib.Path(sys.argv[1]); k = pathlib.Path("k")
k.write_text("value"); assert (o/"k").read_text() == "value"
with open("k", "r+b") as f: f.seek(1); f.write(b"A"); f.seek(0); assert f.read() == b"vAlue"
with open("k", "a") as f:
    fcntl.lockf(f, fcntl.LOCK_EX); f.write("+"); f.flush(); os.fsync(f.fileno()); assert (o/"k").read_text() == "vAlue+"; f.write("!")
assert (o/"k").read_text() == "vAlue+!", (o/"k").read_text()
with open("x", "x") as f: f.write("x")
try: open("x", "x"); assert False
except FileExistsError: pass
for i in range(20):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f: json.dump({"n": i}, f)
    os.replace(f.name, "json")
assert json.load(open(o/"json")) == {"n": 19}
with shelve.open("shelf") as s:
    for i in range(50): s[str(i)] = {"i": i}
with shelve.open(str(o/"shelf"), "r") as s: assert len(s) == 50 and s["7"]["i"] == 7
with dbm.dumb.open("dumb", "c") as d: d["a"] = "b"; d["a"] = "c"
with dbm.dumb.open(str(o/"dumb"), "r") as d: assert d["a"] == b"c"
with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as z: z.writestr("a/b", b"x" * 100000)
with zipfile.ZipFile("z.zip", "a") as z: z.writestr("c", b"y")
assert zipfile.ZipFile(o/"z.zip").testzip() is None and zipfile.ZipFile(o/"z.zip").namelist() == ["a/b", "c"]
os.makedirs("t/u/v"); (pathlib.Path("t/u/v")/"f").write_bytes(os.urandom(200000)); shutil.copytree("t", "t2"); shutil.move("t2", "t3")
assert (o/"t3/u/v/f").read_bytes() == (o/"t/u/v/f").read_bytes() and sorted(p.name for p in o.rglob("f")) == ["f", "f"]
shutil.make_archive("arch", "gztar", "t"); shutil.unpack_archive("arch.tar.gz", "t4"); assert (o/"t4/u/v/f").stat().st_size == 200000
shutil.rmtree("t"); assert not (o/"t").exists()
h = logging.FileHandler("log"); log = logging.getLogger(); log.addHandler(h); log.warning("one"); log.warning("two"); h.close(); assert (o/"log").read_text() == "one\ntwo\n"
w = csv.writer(open("c.csv", "w", newline="")); w.writerows([[i, i * i] for i in range(1000)]); del w
assert list(csv.reader(open(o/"c.csv")))[999] == ["999", "998001"]
os.setxattr("k", "user.note", b"n"); assert os.getxattr(o/"k", "user.note") == b"n"
os.truncate("k", 3); assert (o/"k").read_text() == "vAl"
try: os.link("k", "hard"); assert False
except OSError as e: assert e.errno == errno.EPERM, e
with open("sparse", "wb") as f: f.truncate(1 << 20); f.seek(1 << 19); f.write(b"x")
assert (o/"sparse").stat().st_size == 1 << 20 and (o/"sparse").read_bytes().count(0) == (1 << 20) - 1
with tempfile.TemporaryFile(dir=".") as f: f.write(b"unnamed"); f.seek(0); assert f.read() == b"unnamed"
assert not [p for p in os.listdir(".") if p.startswith("tmp")]
END`},
		{"ruby", "ruby", `ruby -w - "$O" <<'END'
require 'pstore'; require 'yaml/store'; require 'fileutils'; require 'tempfile'
o = ARGV[0]
File.write('k', "value\n"); raise unless File.read("#{o}/k") == "value\n"
File.open('k', 'r+') { |f| f.flock(File::LOCK_EX); f.seek(0); f.write('V') }; raise unless File.read("#{o}/k") == "Value\n"
File.open('k', 'a') { |f| f.puts 'more' }; raise unless File.readlines("#{o}/k").size == 2
File.open('k', 'w+') { |f| f.print 'abc'; f.rewind; raise unless f.read == 'abc'; f.truncate(2) }; raise unless File.size("#{o}/k") == 2
s = PStore.new('pstore'); 10.times { s.transaction { s[:n] = (s[:n] || 0) + 1 } }
PStore.new("#{o}/pstore").transaction { |p| p[:n] += 1 }; s.transaction(true) { raise "#{s[:n]}" unless s[:n] == 11 }
s = PStore.new('careful'); s.ultra_safe = true; 3.times { |i| s.transaction { s[:i] = i } }; PStore.new("#{o}/careful").transaction(true) { |p| raise unless p[:i] == 2 }
y = YAML::Store.new('y.yml'); y.transaction { y['a'] = { 'b' => [1, 2] } }; raise unless YAML.load_file("#{o}/y.yml")['a']['b'] == [1, 2]
FileUtils.mkdir_p 'd/e'; FileUtils.touch 'd/e/f'; FileUtils.cp_r 'd', 'd2', preserve: true; FileUtils.mv 'd2', 'd3'
raise unless Dir.glob("#{o}/d3/**/*").size == 2 && File.mtime("#{o}/d3/e/f") == File.mtime('d/e/f')
t = Tempfile.new('x', '.'); t.write 'x'; t.close; FileUtils.mv t.path, 'moved'; raise unless File.read("#{o}/moved") == 'x'
FileUtils.rm_rf 'd'; raise if File.exist?("#{o}/d"); IO.copy_stream('k', 'k2'); raise unless File.read("#{o}/k2") == 'ab'
END`},
		{"node", "node", `cat > "$W/t.js" <<'END'
const fs = require('fs'), path = require('path'), assert = require('assert'), { pipeline } = require('stream/promises'), zlib = require('zlib');
const o = process.argv[2];
(async () => {
  fs.writeFileSync('k', 'value'); assert.strictEqual(fs.readFileSync(o + '/k', 'utf8'), 'value');
  fs.appendFileSync('k', '+'); await fs.promises.appendFile('k', '!'); assert.strictEqual(fs.readFileSync(o + '/k', 'utf8'), 'value+!');
  const h = await fs.promises.open('k', 'r+'); await h.write('V', 0); await h.truncate(6); await h.close(); assert.strictEqual(fs.readFileSync(o + '/k', 'utf8'), 'Value+');
  assert.throws(() => fs.writeFileSync('k', '', { flag: 'wx' }), { code: 'EEXIST' });
  const big = require('crypto').randomBytes(500000); fs.writeFileSync('big', big);
  await pipeline(fs.createReadStream('big'), zlib.createGzip(), fs.createWriteStream('big.gz')); assert(zlib.gunzipSync(fs.readFileSync(o + '/big.gz')).equals(big));
  await Promise.all([...Array(50).keys()].map(i => fs.promises.writeFile('p' + i, String(i)))); assert.strictEqual(fs.readdirSync(o).filter(n => /^p\d+$/.test(n)).length, 50);
  fs.mkdirSync('a/b/c', { recursive: true }); fs.writeFileSync('a/b/c/f', 'f'); fs.cpSync('a', 'a2', { recursive: true }); fs.renameSync('a2', 'a3'); assert.strictEqual(fs.readFileSync(o + '/a3/b/c/f', 'utf8'), 'f');
  fs.rmSync('a', { recursive: true }); assert(!fs.existsSync(o + '/a')); fs.copyFileSync('k', 'k2'); fs.symlinkSync('k2', 'l'); assert.strictEqual(fs.readFileSync(o + '/l', 'utf8'), 'Value+');
  for (let i = 0; i < 10; i++) { fs.writeFileSync('j.tmp', JSON.stringify({ i })); fs.renameSync('j.tmp', 'j'); } assert.deepStrictEqual(JSON.parse(fs.readFileSync(o + '/j')), { i: 9 });
  fs.utimesSync('k', 1, 1000000000); assert.strictEqual(fs.statSync(o + '/k').mtimeMs, 1e12);
  const seen = new Promise(done => { const w = fs.watch('.', (e, name) => { if (name === 'watched') { w.close(); done(); } }); }); fs.writeFileSync('watched', '1'); await seen;
})().catch(e => { console.error(e); process.exit(1); });
END
node "$W/t.js" "$O"`},
	})
}
