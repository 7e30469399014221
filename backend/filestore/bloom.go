package filestore

// A Bloom filter of 10 bits and 7 probes a key: about 1 % false positives.
const (
	bloomBits   = 10
	bloomProbes = 7
)

// keyHash is FNV-1a over the key with a final mix (the 64-bit finalizer of MurmurHash3).
func keyHash(dir uint64, name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range 8 {
		h = (h ^ dir>>(8*i)&0xff) * 1099511628211
	}
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func makeBloom(hashes []uint64) []byte {
	b := make([]byte, (len(hashes)*bloomBits+63)/64*8)
	for _, h := range hashes {
		bloomEach(h, uint64(len(b)*8), func(bit uint64) bool { b[bit>>3] |= 1 << (bit & 7); return true })
	}
	return b
}

func bloomHas(b []byte, h uint64) bool {
	if len(b) == 0 {
		return false
	}
	n := uint64(len(b) * 8)
	step := h>>32 | 1
	for range bloomProbes {
		bit := h % n
		if b[bit>>3]&(1<<(bit&7)) == 0 {
			return false
		}
		h += step
	}
	return true
}

func bloomEach(h, n uint64, f func(uint64) bool) {
	step := h>>32 | 1
	for range bloomProbes {
		if !f(h % n) {
			return
		}
		h += step
	}
}
