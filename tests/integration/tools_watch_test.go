package integration

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
)

// background starts a program with the output of which the test goes on. The test ends it.
func (w *world) background(name string, args ...string) (out *bufio.Reader, stderr *bufio.Reader) {
	w.t.Helper()
	cmd, cancel := w.command(w.top(), name, args...)
	o, err := cmd.StdoutPipe()
	must(w.t, err)
	e, err := cmd.StderrPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.t.Cleanup(func() { cancel(); cmd.Wait() })
	return bufio.NewReader(o), bufio.NewReader(e)
}

// line returns the next line that contains part.
func line(t *testing.T, r *bufio.Reader, part string) string {
	t.Helper()
	for {
		s, err := r.ReadString('\n')
		if err != nil && err != io.EOF || err == io.EOF && s == "" {
			t.Fatalf("no %q: %v", part, err)
		}
		if strings.Contains(s, part) {
			return strings.TrimSpace(s)
		}
	}
}

// inotify tells of the changes that are made through the mount that is watched.
func TestToolsInotifywait(t *testing.T) {
	needTools(t, "inotifywait")
	w, m := one(t)
	must(t, os.Mkdir(m+"/d", 0o755))
	must(t, os.WriteFile(m+"/d/k", []byte("1"), 0o644))
	out, errs := w.background("inotifywait", "-m", "-r", "--format", "%e %f", m+"/d")
	line(t, errs, "Watches established")
	w.sh(`echo 2 > d/k; echo 3 >> d/k; echo new > d/new; mv d/new d/moved; chmod 600 d/moved; rm d/moved; mkdir d/sub; cat d/k > /dev/null; echo x > d/.x && mv d/.x d/k`)
	for _, event := range []string{"MODIFY k", "CLOSE_WRITE,CLOSE k", "CLOSE_WRITE,CLOSE k", "CREATE new", "CLOSE_WRITE,CLOSE new", "MOVED_FROM new", "MOVED_TO moved", "ATTRIB moved", "DELETE moved", "CREATE,ISDIR sub", "CLOSE_NOWRITE,CLOSE k", "MOVED_TO k"} {
		line(t, out, event)
	}
	// The value is published before CLOSE_WRITE is told.
	w.sh(`echo final > d/k`)
	line(t, out, "CLOSE_WRITE,CLOSE k")
	want(t, "value after the event", read(t, m+"/d/k"), "final\n")
}

// tail -F follows the name, and shows each new version whole. tail -f follows the open file, which shows one version for ever, and
// hinders nobody.
func TestToolsTail(t *testing.T) {
	w, m, n := two(t)
	write(t, m+"/log", "one\n")
	byName, _ := w.background("tail", "-s", "0.02", "-F", m+"/log")
	line(t, byName, "one")
	byFile, _ := w.background("tail", "-s", "0.02", "-f", m+"/log")
	line(t, byFile, "one")
	w.sh(`echo two >> log`)
	line(t, byName, "two")
	w.sh(`echo three >> $N/log`)
	line(t, byName, "three")
	w.sh(`echo fresh > log.new && mv log.new log`)
	line(t, byName, "fresh")
	w.sh(`rm log; echo again > $N/log`)
	line(t, byName, "again")
	want(t, "log", read(t, n+"/log"), "again\n")
	if left := byFile.Buffered(); left != 0 {
		t.Errorf("tail -f showed %d bytes more", left)
	}
}
