package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime is how long a mount that answers at all takes to answer at most.
const probeTime = 5 * time.Second

// errNoAnswer is returned for a mount whose daemon lives but does not answer.
var errNoAnswer = errors.New("does not answer")

// claimMountpoint returns the resolved path of a directory that store can be mounted on: there, empty, neither
// inside the store nor around it, and not a storefs mount already. A mount whose daemon is dead is detached first. The claim
// is a lock against another storefs mount at the same moment; close it when the mount answers.
func claimMountpoint(arg, store string) (point string, claim *os.File, err error) {
	if point, err = resolve(arg); err != nil {
		return "", nil, pathError(err)
	}
	switch {
	case point == store:
		return "", nil, errors.New("is the store itself (the mountpoint is another, empty directory)")
	case inside(store, point):
		return "", nil, fmt.Errorf("the store %s is inside the mountpoint, which would hide it", store)
	case inside(point, store):
		return "", nil, fmt.Errorf("is inside the store %s", store)
	}
	if err := refuseMounted(point, store); err != nil {
		return "", nil, err
	}
	if claim, err = openEmpty(point); err != nil {
		return "", nil, err
	}
	if err := unix.Flock(int(claim.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
		claim.Close()
		return "", nil, errors.New("another storefs mount is just being made there")
	}
	if err := refuseMounted(point, store); err != nil { // it may have come while we had no lock
		claim.Close()
		return "", nil, err
	}
	return point, claim, nil
}

// openEmpty opens the directory at point.
func openEmpty(point string) (*os.File, error) {
	f, err := os.OpenFile(point, os.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, hinted(errors.New("no such directory"), "mkdir %s makes it", shellWord(point))
	case errors.Is(err, unix.ENOTDIR):
		return nil, errors.New("is not a directory")
	case err != nil:
		return nil, pathError(err)
	}
	if _, err := f.Readdirnames(1); err != io.EOF {
		f.Close()
		if err == nil {
			err = errors.New("is not empty")
		}
		return nil, pathError(err)
	}
	return f, nil
}

// refuseMounted returns an error if a storefs mount that lives is at point, and detaches those that are dead.
func refuseMounted(point, store string) error {
	for {
		m, ok := mountAt(point)
		if !ok || m.fsType != fsType {
			return nil
		}
		err := probe(point)
		if !isDead(err) {
			return alreadyMounted(m, store, err)
		}
		if err := detach(point); err != nil {
			return fmt.Errorf("a dead storefs mount is in the way: %w", err)
		}
	}
}

func alreadyMounted(m mountEntry, store string, probed error) error {
	what := "is already a mount of " + m.source
	if m.source == store {
		what = "is already a mount of this store"
	}
	if errors.Is(probed, errNoAnswer) {
		what += " that does not answer"
	}
	return hinted(errors.New(what), "storefs umount %s ends it", shellWord(m.point))
}

// probe asks the mount at point how much room it has, which the kernel cannot answer by itself, and waits probeTime at most.
func probe(point string) error {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(point, &st)
	}()
	select {
	case err := <-answer:
		return err
	case <-time.After(probeTime):
		return errNoAnswer
	}
}

// isDead says whether a probe found a mount without a daemon.
func isDead(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// detach removes a mount even when it is busy: who has files open there keeps them.
func detach(point string) error { return unmount(point, true) }

// unmount removes the mount at point; EBUSY if it is in use and lazy is not set. An ordinary user may through fusermount3 only.
func unmount(point string, lazy bool) error {
	if os.Geteuid() == 0 {
		flags := unix.UMOUNT_NOFOLLOW
		if lazy {
			flags |= unix.MNT_DETACH
		}
		return unix.Unmount(point, flags)
	}
	tool, err := fusermount()
	if err != nil {
		return err
	}
	args := []string{"-u", "--", point}
	if lazy {
		args[0] = "-uz"
	}
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case bytes.Contains(bytes.ToLower(out), []byte(unix.EBUSY.Error())):
		return unix.EBUSY
	case len(bytes.TrimSpace(out)) > 0:
		return errors.New(string(bytes.TrimSpace(out)))
	}
	return fmt.Errorf("%s: %w", tool, err)
}

// fusermount returns the program that mounts for ordinary users.
func fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "/bin/fusermount3", "/usr/bin/fusermount3", "fusermount", "/bin/fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", hinted(errors.New("only root can mount and unmount without fusermount3"), "install the package fuse3")
}

// checkPrivileges finds what would make mounting fail, so that the error can say what to do.
func checkPrivileges(point string, o mountOptions) error {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return hinted(errors.New("this system has no /dev/fuse"), "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN")
	}
	if os.Geteuid() == 0 {
		if !capableOfMounting() {
			return hinted(errors.New("even root needs the capability CAP_SYS_ADMIN to mount"), "in a container: --cap-add SYS_ADMIN")
		}
		return nil
	}
	if _, err := fusermount(); err != nil {
		return err
	}
	if err := unix.Access("/dev/fuse", unix.R_OK|unix.W_OK); err != nil {
		return hinted(fmt.Errorf("/dev/fuse: %w", err), "as root: chmod 666 /dev/fuse")
	}
	if err := unix.Access(point, unix.W_OK); err != nil {
		return errors.New("no permission to write there, which mounting as an ordinary user needs")
	}
	if o.allowOther && !userAllowOther() {
		return hinted(errors.New("-o allow_other is for root, unless /etc/fuse.conf allows it"), "as root: echo user_allow_other >> /etc/fuse.conf")
	}
	return nil
}

// capableOfMounting says whether this process has CAP_SYS_ADMIN, which root may lack. If that cannot be told, it has.
func capableOfMounting() bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err != nil || data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// userAllowOther says whether /etc/fuse.conf lets ordinary users open their mounts to others.
func userAllowOther() bool {
	text, _ := os.ReadFile("/etc/fuse.conf")
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}
