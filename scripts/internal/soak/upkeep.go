package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// upkeep is what an administrator does now and then.
func upkeep(ctx context.Context, s *site, r *report, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	for n := 0; ; n++ {
		pause(ctx, time.Duration(1+rnd.IntN(4))*time.Second)
		if ctx.Err() != nil {
			return
		}
		command := []string{"compact", "sync", "info"}[rnd.IntN(3)]
		if n%8 == 0 {
			command = "check"
		}
		r.did("by command: " + command)
		if _, err := s.command(nil, command, s.store); err != nil && !full(err) {
			r.violation("%v", err)
			continue
		}
		if command == "check" {
			r.verified("times the whole store", 1)
		}
	}
}
