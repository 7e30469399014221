package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend/filestore"
)

// ownerEnv tells a daemon on which descriptor it hears that its owner has died: the mount ends then, and its directory goes.
const ownerEnv = "STOREFS_OWNER_FD"

// fixedEnv has a daemon show one generation, for ever.
const fixedEnv = "STOREFS_FIXED"

// privateMount is a mount that one command has for itself, in a temporary directory. nil is none.
type privateMount struct {
	point  string
	owner  *os.File // its closing, at the latest by our death, ends the mount
	daemon *os.Process
}

// mountPrivately mounts the store at dir, which was given as arg. fixed: read-only, and at the newest generation for ever.
func mountPrivately(arg, dir string, fixed bool) (*privateMount, error) {
	// It would be said by the daemon too, but not in these words.
	st, err := openStore(arg, &filestore.Options{ReadOnly: true})
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), arg+": "))
	}
	st.Close()
	point, err := os.MkdirTemp("", "storefs-txn-")
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(point))
	}
	defer r.Close()
	options, env := "nocreate", []string{ownerEnv + "=4"}
	if fixed {
		options, env = "nocreate,ro", append(env, fixedEnv+"=1")
	}
	daemon, err := startDaemon([]string{"mount", "-o", options, "--", dir, point}, env, r)
	if err != nil {
		w.Close()
		os.Remove(point)
		return nil, err
	}
	return &privateMount{point, w, daemon}, nil
}

// end unmounts. It returns when everything is published and nothing is left.
func (p *privateMount) end() error {
	if p == nil {
		return nil
	}
	p.owner.Close()
	_, err := p.daemon.Wait()
	if rerr := os.Remove(p.point); err == nil && rerr != nil && !os.IsNotExist(rerr) {
		err = rerr
	}
	return err
}

// watchOwner has the process told to end, as by a signal, when the owner of a private mount has died; it returns what removes
// the directory of the mount. Neither for other mounts.
func watchOwner(point string, sigs chan<- os.Signal) (remove func()) {
	fd, err := strconv.Atoi(os.Getenv(ownerEnv))
	os.Unsetenv(ownerEnv)
	if err != nil {
		return func() {}
	}
	unix.CloseOnExec(fd)
	owner := os.NewFile(uintptr(fd), "owner")
	go func() {
		owner.Read(make([]byte, 1))
		sigs <- syscall.SIGTERM
	}()
	return func() { os.Remove(point) }
}
