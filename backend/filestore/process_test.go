package filestore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/storefs/storefs/backend"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("FILESTORE_TEST_WRITER"); dir != "" {
		writerProcess(dir)
		return
	}
	if dir := os.Getenv("FILESTORE_TEST_SNAPSHOTS"); dir != "" {
		snapshotProcess(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// writerProcess counts up its own counter and a common one in one commit, and says each count once it is committed.
func writerProcess(dir string) {
	s, err := Open(dir, nil)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	me := ref("writer" + os.Getenv("FILESTORE_TEST_NAME"))
	for i := uint64(1); ; i++ {
		st, err := s.NewStage()
		if err == nil {
			_, err = st.WriteAt(bytes.Repeat(binary.LittleEndian.AppendUint64(nil, i), int(1+i%5*300)), 0)
		}
		var b backend.Batch
		b.Put(me, st, newFile, backend.AttrChange{})
		b.Append(ref("common"), st, newFile, backend.AttrChange{})
		if err == nil {
			_, err = s.Commit(bg, &b)
		}
		if err != nil {
			fmt.Println("error", err)
			return
		}
		st.Close()
		fmt.Println(i)
	}
}

// TestKilledWriters kills processes while they commit: what they said was committed is there, whole.
func TestKilledWriters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir, Options{})
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		var cmds []*exec.Cmd
		var outs []*bufio.Scanner
		for i := range 3 {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "FILESTORE_TEST_WRITER="+dir, fmt.Sprint("FILESTORE_TEST_NAME=", round, i))
			c.Stderr = os.Stderr
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			cmds, outs = append(cmds, c), append(outs, bufio.NewScanner(io.Reader(out)))
		}
		for i, c := range cmds {
			last := ""
			for n := 0; outs[i].Scan(); n++ {
				if last = outs[i].Text(); strings.HasPrefix(last, "error") {
					t.Error(last)
				}
				if n == 20+7*i {
					c.Process.Kill()
				}
			}
			c.Wait()
			n := snap(t, s)
			b, err := read(n, ref(fmt.Sprint("writer", round, i)))
			n.Close()
			if err != nil {
				t.Fatal(err)
			}
			got := binary.LittleEndian.Uint64(b)
			if k := fmt.Sprint(got); k != last && fmt.Sprint(got-1) != last {
				t.Errorf("writer said %s, there is %d", last, got)
			}
			if !bytes.Equal(b, bytes.Repeat(binary.LittleEndian.AppendUint64(nil, got), int(1+got%5*300))) {
				t.Error("torn value")
			}
		}
		checkStore(t, dir)
	}
}
