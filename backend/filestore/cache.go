package filestore

import "sync"

// blockCache keeps the table blocks used last, at most about limit bytes of them.
type blockCache struct {
	mu    sync.Mutex // guards all below
	limit int
	size  int
	m     map[blockKey]*cached
	ring  []*cached // clock order
	hand  int
}

type blockKey struct {
	table uint64
	block int
}

type cached struct {
	key  blockKey
	data []byte
	used bool
}

func newBlockCache(limit int) *blockCache {
	return &blockCache{limit: limit, m: map[blockKey]*cached{}}
}

func (c *blockCache) get(table uint64, block int) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[blockKey{table, block}]
	if !ok {
		return nil, false
	}
	e.used = true
	return e.data, true
}

func (c *blockCache) put(table uint64, block int, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := blockKey{table, block}
	if c.m[k] != nil || len(data) > c.limit/4 {
		return
	}
	e := &cached{k, data, true}
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
