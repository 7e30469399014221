package lockmgr

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLocked is what Acquire returns when its time is up. The detail is a *TimeoutError.
	ErrLocked = errors.New("locked by another")
	// ErrClosed is returned after Close, and by calls that Close interrupts.
	ErrClosed = errors.New("lock closed")
)

// TimeoutError says for how long a lock was waited for, and who held it when the time was up.
type TimeoutError struct {
	Path    string
	Waited  time.Duration
	PID     int    // 0 if the holder is not known
	Command string // as the holder gave it
}

func (e *TimeoutError) Error() string {
	who := "an unknown process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d (%s)", e.PID, e.Command)
	}
	return fmt.Sprintf("lock %s: held by %s, gave up after %v", e.Path, who, e.Waited.Round(time.Millisecond))
}

func (e *TimeoutError) Is(target error) bool { return target == ErrLocked }
