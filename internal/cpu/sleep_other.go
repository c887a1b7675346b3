//go:build !linux

package cpu

import "sync"

// sleeper is a goroutine that sleeps until it is woken.
type sleeper struct {
	mu   sync.Mutex
	cond sync.Cond
	down bool
}

// prepareSleep says that sleep may follow: from here on, wake ends it.
func (s *sleeper) prepareSleep() {
	s.mu.Lock()
	s.down, s.cond.L = true, &s.mu
	s.mu.Unlock()
}

// sleep returns when wake was called after prepareSleep.
func (s *sleeper) sleep() {
	s.mu.Lock()
	for s.down {
		s.cond.Wait()
	}
	s.mu.Unlock()
}

// wake ends a sleep, if there is one or is about to be.
func (s *sleeper) wake() {
	s.mu.Lock()
	if s.down {
		s.down = false
		s.cond.Signal()
	}
	s.mu.Unlock()
}

// yieldThread lets another thread have the processor: there is no way to say so.
func yieldThread() {}
