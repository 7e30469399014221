package lockmgr

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lineSize is the length of the holder line with its newline. It is fixed, so that one pwrite replaces a longer line whole.
const lineSize = 64

// holderLine returns "PID COMMAND" and as many spaces as make it lineSize bytes with the newline.
func holderLine(pid int, command string) []byte {
	command = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, command)
	line := bytes.Repeat([]byte(" "), lineSize)
	copy(line, strconv.Itoa(pid)+" "+command)
	line[lineSize-1] = '\n'
	return line
}

func parseHolder(b []byte) (pid int, command string) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	first, rest, _ := strings.Cut(string(line), " ")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 {
		return 0, ""
	}
	return pid, strings.TrimRight(rest, " ")
}

// Holder returns who took the lock at path last, and whether it is held now. A pid of 0 means that nobody ever wrote
// itself down. Between a holder's taking the lock and its writing the line the one before it is named.
// To find out, a free lock is taken, shared, for a microsecond: an Acquire that meets this waits a moment.
func Holder(path string) (pid int, command string, held bool, err error) {
	f, err := OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, "", false, err
	}
	defer f.Close()
	free, err := TryShared(f)
	if err != nil {
		return 0, "", false, err
	}
	if free {
		if err := Unlock(f); err != nil {
			return 0, "", false, err
		}
	}
	pid, command = readHolder(int(f.Fd()))
	return pid, command, !free, nil
}

func readHolder(fd int) (pid int, command string) {
	var b [lineSize]byte
	n, err := unix.Pread(fd, b[:], 0)
	if err != nil {
		return 0, ""
	}
	return parseHolder(b[:n])
}
