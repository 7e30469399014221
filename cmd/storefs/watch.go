package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

func newWatch() *cobra.Command {
	w := watcher{out: os.Stdout}
	var from string
	cmd := &cobra.Command{
		Use:   "watch [--json] [--from GENERATION] [--exec COMMAND] STORE [PREFIX]",
		Short: "Write a line for every change that is committed",
		Long: `Write a line for every change to PREFIX and the keys below it, by whatever process and mount, in the order of commits, until interrupted:
generation, what was done, key, separated by tabs. What was done is put (a file was written), symlink, mkdir, rm (anything was
removed), or attr (mode, owner or attributes were changed). Commits that follow each other closely may be told as what they did together.

--from begins with what was committed after GENERATION, as storefs info and .storefs/generation show it; without it with what comes
from now on. Status 1 when the store no longer knows what has changed since.

--exec runs COMMAND with sh for every change, one after the other, instead of writing lines; STOREFS_KEY, STOREFS_CHANGE, STOREFS_GENERATION
and STOREFS_STORE are in its environment.`,
		Args: argCount(1, 2),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && args[1] != "" {
				p, err := keyPath(strings.TrimSuffix(args[1], "/"))
				if err != nil {
					return err
				}
				w.prefix = p
			}
			w.store = args[0]
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			o := &filestore.Options{ReadOnly: true, Command: "storefs watch"}
			return withOpen(args[0], o, func(st *filestore.Store) error { return w.watch(ctx, st, from) })
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&w.json, "json", false, "one JSON object a line: generation, change, key")
	f.StringVar(&from, "from", "", "begin after `GENERATION`")
	f.StringVar(&w.command, "exec", "", "run `COMMAND` for every change")
	return cmd
}

// watcher tells changes.
type watcher struct {
	store   string
	prefix  string // a path
	json    bool
	command string
	out     io.Writer

	st        backend.Store
	prev, cur backend.Snapshot // before and after the commit that is told
	began     backend.Generation
}

func (w *watcher) watch(ctx context.Context, st backend.Store, from string) (err error) {
	w.st = st
	if w.cur, err = st.Snapshot(ctx); err != nil {
		return err
	}
	if w.prev, err = st.Snapshot(ctx); err != nil {
		w.cur.Close()
		return err
	}
	defer func() { w.prev.Close(); w.cur.Close() }()
	w.began = w.cur.Generation()
	at := w.began
	if from != "" {
		n, err := strconv.ParseUint(from, 10, 64)
		if err != nil {
			return usagef("--from %s: not a generation, which is a number", from)
		}
		if at = backend.Generation(n); at > w.began {
			return fmt.Errorf("--from %d: the newest generation is %d", at, w.began)
		}
	}
	for c, err := range st.Watch(ctx, at) {
		if errors.Is(err, backend.ErrHistoryGone) {
			return hinted(fmt.Errorf("what has changed since generation %d is no longer known", at), "storefs ls lists what there is now")
		}
		if err == nil {
			at = max(at, c.Generation-1)
			err = w.change(ctx, c)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil
}

func (w *watcher) change(ctx context.Context, c backend.Change) error {
	if c.Generation > w.cur.Generation() {
		s, err := w.st.Snapshot(ctx)
		if err != nil {
			return err
		}
		w.prev.Close()
		w.prev, w.cur = w.cur, s
	}
	what := w.what(c)
	if what == "" || c.Ref == backend.RootRef {
		return nil
	}
	path := w.path(c.Ref)
	if w.prefix != "" && path != w.prefix && !strings.HasPrefix(path, w.prefix+"/") {
		return nil
	}
	return w.tell(ctx, c.Generation, what, pathKey(path))
}

// what says what a change is; "" for one that is not told: the times of a directory in which something was made.
func (w *watcher) what(c backend.Change) string {
	if c.New == nil {
		return "rm"
	}
	if c.Generation > w.began { // else what was before is not known
		old, err := w.prev.Lookup(c.Ref)
		if err == nil && old.Ino == c.New.Ino {
			if c.New.Kind == backend.Dir && sameAttr(&old, c.New) {
				return ""
			}
			return "attr"
		}
	}
	return map[backend.Kind]string{backend.File: "put", backend.Dir: "mkdir", backend.Symlink: "symlink"}[c.New.Kind]
}

// path returns where ref is, or was. Of a directory that went long ago only the number is known.
func (w *watcher) path(ref backend.Ref) string {
	for _, s := range []backend.Snapshot{w.cur, w.prev} {
		if p, err := backend.Path(s, ref); err == nil {
			return p
		}
	}
	return fmt.Sprintf("?%d/%s", ref.Dir, ref.Name)
}

func (w *watcher) tell(ctx context.Context, g backend.Generation, what, key string) error {
	switch {
	case w.command != "":
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", w.command)
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		name := key
		if strings.ContainsRune(key, 0) {
			name, _ = keyPath(key)
		}
		cmd.Env = append(os.Environ(), "STOREFS_KEY="+name, "STOREFS_CHANGE="+what, fmt.Sprintf("STOREFS_GENERATION=%d", g), "STOREFS_STORE="+w.store)
		if err := cmd.Run(); err != nil && ctx.Err() == nil { // the next change is another matter
			printError(os.Stderr, "watch", fmt.Errorf("%s: key %q: %s: %w", w.store, key, w.command, err))
		}
		return nil
	case w.json:
		return json.NewEncoder(w.out).Encode(struct {
			Generation backend.Generation `json:"generation"`
			Change     string             `json:"change"`
			jsonKey
		}{g, what, newJSONKey(key)})
	}
	if f, ok := w.out.(*os.File); ok && isTerminal(f) {
		key = (&listing{quote: true}).name(key)
	}
	_, err := fmt.Fprintf(w.out, "%d\t%s\t%s\n", g, what, key)
	return err
}
