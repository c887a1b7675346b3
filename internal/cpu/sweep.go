package cpu

import (
	"sync/atomic"
	"time"
)

// idleTime is the time without a product after which workers and workspaces end. An idle program
// then has no goroutine, thread or workspace of this package.
const idleTime = time.Second

// sweeper ends unused workers and workspaces, twice in each idleTime. Sweeps are scheduled only
// while there is something to end.
type sweeper struct {
	scheduled atomic.Bool
	after     func(time.Duration, func()) // calls the function later
}

var sweeps = &sweeper{after: func(d time.Duration, f func()) { time.AfterFunc(d, f) }}

// schedule makes sure that a sweep follows. A product calls it after it has returned workers or a
// workspace.
func (s *sweeper) schedule() {
	if !s.scheduled.Load() && s.scheduled.CompareAndSwap(false, true) {
		s.after(idleTime/2, s.sweep)
	}
}

// sweep ends the workers and drops the workspaces that no product has used since the last sweep.
func (s *sweeper) sweep() {
	s.scheduled.Store(false)
	workers, workspaces := endUnused(), dropUnused()
	if workers > 0 || workspaces > 0 {
		s.schedule()
	}
}
