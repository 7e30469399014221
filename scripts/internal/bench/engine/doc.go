// Package engine holds Go benchmarks of the store's engine beside go.etcd.io/bbolt, SQLite translated to Go and plain files,
// on the same operations. The names are for benchstat:
//
//	go test -run - -bench . -count 10 ./engine >new; go tool benchstat -col /system new
package engine
