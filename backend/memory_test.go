package backend_test

import (
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/storetest"
)

func openMemory(*testing.T) backend.Store { return backend.NewMemory() }

func TestMemory(t *testing.T) { storetest.Run(t, openMemory) }

func TestMemoryModel(t *testing.T) { storetest.RunModel(t, openMemory) }
