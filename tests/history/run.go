package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Run is a history while it is made: clients in processes of their own.
type Run struct {
	Client  Client                        // what all have in common; Name begins their names, Seed is that of the first
	Clients int                           // how many
	Dir     string                        // for their logs
	Command func(client string) *exec.Cmd // how a process is started that plays a client, see Play

	procs   []*proc
	records []Record
}

// proc is a client and its process.
type proc struct {
	client Client
	cmd    *exec.Cmd
	end    io.Closer // closed to end it
	said   bytes.Buffer
}

// Play plays the client that Run describes with a string, until standard input ends.
func Play(client string) error {
	var c Client
	if err := json.Unmarshal([]byte(client), &c); err != nil {
		return err
	}
	end := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	return c.Run(end)
}

// Start starts the clients.
func (r *Run) Start() error {
	for i := range r.Clients {
		p, err := r.start(fmt.Sprintf("%sc%d", r.Client.Name, i))
		if err != nil {
			return errors.Join(err, r.stop(true))
		}
		r.procs = append(r.procs, p)
	}
	return nil
}

func (r *Run) start(name string) (*proc, error) {
	p := &proc{client: r.Client}
	p.client.Name, p.client.Log = name, filepath.Join(r.Dir, name+".log")
	r.Client.Seed++
	b, err := json.Marshal(p.client)
	if err != nil {
		return nil, err
	}
	p.cmd = r.Command(string(b))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if p.end, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// Kill kills a client and the command that it runs, if it does, and starts another one in its place.
func (r *Run) Kill(i int) error {
	p := r.procs[i]
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		return err
	}
	p.cmd.Wait() // until nobody has its standard error: then its command is gone too
	p.end.Close()
	if err := r.collect(p); err != nil {
		return err
	}
	next, err := r.start(p.client.Name + "'")
	if err != nil {
		return err
	}
	r.procs[i] = next
	return nil
}

// Finish waits until the clients have done all their operations, or lets them end now, and returns what was done.
func (r *Run) Finish(now bool) ([]Record, error) {
	err := r.stop(now)
	return r.records, err
}

func (r *Run) stop(now bool) error {
	var err error
	for _, p := range r.procs {
		if now {
			p.end.Close()
		}
	}
	for _, p := range r.procs {
		if werr := p.cmd.Wait(); werr != nil {
			err = errors.Join(err, fmt.Errorf("client %s: %w: %s", p.client.Name, werr, &p.said))
		}
		err = errors.Join(err, r.collect(p))
	}
	r.procs = nil
	return err
}

// collect reads the log of a client that has ended.
func (r *Run) collect(p *proc) error {
	f, err := os.Open(p.client.Log)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was killed before it began
	}
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := ReadLog(f, p.client.Name, Now())
	r.records = append(r.records, all...)
	return err
}

// Look reads all keys through every mount and by the command line, as the last operations of a history.
func (c Client) Look() (all []Record) {
	for i := range Keys {
		for m := CommandLine; m < len(c.Mounts); m++ {
			r := Record{Client: "the last look", Op: Op{Verb: Read, Mount: m, Key: i}, Start: Now()}
			var err error
			if m == CommandLine {
				r.Result, err = c.command(r.Op, nil)
			} else {
				r.Result, _, err = c.call(c.Mounts[m], r.Op, nil)
			}
			r.Result = r.Result.ended(err)
			r.End = Now()
			all = append(all, r)
		}
	}
	return all
}

// Failures returns what the records say went wrong: errors that are neither in allowed nor the death of a client.
func Failures(all []Record, allowed ...error) (bad []string) {
	for _, r := range all {
		ok := r.Result.Err == "" || r.Result.Err == killed
		for _, e := range allowed {
			ok = ok || strings.Contains(r.Result.Err, e.Error())
		}
		if !ok {
			bad = append(bad, r.String())
		}
	}
	return bad
}
