package cpu

import "time"

// trace is what a test learns of one task under way; nil notes nothing.
type trace struct {
	start   time.Time
	took    time.Duration
	workers []workerTrace
}

// slotTrace is what the goroutine that had a slot did, in time since the start.
type workerTrace struct {
	joined  time.Duration // 0 for the caller and whoever did not come
	first   time.Duration // when it began its first item
	last    time.Duration // when it ended its last one
	busy    time.Duration // in items
	waiting time.Duration // for others' items
	tasks   int
	stolen  int // of other shares
	since   time.Duration
	_       [2 * cacheLine]byte
}

func newTrace(threads int) *trace {
	return &trace{start: time.Now(), workers: make([]workerTrace, threads)}
}

func (t *trace) join(worker int) {
	if t != nil {
		t.workers[worker].joined = time.Since(t.start)
	}
}

// begin notes that a slot begins an item or a wait.
func (t *trace) begin(worker int) {
	if t != nil {
		t.workers[worker].since = time.Since(t.start)
	}
}

// end notes that it ends an item, of a share.
func (t *trace) end(worker, queue int) {
	if t == nil {
		return
	}
	s := &t.workers[worker]
	if s.tasks == 0 {
		s.first = s.since
	}
	s.last = time.Since(t.start)
	s.busy += s.last - s.since
	s.tasks++
	if worker != queue {
		s.stolen++
	}
}

// waited notes that it ends a wait.
func (t *trace) waited(worker int) {
	if t != nil {
		s := &t.workers[worker]
		s.waiting += time.Since(t.start) - s.since
	}
}
