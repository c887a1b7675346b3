//go:build !linux

package cpu

import "sync"

// sleeper lets a goroutine sleep until it is woken.
type sleeper struct {
	mu   sync.Mutex
	cond sync.Cond
	down bool
}

// prepareSleep announces a sleep. A wake after it ends the sleep, even if the sleep has not begun.
func (s *sleeper) prepareSleep() {
	s.mu.Lock()
	s.down, s.cond.L = true, &s.mu
	s.mu.Unlock()
}

// sleep returns once wake has been called after prepareSleep.
func (s *sleeper) sleep() {
	s.mu.Lock()
	for s.down {
		s.cond.Wait()
	}
	s.mu.Unlock()
}

// asleep reports whether a sleep has begun or was announced.
func (s *sleeper) asleep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// wake ends a sleep that has begun or was announced.
func (s *sleeper) wake() {
	s.mu.Lock()
	if s.down {
		s.down = false
		s.cond.Signal()
	}
	s.mu.Unlock()
}

// yieldThread does nothing on this system.
func yieldThread() {}
