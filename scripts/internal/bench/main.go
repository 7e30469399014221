// Command bench measures storefs beside the programs it descends from, beside other FUSE file systems and beside plain files,
// and writes docs/performance.md. It is run by scripts/bench, which installs and builds what it needs.
//
// Every system runs once in each round of a workload, one after the other, so that what else the machine does meets all of them;
// figures are medians of the rounds, and ratios medians of the rounds' ratios. All figures are kept in bin/performance.tsv: a
// workload that is measured again replaces its own there, and the document is made of what there is.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// config is what the command line says.
type config struct {
	rounds  int
	quick   bool
	root    string // of the repository
	tsv     string
	out     string // where the document goes
	storefs string // the binary
	loop    string // go-fuse's loopback example
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	var c config
	budgets := flag.Bool("budgets", false, "print the budgets of the design, with the figure beside each")
	document := flag.Bool("document", false, "measure nothing, make the document of what was measured before")
	flag.BoolVar(&c.quick, "quick", false, "smaller sizes and one round: five minutes, a document of its own")
	flag.IntVar(&c.rounds, "rounds", 0, "rounds of each workload; 0 is 5, or 1 with -quick")
	flag.StringVar(&c.root, "root", ".", "the repository")
	flag.Parse()
	if err := c.settle(); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, *budgets, *document, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func (c *config) settle() (err error) {
	if c.root, err = filepath.Abs(c.root); err != nil {
		return err
	}
	bin := filepath.Join(c.root, "bin")
	c.storefs, c.loop = filepath.Join(bin, "storefs"), filepath.Join(bin, "loopback")
	c.tsv, c.out = filepath.Join(bin, "performance.tsv"), filepath.Join(c.root, "docs")
	if c.quick {
		c.tsv, c.out = filepath.Join(bin, "quick.tsv"), filepath.Join(bin, "quick")
	}
	if c.rounds == 0 {
		c.rounds = 5
		if c.quick {
			c.rounds = 1
		}
	}
	return nil
}

func (c *config) run(ctx context.Context, budgets, document bool, names []string) error {
	for _, name := range names {
		if !slices.Contains(planNames(), name) {
			return fmt.Errorf("no such workload: %s (there are %s)", name, strings.Join(planNames(), ", "))
		}
	}
	results, err := readResults(c.tsv)
	if err != nil {
		return err
	}
	if !document {
		w, err := newWorld(c)
		if err != nil {
			return err
		}
		defer w.close()
		if budgets {
			return printBudgets(ctx, w)
		}
		if err := w.measure(ctx, results, names); err != nil {
			return err
		}
	}
	return writeDocument(c, results)
}
