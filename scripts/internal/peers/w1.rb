#!/usr/bin/env ruby
# w1.rb SYSTEM DIR READ_DIR KEYS PROCS READS:WRITES SECONDS
#
# After XPStore: PROCS processes at once, each making up to 3 000 accesses for up to SECONDS. A read fetches one of KEYS
# counters; a write adds one to one. Every counter is 100 digits long, so that no part of one is one. SYSTEM is
#
#   pstore     Ruby's PStore, transaction            all exclude each other
#   pstore-ro  the same, transaction(true) to read   readers share: what XPStore brought
#   sqlite     WAL, synchronous=off, one connection a process
#   files      a file a counter, flock of it to read (shared) and to write in place (exclusive)
#   storefs    a file a counter on a mount: read without a lock, in READ_DIR; flock around reading and writing anew
#
# Prints "metric <TAB> value". Exit status 3: an increment was lost, or what was read was no counter.
system_, dir, read_dir, keys, procs, ratio, seconds = ARGV
KEYS, PROCS, SECONDS = Integer(keys), Integer(procs), Float(seconds)
READS, WRITES = ratio.split(':').map { |x| Integer(x) }
ACCESSES = 3000
SIZE = 100

def counter(n) = n.to_s.rjust(SIZE, '0')

def parse(text)
  raise "#{text.inspect} is no counter" unless text && text.match?(/\A\d{#{SIZE}}\z/o)
  Integer(text, 10)
end

class PStorePlace
  def initialize(dir, read_only)
    require 'pstore'
    @store, @read_only = PStore.new(File.join(dir, 'pstore')), read_only
  end

  def make = @store.transaction { KEYS.times { |i| @store[i] = counter(0) } }
  def open = self
  def read(i) = @store.transaction(@read_only) { @store[i] }
  def increment(i) = @store.transaction { @store[i] = counter(parse(@store[i]) + 1) }
  def all = @store.transaction(true) { Array.new(KEYS) { |i| @store[i] } }
end

class SQLitePlace
  def initialize(dir)
    require 'sqlite3'
    @path = File.join(dir, 'sqlite')
  end

  def make
    db = SQLite3::Database.new(@path)
    db.execute('PRAGMA journal_mode=WAL')
    db.transaction do
      db.execute('CREATE TABLE kv (k INTEGER PRIMARY KEY, v TEXT)')
      KEYS.times { |i| db.execute('INSERT INTO kv VALUES (?, ?)', [i, counter(0)]) }
    end
    db.close
  end

  def open
    @db = SQLite3::Database.new(@path)
    @db.busy_timeout = 30_000
    @db.execute('PRAGMA synchronous=off')
    @get = @db.prepare('SELECT v FROM kv WHERE k = ?')
    @put = @db.prepare('UPDATE kv SET v = ? WHERE k = ?')
    self
  end

  def read(i) = @get.execute!(i)[0][0]

  def all = @db.execute('SELECT v FROM kv').flatten

  def increment(i)
    @db.transaction(:immediate) { @put.execute!(counter(parse(read(i)) + 1), i) }
  end
end

class FilesPlace
  def initialize(dir) = @paths = Array.new(KEYS) { |i| File.join(dir, "k#{i}") }
  def make = @paths.each { |p| File.write(p, counter(0)) }
  def open = self
  def all = @paths.map { |p| File.read(p) }

  def read(i)
    File.open(@paths[i]) do |f|
      f.flock(File::LOCK_SH)
      f.read
    end
  end

  def increment(i)
    File.open(@paths[i], File::RDWR) do |f|
      f.flock(File::LOCK_EX)
      n = parse(f.read)
      f.rewind
      f.write(counter(n + 1))
    end
  end
end

class StorefsPlace
  def initialize(dir, read_dir)
    @paths = Array.new(KEYS) { |i| File.join(dir, "k#{i}") }
    @reads = Array.new(KEYS) { |i| File.join(read_dir, "k#{i}") }
  end

  def make = @paths.each { |p| File.write(p, counter(0)) }
  def open = self
  def all = @paths.map { |p| File.read(p) }
  def read(i) = File.read(@reads[i])

  def increment(i)
    File.open(@paths[i]) do |f|
      f.flock(File::LOCK_EX)
      File.write(@paths[i], counter(parse(File.read(@paths[i])) + 1))
    end
  end
end

place = lambda do
  case system_
  when 'pstore' then PStorePlace.new(dir, false)
  when 'pstore-ro' then PStorePlace.new(dir, true)
  when 'sqlite' then SQLitePlace.new(dir)
  when 'files' then FilesPlace.new(dir)
  when 'storefs' then StorefsPlace.new(dir, read_dir)
  else abort "w1.rb: no such system: #{system_}"
  end
end

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def work(place, seed)
  rng, reads, writes = Random.new(seed), 0, 0
  began = now
  ACCESSES.times do
    break if now - began > SECONDS
    i = rng.rand(KEYS)
    if rng.rand(READS + WRITES) < READS
      parse(place.read(i))
      reads += 1
    else
      place.increment(i)
      writes += 1
    end
  end
  [began, now, reads, writes]
end

place.call.make
go_r, go_w = IO.pipe
workers = Array.new(PROCS) do |seed|
  ready_r, ready_w = IO.pipe
  out_r, out_w = IO.pipe
  pid = fork do
    go_w.close
    p = place.call.open
    ready_w.close
    go_r.read # its end is the beginning
    out_w.write(Marshal.dump(work(p, seed)))
    out_w.close
    exit!(0)
  end
  ready_w.close
  out_w.close
  [pid, ready_r, out_r]
end
go_r.close
workers.each { |_, ready, _| ready.read }
go_w.close
done = workers.map do |pid, _, out|
  text = out.read
  Process.wait(pid)
  text.empty? ? nil : Marshal.load(text)
end
failed = done.count(nil)
done.compact!
exit 3 if done.empty?
writes = done.sum { |d| d[3] }
lost = writes - place.call.open.all.sum { |text| parse(text) }
puts "per_s\t#{(done.sum { |d| d[2] } + writes) / (done.map { |d| d[1] }.max - done.map { |d| d[0] }.min)}"
puts "lost\t#{lost}"
exit 3 if failed > 0 || lost != 0
