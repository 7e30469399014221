package fsnode

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// mounts tells our mount from other mounts of the same store, whose inodes have the same numbers.
type mounts struct {
	mu      sync.Mutex
	dev     string          // of our mount, as mountinfo writes it; "" if it is not known
	foreign map[uint64]bool // what is known of mount ids
}

// find looks up the device of the mount at point.
func (m *mounts) find(point string) {
	readMounts(func(id uint64, dev, at, fs string) {
		if at == point && strings.HasSuffix(fs, "storefs") {
			m.dev = dev // the last one is on top
		}
	})
}

// ours says whether a file in the mount with an id may be ours. It is not if that is another mount of storefs. A mount that cannot be
// seen, as in another mount namespace, may be.
func (m *mounts) ours(id uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if foreign, known := m.foreign[id]; known {
		return !foreign
	}
	m.foreign = map[uint64]bool{}
	readMounts(func(id uint64, dev, at, fs string) {
		m.foreign[id] = m.dev != "" && dev != m.dev
	})
	if _, known := m.foreign[id]; !known {
		return true
	}
	return !m.foreign[id]
}

// readMounts calls f for each line of mountinfo, see proc_pid_mountinfo(5).
func readMounts(f func(id uint64, dev, at, fs string)) {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		left, right, ok := strings.Cut(line, " - ")
		field := strings.Fields(left)
		if !ok || len(field) < 5 {
			continue
		}
		var id uint64
		if _, err := fmt.Sscan(field[0], &id); err != nil {
			continue
		}
		fs, _, _ := strings.Cut(right, " ")
		f(id, field[2], unescape.Replace(field[4]), fs)
	}
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
