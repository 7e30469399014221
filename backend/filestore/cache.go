package filestore

import "sync"

// blockCache keeps the table blocks used last, at most about limit bytes of them. A block that nobody has taken from it
// when it goes is a buffer for the next one, so that lookups all over a big table allocate nothing.
type blockCache struct {
	mu    sync.Mutex // guards all below
	limit int
	size  int
	m     map[blockKey]*cached
	ring  []*cached // clock order
	hand  int
	free  [][]byte // buffers
}

const (
	bufferSize = tableBlock + 256 // a block is hardly ever longer
	manyFree   = 16
)

type blockKey struct {
	table uint64
	block int
}

type cached struct {
	key   blockKey
	data  []byte
	used  bool
	taken bool // somebody may still read it when it is gone from here
}

func newBlockCache(limit int) *blockCache {
	return &blockCache{limit: limit, m: map[blockKey]*cached{}}
}

// get returns a block, which its user may keep but not change.
func (c *blockCache) get(table uint64, block int) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[blockKey{table, block}]
	if !ok {
		return nil, false
	}
	e.used, e.taken = true, true
	return e.data, true
}

// buffer returns n bytes to read a block into.
func (c *blockCache) buffer(n int) []byte {
	if n > bufferSize {
		return make([]byte, n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := len(c.free); k > 0 {
		b := c.free[k-1]
		c.free = c.free[:k-1]
		return b[:n]
	}
	return make([]byte, n, bufferSize)
}

func (c *blockCache) recycleLocked(b []byte) {
	if cap(b) == bufferSize && len(c.free) < manyFree {
		c.free = append(c.free, b)
	}
}

// put takes over a block; taken says that its user keeps it too.
func (c *blockCache) put(table uint64, block int, data []byte, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := blockKey{table, block}
	if c.m[k] != nil || len(data) > c.limit/4 {
		if !taken {
			c.recycleLocked(data)
		}
		return
	}
	e := &cached{k, data, true, taken}
	c.m[k] = e
	c.ring = append(c.ring, e)
	c.size += len(data)
	for c.size > c.limit {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		if v := c.ring[c.hand]; v.used {
			v.used = false
			c.hand++
		} else {
			c.removeLocked(c.hand)
		}
	}
}

func (c *blockCache) removeLocked(i int) {
	v := c.ring[i]
	delete(c.m, v.key)
	c.size -= len(v.data)
	if !v.taken {
		c.recycleLocked(v.data)
	}
	last := len(c.ring) - 1
	c.ring[i] = c.ring[last]
	c.ring[last] = nil
	c.ring = c.ring[:last]
}

// drop forgets the blocks of a table.
func (c *blockCache) drop(table uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(c.ring); {
		if c.ring[i].key.table == table {
			c.removeLocked(i)
		} else {
			i++
		}
	}
}
