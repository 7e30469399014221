package filestore

import (
	"path/filepath"
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/storetest"
)

// fresh opens a new store, in memory because the suite makes many; the whole check runs when the suite has closed it.
func fresh(t *testing.T) backend.Store { return inside(t, memoryDir(t)) }

// inside opens the store in a directory of dir.
func inside(t *testing.T, dir string) backend.Store {
	t.Helper()
	return openTest(t, filepath.Join(dir, "store"), Options{Sync: Never})
}

func TestStore(t *testing.T)       { storetest.Run(t, fresh) }
func TestStoreModel(t *testing.T)  { storetest.RunModel(t, fresh) }
func TestStoreReopen(t *testing.T) { storetest.RunReopen(t, inside) }
func TestStoreShared(t *testing.T) { storetest.RunShared(t, inside) }
