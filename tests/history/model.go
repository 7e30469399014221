package history

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// nowhere is a place of a publication whose file was unlinked while it was open: it changes nothing.
const nowhere = -1

// event is a record with what the others were doing meanwhile on the same mount.
type event struct {
	*Record
	places  []int // where its publication may land
	pending bool  // the file may be one that another client has made and not published yet: it can be unlinked and renamed, which changes nothing
}

// step returns the states that may follow s if e is done then; none if e cannot have been done then.
func (s Values) step(e event) []Values {
	switch {
	case e.Result.Outcome == Unknown:
		return append(e.Op.effects(s, e.places), s)
	case e.Result.Outcome == Stale:
		return []Values{s}
	case !s.agrees(e):
		return nil
	case e.Result.Outcome == Absent:
		return []Values{s}
	}
	places := e.places
	if e.Op.Verb == Modify { // what was opened is what was replaced
		places = slices.DeleteFunc(slices.Clone(places), func(k int) bool { return k != nowhere && s[k] != e.Result.Seen[e.Op.Key] })
	}
	return e.Op.effects(s, places)
}

// agrees says whether what e saw is what s is.
func (s Values) agrees(e event) bool {
	seen, k := e.Result.Seen, e.Op.Key
	if e.Result.Outcome == Absent {
		return s[k] == ""
	}
	switch e.Op.Verb {
	case Read:
		return s[k] != "" && s[k] == seen[k]
	case Remove, Rename:
		return s[k] != "" || e.pending
	case List:
		for i := range s {
			if (s[i] != "") != (seen[i] == there) {
				return false
			}
		}
	case Snapshot, Change:
		return s == seen
	}
	return true
}

// effects returns what o makes of s, whatever it saw.
func (o Op) effects(s Values, places []int) []Values {
	var all []Values
	switch o.Verb {
	case Write, Append, Modify:
		for _, k := range places {
			t := s
			switch {
			case k == nowhere:
			case o.Verb == Append && s[k] != "":
				t[k] += "+" + o.Piece
			default:
				t[k] = o.Piece
			}
			all = append(all, t)
		}
		return all
	case Remove:
		s[o.Key] = ""
	case Rename:
		if s[o.Key] != "" {
			s[o.To] = s[o.Key]
			s[o.Key] = ""
		}
	case Together, Change:
		for _, k := range o.Keys {
			s[k] = o.Piece
		}
	}
	return []Values{s}
}

// publishes says whether o is the publication of an open file.
func (o Op) publishes() bool {
	return o.Mount != CommandLine && (o.Verb == Write || o.Verb == Append || o.Verb == Modify)
}

func (r *Record) overlaps(o *Record) bool { return r.Start <= o.End && o.Start <= r.End }

// events finds out what the records have to do with each other. An open file is the same file wherever it is moved: so it may be
// published where renames on its mount may have moved it while it was open, or nowhere if it may have been unlinked.
func events(all []Record) []event {
	out := make([]event, len(all))
	for i := range all {
		r := &all[i]
		e := event{Record: r, places: []int{r.Op.Key}}
		for n := 0; r.Op.publishes() && n < len(e.places); n++ {
			for j := range all {
				o := &all[j]
				if o.Op.Mount != r.Op.Mount || o.Op.Key != e.places[n] || !r.overlaps(o) {
					continue
				}
				switch {
				case o.Op.Verb == Remove && !slices.Contains(e.places, nowhere):
					e.places = append(e.places, nowhere)
				case o.Op.Verb == Rename && !slices.Contains(e.places, o.Op.To):
					e.places = append(e.places, o.Op.To)
				}
			}
		}
		out[i] = e
	}
	for i := range out {
		e := &out[i]
		if e.Op.Verb != Remove && e.Op.Verb != Rename {
			continue
		}
		for j := range out {
			o := &out[j]
			if o.Op.publishes() && o.Op.Mount == e.Op.Mount && slices.Contains(o.places, e.Op.Key) && e.overlaps(o.Record) {
				e.pending = true
			}
		}
	}
	return out
}

// Verdict is what Check found.
type Verdict struct {
	Legal   bool
	Unknown bool   // the time was not enough to say
	Why     string // if neither: the last operations that could be put in order, and those that could not
}

// Check says whether the records can be put in an order that agrees with their times and with what they saw, beginning with no key at all.
func Check(all []Record, limit time.Duration) Verdict {
	sort.Slice(all, func(i, j int) bool { return all[i].Start < all[j].Start })
	evs := events(all)
	ops := make([]porcupine.Operation, len(all))
	for i := range all {
		ops[i] = porcupine.Operation{Input: i, Call: all[i].Start, Output: i, Return: all[i].End}
	}
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{Values{}} },
		Step: func(state, in, _ any) []any {
			var next []any
			for _, s := range state.(Values).step(evs[in.(int)]) {
				next = append(next, s)
			}
			return next
		},
		Hash: func(state any) uint64 { return hash(state.(Values)) },
	}
	result, info := porcupine.CheckOperationsVerbose(nm.ToModel(), ops, limit)
	v := Verdict{Legal: result == porcupine.Ok, Unknown: result == porcupine.Unknown}
	if !v.Legal {
		v.Why = why(all, info)
	}
	return v
}

// why tells of the longest order that was found, its end, and what comes next in time and does not fit.
func why(all []Record, info porcupine.LinearizationInfo) string {
	var best []int
	for _, p := range info.PartialLinearizationsOperations() {
		for _, order := range p {
			if len(order) > len(best) {
				best = best[:0]
				for _, o := range order {
					best = append(best, o.Input.(int))
				}
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "of %d operations these %d are in order; the last:\n", len(all), len(best))
	for _, i := range best[max(0, len(best)-15):] {
		fmt.Fprintf(&b, "    %d-%d %v\n", all[i].Start, all[i].End, all[i])
	}
	b.WriteString("  and none of these fits:\n")
	in := map[int]bool{}
	for _, i := range best {
		in[i] = true
	}
	n := 0
	for i := range all {
		if !in[i] && n < 12 {
			n++
			fmt.Fprintf(&b, "    %d-%d %v\n", all[i].Start, all[i].End, all[i])
		}
	}
	return b.String()
}

func hash(v Values) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, s := range v {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ '/') * 1099511628211
	}
	return h
}
