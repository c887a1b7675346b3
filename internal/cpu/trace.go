package cpu

import "time"

// trace is what a test learns of one task under way; nil notes nothing.
type trace struct {
	start time.Time
	took  time.Duration
	slots []slotTrace
}

// slotTrace is what the goroutine that had a slot did, in time since the start.
type slotTrace struct {
	arrived time.Duration // 0 for the caller and whoever did not come
	first   time.Duration // when it began its first item
	last    time.Duration // when it ended its last one
	busy    time.Duration // in items
	waiting time.Duration // for others' items
	items   int
	stolen  int // of other shares
	since   time.Duration
	_       [2 * cacheLine]byte
}

func newTrace(threads int) *trace {
	return &trace{start: time.Now(), slots: make([]slotTrace, threads)}
}

func (t *trace) arrive(slot int) {
	if t != nil {
		t.slots[slot].arrived = time.Since(t.start)
	}
}

// begin notes that a slot begins an item or a wait.
func (t *trace) begin(slot int) {
	if t != nil {
		t.slots[slot].since = time.Since(t.start)
	}
}

// end notes that it ends an item, of a share.
func (t *trace) end(slot, share int) {
	if t == nil {
		return
	}
	s := &t.slots[slot]
	if s.items == 0 {
		s.first = s.since
	}
	s.last = time.Since(t.start)
	s.busy += s.last - s.since
	s.items++
	if slot != share {
		s.stolen++
	}
}

// waited notes that it ends a wait.
func (t *trace) waited(slot int) {
	if t != nil {
		s := &t.slots[slot]
		s.waiting += time.Since(t.start) - s.since
	}
}
