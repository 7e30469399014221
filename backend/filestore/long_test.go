package filestore

import "os"

// long says that the tests that have a long form take it.
var long = os.Getenv("STOREFS_LONG") == "1"
