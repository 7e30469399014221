package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Client does operations at random and logs them.
type Client struct {
	Name   string   // part of the names of its pieces
	Binary string   // storefs
	Store  string   // its path
	Mounts []string // where it is mounted
	Seed   uint64
	Log    string // the file that it writes to
	Ops    int    // how many operations it does at most

	r    *rand.Rand
	log  log
	made int
	last Op
}

// Run works until it has done its operations or end is closed. An error is one of the client itself: what goes wrong with the store is in the log.
func (c *Client) Run(end <-chan struct{}) error {
	f, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	c.log, c.r = log{f}, rand.New(rand.NewPCG(c.Seed, 7))
	for range c.Ops {
		select {
		case <-end:
			return f.Close()
		default:
		}
		if err := c.one(c.choose()); err != nil {
			return err
		}
	}
	return f.Close()
}

// verbs, each as often as it is chosen.
var (
	throughMount = []Verb{Read, Read, Read, Read, Read, Write, Write, Write, Append, Append, Append, Modify, Modify, Remove, Rename, List, Snapshot, Together, Change}
	byCommand    = []Verb{Read, Read, Write, Write, Remove, Rename, Together}
)

// choose returns the next operation. After a change it is often a read of the same key, through whatever mount, without delay: it must see the
// change, though the other mounts have hardly heard of it.
func (c *Client) choose() Op {
	o := c.any()
	if c.last.Piece != "" && c.r.IntN(2) == 0 {
		o = Op{Verb: Read, Mount: o.Mount, Key: c.last.Key}
	}
	c.last = o
	return o
}

func (c *Client) any() Op {
	o := Op{Verb: throughMount[c.r.IntN(len(throughMount))], Mount: c.r.IntN(len(c.Mounts)), Key: c.r.IntN(Keys)}
	if c.r.IntN(12) == 0 {
		o.Verb, o.Mount = byCommand[c.r.IntN(len(byCommand))], CommandLine
	}
	switch o.Verb {
	case Rename:
		o.To = (o.Key + 1 + c.r.IntN(Keys-1)) % Keys
	case Together, Change:
		o.Keys = c.r.Perm(Keys)[:1+c.r.IntN(Keys)]
		o.Key = o.Keys[0]
	case Write, Append, Modify:
	default:
		return o
	}
	c.made++
	o.Piece = fmt.Sprintf("%s.%d", c.Name, c.made)
	return o
}

// sizes of what is written: in HEAD, in volumes, in several requests of the kernel, in files of their own.
var sizes = []int{10, 10, 100, 3000, 3000, 9000, 140_000, 700_000}

// one does an operation. The folder is opened first, so that what follows is done on the mount that there was then, or on none.
func (c *Client) one(o Op) error {
	var piece []byte
	if o.Piece != "" {
		piece = Piece(o.Piece, sizes[c.r.IntN(len(sizes))])
	}
	var root *os.File
	if o.Mount != CommandLine {
		var err error
		if root, err = openRoot(c.Mounts[o.Mount]); err != nil {
			time.Sleep(time.Millisecond) // it is being mounted again
			return nil
		}
		defer root.Close()
	}
	if err := c.log.add(line{Start: &o}); err != nil {
		return err
	}
	var res Result
	var at int64
	var err error
	if root == nil {
		res, err = c.command(o, piece)
	} else {
		res, at, err = c.call(pathOf(root), o, piece)
	}
	res = res.ended(err)
	return c.log.add(line{Time: at, End: &res})
}

// ended returns r as it is after an operation that returned err.
func (r Result) ended(err error) Result {
	switch {
	case err != nil:
		r.Outcome, r.Err = Unknown, err.Error()
	case r.Outcome == "":
		r.Outcome = Done
	}
	return r
}

// openRoot opens the root of a mount that shows the folder of the keys.
func openRoot(mount string) (*os.File, error) {
	fd, err := unix.Open(mount, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, Folder, &st, 0); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), mount), nil
}

// call does an operation with system calls on the mount whose root is at path. at is when it was done, 0 for now.
func (c *Client) call(root string, o Op, piece []byte) (res Result, at int64, err error) {
	folder := filepath.Join(root, Folder)
	path := filepath.Join(folder, Key(o.Key))
	switch o.Verb {
	case Read:
		res.Seen[o.Key], err = readNames(path)
	case Write:
		err = c.write(path, os.O_TRUNC|os.O_CREATE, piece)
	case Append:
		err = c.write(path, os.O_APPEND|os.O_CREATE, piece)
	case Modify:
		res.Seen[o.Key], err = c.modify(path, piece)
		if errors.Is(err, errOvertaken) {
			return Result{Outcome: Stale}, 0, nil
		}
	case Remove:
		err = os.Remove(path)
	case Rename:
		err = os.Rename(path, filepath.Join(folder, Key(o.To)))
	case List:
		res.Seen, err = list(folder)
		return res, 0, err
	case Snapshot:
		return c.snapshot(root)
	case Together, Change:
		return c.transaction(root, o, piece)
	}
	if errors.Is(err, fs.ErrNotExist) && o.Verb != Write && o.Verb != Append {
		return Result{Outcome: Absent}, 0, nil
	}
	return res, 0, err
}

// snapshot makes one, and reads it through any mount. It was done when it was made.
func (c *Client) snapshot(root string) (res Result, at int64, err error) {
	const snapshots = ".storefs/snapshots"
	name := c.Name + "." + fmt.Sprint(c.r.Uint64())
	if err := os.Mkdir(filepath.Join(root, snapshots, name), 0o755); err != nil {
		return res, 0, err
	}
	at = Now()
	if reader, rerr := openRoot(c.Mounts[c.r.IntN(len(c.Mounts))]); rerr != nil {
		res.Outcome = Unknown // it is being mounted again
	} else {
		res.Seen, err = readAll(filepath.Join(pathOf(reader), snapshots, name, Folder))
		reader.Close()
	}
	return res, at, errors.Join(err, unix.Rmdir(filepath.Join(root, snapshots, name)))
}

// pathOf is a path that leads to an open file as long as it is open.
func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// readNames reads a value: "" and an error if there is none, or if it is torn.
func readNames(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return Names(b)
}

// write writes a piece, in several writes if it is long.
func (c *Client) write(path string, flags int, piece []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	for len(piece) > 0 && err == nil {
		n := min(len(piece), 1+c.r.IntN(200_000))
		_, err = f.Write(piece[:n])
		piece = piece[n:]
	}
	return errors.Join(err, f.Close())
}

// errOvertaken is ESTALE from anything but open: the value was changed by someone else.
var errOvertaken = errors.New("overtaken")

// modify replaces a value in place, and returns what it was.
func (c *Client) modify(path string, piece []byte) (string, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	var seen string
	b, err := io.ReadAll(f)
	if err == nil {
		seen, err = Names(b)
	}
	if err == nil {
		_, err = f.WriteAt(piece, 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(piece)))
	}
	err = errors.Join(err, f.Close())
	if errors.Is(err, unix.ESTALE) {
		return "", errOvertaken
	}
	return seen, err
}

func list(folder string) (seen Values, err error) {
	dir, err := os.ReadDir(folder)
	for _, e := range dir {
		for i := range seen {
			if e.Name() == Key(i) {
				seen[i] = there
			}
		}
	}
	return seen, err
}

func readAll(folder string) (seen Values, err error) {
	for i := range seen {
		v, rerr := readNames(filepath.Join(folder, Key(i)))
		if !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		seen[i] = v
	}
	return seen, err
}

// transaction replaces keys in a transaction, after reading them all if it is to be a Change.
func (c *Client) transaction(root string, o Op, piece []byte) (res Result, at int64, err error) {
	name := c.Name + "." + fmt.Sprint(c.r.Uint64())
	dir := filepath.Join(root, ".storefs/txn", name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return res, 0, err
	}
	if o.Verb == Change {
		res.Seen, err = readAll(filepath.Join(dir, Folder))
	}
	for _, k := range o.Keys {
		if err == nil {
			err = c.write(filepath.Join(dir, Folder, Key(k)), os.O_TRUNC|os.O_CREATE, piece)
		}
	}
	if err == nil {
		err = unix.Rename(dir, filepath.Join(root, ".storefs/commit", name))
	}
	if err == nil {
		return res, 0, nil
	}
	rerr := unix.Rmdir(dir)
	if errors.Is(err, unix.ESTALE) && rerr == nil {
		return Result{Outcome: Stale}, 0, nil
	}
	return res, 0, err
}

// command does an operation by the command line.
func (c *Client) command(o Op, piece []byte) (res Result, err error) {
	key := Folder + "/" + Key(o.Key)
	var out []byte
	switch o.Verb {
	case Read:
		if out, err = c.storefs(nil, "get", c.Store, key); err == nil {
			res.Seen[o.Key], err = Names(out)
		}
	case Write:
		_, err = c.storefs(piece, "put", c.Store, key)
	case Remove:
		_, err = c.storefs(nil, "rm", c.Store, key)
	case Rename:
		_, err = c.storefs(nil, "mv", c.Store, key, Folder+"/"+Key(o.To))
	case Together:
		var in bytes.Buffer
		for _, k := range o.Keys {
			fmt.Fprintf(&in, "+%d,%d:%s/%s->%s\n", len(Folder)+1+len(Key(k)), len(piece), Folder, Key(k), piece)
		}
		in.WriteByte('\n')
		_, err = c.storefs(in.Bytes(), "apply", c.Store)
	}
	if err != nil && strings.Contains(err.Error(), "no such key") {
		return Result{Outcome: Absent}, nil
	}
	return res, err
}

// storefs runs the command, which is killed when the client is.
func (c *Client) storefs(in []byte, args ...string) ([]byte, error) {
	cmd := exec.Command(c.Binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("storefs %s: %w: %s", args[0], err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}
