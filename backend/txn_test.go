package backend_test

import (
	"testing"

	"github.com/storefs/storefs/backend"
	"github.com/storefs/storefs/backend/storetest"
)

// begin starts a transaction on s; the cleanup closes both.
func begin(t testing.TB, s backend.Store) *backend.Txn {
	t.Helper()
	txn, err := backend.Begin(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { txn.Close() })
	return txn
}

func openTxn(t *testing.T) backend.Store { return begin(t, backend.NewMemory()) }

// notTold is why a transaction does not keep some rules.
const notTold = "a transaction changes by its own commits alone, and who makes these is told by Commit"

func TestTxnIsAStore(t *testing.T) {
	storetest.RunExcept(t, openTxn, map[string]string{
		"watch yields what was committed before and while it runs":  notTold,
		"watch leads from any snapshot to the newest":               notTold,
		"watch tells own commits, and stops when the consumer does": notTold,
		"watch stops when the store is closed":                      notTold + "; TestTxnClosed checks the end",
	})
}

func TestTxnIsAStoreModel(t *testing.T) { storetest.RunModel(t, openTxn) }

func TestTxnOfTxnIsAStoreModel(t *testing.T) {
	storetest.RunModel(t, func(t *testing.T) backend.Store { return begin(t, openTxn(t)) })
}
