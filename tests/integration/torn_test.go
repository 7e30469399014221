package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	roles["write"] = func(args []string) error { return writeValues(args[0], args[1:]) }
	roles["read"] = func(args []string) error { return readValues(args[0], args[1:]) }
}

// deadline ends the roles of this file: standard input is a pipe that the test closes.
func deadline() <-chan struct{} {
	end := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	return end
}

// writeValues replaces the values of the keys in dir by values that prove themselves, in the way that how says, until it is told to end.
func writeValues(how string, paths []string) error {
	end, r := deadline(), seeded(uint64(os.Getpid()))
	n := 0
	for ; ; n++ {
		select {
		case <-end:
			if n == 0 {
				return errors.New("wrote nothing")
			}
			return nil
		default:
		}
		path := paths[r.IntN(len(paths))]
		value := proof(sizes[r.IntN(len(sizes))], r)
		var err error
		switch how {
		case "truncate":
			err = inPieces(path, os.O_TRUNC|os.O_CREATE, value, 8192)
		case "fsync":
			err = inPieces(path, os.O_TRUNC|os.O_CREATE|os.O_SYNC, value, len(value))
		case "rename":
			tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
			if err = inPieces(tmp, os.O_TRUNC|os.O_CREATE, value, 50000); err == nil {
				err = os.Rename(tmp, path)
			}
		case "unlink":
			if err = os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
				err = inPieces(path, os.O_TRUNC|os.O_CREATE, value, 100_000)
			}
		case "put":
			dir, key, _ := strings.Cut(path, "//")
			cmd := exec.Command("storefs", "put", dir, key)
			cmd.Stdin = bytes.NewReader(value)
			if out, e := cmd.CombinedOutput(); e != nil {
				err = fmt.Errorf("put: %w: %s", e, out)
			}
		case "in place":
			err = inPieces(path, 0, value, 30000)
			var at *os.PathError
			if errors.As(err, &at) && errors.Is(err, unix.ESTALE) && at.Op != "open" {
				err = nil // someone else was faster
			}
		}
		if err != nil {
			return fmt.Errorf("write %d: %w", n, err)
		}
	}
}

func inPieces(path string, flags int, value []byte, piece int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	if flags == 0 {
		err = f.Truncate(int64(len(value)))
	}
	for len(value) > 0 && err == nil {
		k := min(piece, len(value))
		_, err = f.Write(value[:k])
		value = value[k:]
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// readValues opens the keys and checks that each open file shows one value, whole, however often it is read.
func readValues(how string, paths []string) error {
	end, r := deadline(), seeded(uint64(os.Getpid()))
	missing, forgotten := 0, map[*os.File][]byte{}
	defer func() { fmt.Println(missing, "times no file") }()
	for n := 0; ; n++ {
		select {
		case <-end:
			for f, b := range forgotten {
				if err := same(f, b, "pread"); err != nil {
					return fmt.Errorf("forgotten descriptor: %w", err)
				}
			}
			if n == 0 {
				return errors.New("read nothing")
			}
			return nil
		default:
		}
		f, err := os.Open(paths[r.IntN(len(paths))])
		if errors.Is(err, os.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return fmt.Errorf("read %d: %w", n, err)
		}
		st, err := f.Stat()
		if err != nil {
			return err
		}
		b, err := readAs(f, how, int(st.Size()))
		if err == nil {
			err = proven(b)
		}
		if err == nil && len(b) != int(st.Size()) {
			err = fmt.Errorf("fstat says %d, read %d", st.Size(), len(b))
		}
		if err == nil && n%4 == 0 {
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond) // time for others to change it, not to wait for anything
			err = same(f, b, how)
		}
		if err != nil {
			return fmt.Errorf("read %d: %w", n, err)
		}
		if len(forgotten) < 5 && n%10 == 0 {
			forgotten[f] = b
			continue
		}
		f.Close()
	}
}

func same(f *os.File, b []byte, how string) error {
	again, err := readAs(f, how, len(b))
	if err == nil && !bytes.Equal(again, b) {
		err = fmt.Errorf("another content the second time: %v", proven(again))
	}
	return err
}

func readAs(f *os.File, how string, size int) ([]byte, error) {
	switch how {
	case "mmap":
		p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return nil, err
		}
		defer unix.Munmap(p)
		return bytes.Clone(p), nil
	case "sendfile":
		fd, err := unix.MemfdCreate("to", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		to := os.NewFile(uintptr(fd), "memory")
		defer to.Close()
		for off := int64(0); ; {
			if n, err := unix.Sendfile(fd, int(f.Fd()), &off, 1<<20); err != nil || n == 0 {
				break
			}
		}
		if _, err := to.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return io.ReadAll(to)
	case "pread":
		b := make([]byte, size+100)
		n, err := f.ReadAt(b, 0)
		if err == io.EOF {
			err = nil
		}
		return b[:n], err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// Writers of every kind on two mounts and the command line, readers of every kind beside them: no value is torn, of the wrong size, or
// an error.
func TestNothingIsTornUnderContention(t *testing.T) {
	w, m, n := two(t)
	seconds := 5
	if testing.Short() {
		seconds = 2
	}
	if long {
		seconds = 120
	}
	keys := func(dir string) []string { return []string{dir + "/k0", dir + "/k1", dir + "/k2"} }
	r := seeded(11)
	for _, k := range keys(m) {
		must(t, os.WriteFile(k, proof(5000, r), 0o644))
	}
	forgotten := open(t, m+"/k0")
	first := []byte(read(t, m+"/k0"))
	type part struct {
		role, how string
		paths     []string
	}
	var parts []part
	for _, how := range []string{"truncate", "rename", "in place"} {
		parts = append(parts, part{"write", how, keys(m)}, part{"write", how, keys(n)})
	}
	parts = append(parts, part{"write", "fsync", keys(m)}, part{"write", "unlink", []string{n + "/k3"}},
		part{"write", "put", []string{w.store + "//k0", w.store + "//k1"}})
	for _, how := range []string{"read", "mmap", "sendfile", "pread"} {
		parts = append(parts, part{"read", how, keys(m)}, part{"read", how, append(keys(n), n+"/k3")})
	}
	var ends []io.Closer
	results := make(chan string)
	for _, p := range parts {
		cmd, cancel := w.command(w.dir, os.Args[0], append([]string{p.how}, p.paths...)...)
		cmd.Env = append(cmd.Env, "STOREFS_TEST_ROLE="+p.role)
		in, err := cmd.StdinPipe()
		must(t, err)
		ends = append(ends, in)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start())
		go func() {
			defer cancel()
			if err := cmd.Wait(); err != nil {
				results <- fmt.Sprintf("%s by %s: %v: %s", p.role, p.how, err, &out)
			} else {
				results <- ""
			}
		}()
	}
	over := time.After(time.Duration(seconds) * time.Second)
	left := len(parts)
	for running := true; running; {
		select {
		case bad := <-results: // before it was told to end
			t.Error(bad)
			left--
		case <-over:
			running = false
		}
	}
	for _, in := range ends {
		in.Close()
	}
	for ; left > 0; left-- {
		if bad := <-results; bad != "" {
			t.Error(bad)
		}
	}
	if err := same(forgotten, first, "pread"); err != nil {
		t.Errorf("forgotten descriptor: %v", err)
	}
	for i := range 4 {
		a, b := read(t, fmt.Sprintf("%s/k%d", m, i)), read(t, fmt.Sprintf("%s/k%d", n, i))
		if a != b || proven([]byte(a)) != nil {
			t.Errorf("k%d at the end: %v, the mounts agree: %v", i, proven([]byte(a)), a == b)
		}
	}
}
