package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
)

// budget is a line of section 5 of the design: what was measured stands beside what it may be.
type budget struct {
	what    string
	most    float64
	unit    string
	measure func(*world) (float64, error)
}

// printBudgets measures all budgets and prints each with its figure. The error says how many are not kept.
func printBudgets(ctx context.Context, w *world) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	over := 0
	if w.quick {
		fmt.Println("-quick: 100 000 keys stand for 1 000 000, and 64 MiB for 1 GiB")
	}
	fmt.Fprintf(table, "round trips that block the caller\tat most\tmeasured\n")
	for _, b := range append(roundTripBudgets, budget{}) {
		if b.what == "" { // the next part
			fmt.Fprintf(table, "\t\t\nengine and memory\tat most\tmeasured\n")
			break
		}
		over += b.print(ctx, w, table)
	}
	for _, b := range engineBudgets {
		over += b.print(ctx, w, table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if over > 0 {
		return fmt.Errorf("%d budgets are not kept", over)
	}
	return nil
}

// print returns 1 if the budget is not kept.
func (b budget) print(ctx context.Context, w *world, table *tabwriter.Writer) int {
	if err := ctx.Err(); err != nil {
		fmt.Fprintf(table, "%s\t%.3g %s\t%v\n", b.what, b.most, b.unit, err)
		return 1
	}
	v, err := b.measure(w)
	switch {
	case err != nil:
		fmt.Fprintf(table, "%s\t%.3g %s\t%v\n", b.what, b.most, b.unit, err)
		return 1
	case v > b.most:
		fmt.Fprintf(table, "%s\t%.3g %s\t%s\tOVER\n", b.what, b.most, b.unit, short(v))
		return 1
	}
	fmt.Fprintf(table, "%s\t%.3g %s\t%s\n", b.what, b.most, b.unit, short(v))
	return 0
}
