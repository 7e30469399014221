package backend_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/filestore"
)

// A store in a folder of its own: two keys are written in one commit, and read from a snapshot.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := filestore.Open(dir, &filestore.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = backend.Update(ctx, store, func(t *backend.Txn) error {
		if err := t.MkdirAll("pages/en"); err != nil {
			return err
		}
		if err := t.WriteFile("pages/en/index", []byte("Hello")); err != nil {
			return err
		}
		return t.WriteFile("version", []byte("1"))
	})
	if err != nil {
		log.Fatal(err)
	}

	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	page, err := backend.ReadFile(snapshot, "pages/en/index")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("generation %d: %s\n", snapshot.Generation(), page)
	// Output: generation 1: Hello
}

// A snapshot shows one generation, whatever is committed meanwhile.
func ExampleSnapshot() {
	ctx := context.Background()
	store := backend.NewMemory()
	defer store.Close()
	write := func(text string) {
		err := backend.Update(ctx, store, func(t *backend.Txn) error { return t.WriteFile("greeting", []byte(text)) })
		if err != nil {
			log.Fatal(err)
		}
	}
	write("good morning")
	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	write("good night")

	text, err := backend.ReadFile(snapshot, "greeting")
	fmt.Printf("%s, %v\n", text, err)
	for e, err := range snapshot.List(backend.RootIno, "") {
		fmt.Println(e.Name, e.Size, err)
	}
	// Output:
	// good morning, <nil>
	// greeting 12 <nil>
}

// A batch commits several operations at once, if what it expects is so. Here it makes a directory with a file in it, once.
func ExampleBatch() {
	ctx := context.Background()
	store := backend.NewMemory()
	defer store.Close()
	once := func() error {
		stage, err := store.NewStage()
		if err != nil {
			return err
		}
		defer stage.Close()
		if _, err := stage.WriteAt([]byte("first"), 0); err != nil {
			return err
		}
		queue := backend.Ref{Dir: backend.RootIno, Name: "queue"}
		b := &backend.Batch{}
		b.Expect(queue, 0)
		dir := b.Mkdir(queue, backend.Attr{Mode: 0o755})
		b.Put(backend.Ref{Dir: dir, Name: "1"}, stage, &backend.Attr{Mode: 0o644}, backend.AttrChange{})
		_, err = store.Commit(ctx, b)
		return err
	}
	fmt.Println(once())
	fmt.Println(errors.Is(once(), backend.ErrConflict))
	// Output:
	// <nil>
	// true
}

// A counter: the function runs again when someone else has changed what it read.
func ExampleUpdate() {
	ctx := context.Background()
	store := backend.NewMemory()
	defer store.Close()
	increment := func() error {
		return backend.Update(ctx, store, func(t *backend.Txn) error {
			n := 0
			switch text, err := t.ReadFile("counter"); {
			case err == nil:
				if n, err = strconv.Atoi(string(text)); err != nil {
					return err
				}
			case !errors.Is(err, backend.ErrNotFound):
				return err
			}
			return t.WriteFile("counter", []byte(strconv.Itoa(n+1)))
		})
	}
	done := make(chan error)
	for range 10 {
		go func() { done <- increment() }()
	}
	for range 10 {
		if err := <-done; err != nil {
			log.Fatal(err)
		}
	}
	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	text, err := backend.ReadFile(snapshot, "counter")
	fmt.Printf("%s, %v\n", text, err)
	// Output: 10, <nil>
}

// What was committed after a generation, and what is committed from now on.
func ExampleStore_watch() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := backend.NewMemory()
	defer store.Close()
	for _, name := range []string{"a", "b"} {
		err := backend.Update(ctx, store, func(t *backend.Txn) error { return t.WriteFile(name, nil) })
		if err != nil {
			log.Fatal(err)
		}
	}
	for change, err := range store.Watch(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		if change.New == nil || change.New.Kind != backend.File {
			continue
		}
		fmt.Println(change.Generation, change.Ref.Name)
		if change.Ref.Name == "b" {
			break
		}
	}
	// Output:
	// 1 a
	// 2 b
}
