package main

import (
	"fmt"
	"math"
)

// target is what was promised: the ratio is at least, or with atMost at most, what is wanted.
type target struct {
	text   string
	want   float64
	atMost bool
	find   func(r *results) (float64, bool)
}

func (t target) wanted() string {
	if t.atMost {
		return fmt.Sprintf("at most %g", t.want)
	}
	return fmt.Sprintf("at least %g", t.want)
}

func (t target) met(v float64) bool {
	if t.atMost {
		return v <= t.want
	}
	return v >= t.want
}

// faster returns a target: a is so many times as fast as b. The metrics of the two may differ.
func faster(text string, want float64, a, b subject, metrics ...string) target {
	return target{text, want, false, func(r *results) (float64, bool) {
		return r.faster(a, b, metrics[0], metrics[len(metrics)-1])
	}}
}

// slower returns a target: what a metric of a system is among many keys, as a ratio to what it is among few.
func slower(text string, want float64, system, metric string, many, few int) target {
	s := func(n int) subject { return subject{"w3", system, fmt.Sprintf("keys=%d", n)} }
	return target{text, want, true, func(r *results) (float64, bool) { return r.faster(s(few), s(many), metric, metric) }}
}

// worst is the target that all of several reach.
func worst(text string, want float64, atMost bool, all []target) target {
	return target{text, want, atMost, func(r *results) (v float64, ok bool) {
		v = math.Inf(1)
		if atMost {
			v = math.Inf(-1)
		}
		for _, t := range all {
			x, found := t.find(r)
			if !found {
				continue
			}
			ok = true
			if atMost {
				v = max(v, x)
			} else {
				v = min(v, x)
			}
		}
		return v, ok
	}}
}

func targets() (all []target) {
	w1 := func(system string, keys int) subject {
		return subject{"w1", system, fmt.Sprintf("keys=%d,ratio=50:1", keys)}
	}
	const pstore, storable = "PStore, read-only reads", "lock_store, lock_retrieve"
	for _, t := range []struct {
		keys int
		want float64
	}{{5, 1.5}, {100, 10}, {10000, 100}} {
		all = append(all, faster(fmt.Sprintf("W1, 10 processes, 50:1, %d keys: read-only and read-write mount beside PStore's read-only mode", t.keys), t.want,
			w1(throughRO, t.keys), w1(pstore, t.keys), "per_s"))
	}
	all = append(all, faster("W1, 10 processes, 50:1, 5 keys: Go package beside PStore's read-only mode", 5, w1(goPackage, 5), w1(pstore, 5), "per_s"))
	w2 := func(system string) subject { return subject{"w2", system, "bytes=10240"} }
	all = append(all,
		faster("W2, writes: mount beside lock_store", 1.5, w2(throughRO), w2(storable), "write_us"),
		faster("W2, writes: Go package beside lock_store", 5, w2(goPackage), w2(storable), "write_us"),
		faster("W2, reads: read-only mount beside lock_retrieve", 1, w2(throughRO), w2(storable), "read_us"))
	for _, m := range []string{"read", "update", "open"} {
		all = append(all, slower("W3, "+m+": among 1 000 000 keys beside among 1 000, Go package", 1.5, goPackage, m+"_us", 1000000, 1000))
	}
	w4 := func(system string) subject { return subject{"w4", system, "names=128,writes=8192"} }
	all = append(all, faster("W4: overwriting through the mount beside new-and-rename on the disk", 1,
		w4("storefs, overwritten"), w4("plain files, new and renamed"), "write_us"))
	once := func(system string) subject { return subject{"w4", system, "names=128,writes=1"} }
	all = append(all, faster("the same, each value in one write(2)", 1, once(throughRW), once(plainFile), "overwrite_us", "rename_us"))
	all = append(all, w5Targets()...)
	small := func(system string) subject { return subject{"small", system, "bytes=1000"} }
	for _, m := range []string{"read_us", "read_any_us", "overwrite_us", "rename_us"} {
		all = append(all, faster("Small files, "+metricNames[m]+": read-write mount beside go-fuse's loopback", 1.5, small(throughRW), small("go-fuse loopback"), m))
	}
	return all
}

func w5Targets() (all []target) {
	at := func(system string, bytes, pairs int) subject {
		return subject{"w5", system, fmt.Sprintf("bytes=%d,pairs=%d", bytes, pairs)}
	}
	var disk []target
	for _, system := range []string{throughRW, goPackage} {
		for _, peer := range []string{"GDBM_File", "DB_File"} {
			var each []target
			for _, bytes := range []int{50, 500, 5000, 20000} {
				for _, pairs := range []int{100, 10000} {
					each = append(each, faster("", 1, at(system, bytes, pairs), at(peer, bytes, pairs), "pair_us"))
				}
			}
			all = append(all, worst("W5, the size where it is worst: "+system+" beside "+peer+" under MLDBM::Sync", 1, false, each))
		}
	}
	for _, bytes := range []int{500, 5000, 20000} {
		s := at(goPackage, bytes, 10000)
		disk = append(disk, target{"", 1.2, true, func(r *results) (float64, bool) { return r.median(s, "disk_ratio") }})
	}
	return append(all, worst("W5: bytes on disk after compaction, in bytes of data, from 500 B on", 1.2, true, disk))
}
