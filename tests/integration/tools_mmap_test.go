package integration

import "testing"

// Maps for reading, and private ones, show the version that was opened for as long as they are there. A shared map of a
// file that is open for writing is refused at once.
func TestMmap(t *testing.T) {
	w, _, _ := two(t)
	w.python(`
import mmap, subprocess
S, R, W_ = mmap.MAP_SHARED, mmap.PROT_READ, mmap.PROT_WRITE
for size in 100, 4096, 300001:
    for how in ("cp $W/new $M/k", "cp $W/new $N/k", "$BIN put $S k $W/new", "rm $M/k", "cat $W/new >> $N/k", "truncate -s 10 $M/k"):
        old, new = b"o" * size, b"n" * (size // 2 + 7)
        open(M + "/k", "wb").write(old); open(os.environ["W"] + "/new", "wb").write(new)
        f = open(M + "/k", "rb"); g = open(N + "/k", "rb")
        early = [mmap.mmap(f.fileno(), 0, S, R), mmap.mmap(g.fileno(), 0, mmap.MAP_PRIVATE, R)]
        early[0][:50]                                     # some of it is in memory
        p = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, R | W_); p[0:1] = b"P"
        subprocess.run(how, shell=True, check=True)
        late = [mmap.mmap(f.fileno(), 0, S, R), mmap.mmap(g.fileno(), 0, S, R)]
        f.close(); g.close()
        for m in early + late: assert m[:] == old, (size, how, m[:10], len(m))
        assert p[:] == b"P" + old[1:]; p[1:2] = b"Q"; assert p[:3] == b"PQo"
        if "rm" not in how: assert open(N + "/k", "rb").read() != old
open(M + "/k", "wb").write(b"x" * 8192)
for flags, name in (os.O_RDWR, "k"), (os.O_RDWR | os.O_CREAT, "new"), (os.O_RDWR | os.O_TRUNC, "k2"), (os.O_RDWR | os.O_APPEND, "k"), (os.O_RDWR | os.O_EXCL | os.O_CREAT, "new2"):
    open(M + "/k2", "wb").write(b"x" * 8192)
    fd = os.open(M + "/" + name, flags, 0o644)
    if os.fstat(fd).st_size == 0: os.ftruncate(fd, 8192)
    for prot in R | W_, W_:
        try: mmap.mmap(fd, 8192, S, prot); assert False, "a shared map for writing"
        except OSError as e: assert e.errno == errno.ENODEV, e
    os.write(fd, b"still"); os.close(fd)
    assert b"still" in open(N + "/" + name, "rb").read()
fd = os.open(M + "/k", os.O_RDONLY)
try: mmap.mmap(fd, 8192, S, R | W_); assert False
except PermissionError: pass
`)
}
