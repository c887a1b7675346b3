package cuda

import (
	"context"
	"runtime"
	"unsafe"
)

// A copy goes through pinned memory, which the device reads and writes itself: several
// times as fast as from the caller's memory, and the device never touches that, so that
// a copy can be left at any time. A goroutine fills or empties two slots in turn, one
// while the device moves the other.
//
// On hosts of an H200 (PCIe 5 ×16, 55 GB/s) eight goroutines bring in 37 to 49 GB/s, and 26
// of rows that are apart, of 2 KiB; they take out 41. Slots of 1 MiB instead of 2 do as well on
// the way in, and a fifth less on the way out.
const (
	slotBytes = 2 << 20
	laneSlots = 2
	laneCount = 8
	// A copy that is smaller than the ring is cut into smaller pieces, for all lanes to
	// have some, but not below this: each piece costs the device 2 µs besides its bytes.
	leastPiece = 512 << 10
)

// lanesHere is how many goroutines a copy is shared among: half of the processors are
// left to others, as those who wait for copies and for work do not sleep at once.
func lanesHere() int { return max(1, min(laneCount, runtime.GOMAXPROCS(0)/2)) }

// staging is the pinned memory of one direction.
type staging struct {
	mine  chan struct{} // holds one element while a copy uses the lanes
	lanes [laneCount]lane
}

// lane is what one goroutine of a copy uses.
type lane struct {
	slots [laneSlots]slot
	turn  int
}

// slot is a piece of pinned memory, which comes with its first use.
type slot struct {
	address uintptr
	event   uintptr // when the device has done with it
	state   slotState
	stream  uintptr // which the device uses it in
	// landing is the piece that the device writes here for the copy under way, which
	// then takes it to its place; nil for a copy in, and once the copy has been left.
	landing *piece
}

type slotState int

const (
	idle   slotState = iota
	begun            // the device uses it until nobody knows when
	marked           // the device uses it until its event
)

func newStaging() *staging { return &staging{mine: make(chan struct{}, 1)} }

// enter makes the lanes the caller's, until he leaves.
func (s *staging) enter(ctx context.Context) error {
	select {
	case s.mine <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave ends a copy, done or not.
func (s *staging) leave() {
	for x := range s.slots() {
		x.landing = nil
	}
	<-s.mine
}

// slots ranges over the slots of all lanes.
func (s *staging) slots() func(yield func(*slot) bool) {
	return func(yield func(*slot) bool) {
		for i := range s.lanes {
			for j := range s.lanes[i].slots {
				if !yield(&s.lanes[i].slots[j]) {
					return
				}
			}
		}
	}
}

// next is the lane's slot that was used longest ago.
func (l *lane) next() *slot {
	l.turn++
	return &l.slots[l.turn%laneSlots]
}

func (s *slot) memory() []byte { return unsafe.Slice((*byte)(pointer(s.address)), slotBytes) }

// open gives a slot its memory and its event.
func (s *slot) open(g *GPU) error {
	if s.event != 0 {
		return nil
	}
	return g.within(func() error {
		if s.address == 0 {
			if err := g.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&s.address)), slotBytes, 0); err != nil {
				return err
			}
		}
		const disableTiming = 2 // CU_EVENT_DISABLE_TIMING
		return g.call(cuEventCreate, uintptr(unsafe.Pointer(&s.event)), disableTiming)
	})
}
