package testkit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestEveryLook: a context ends at each look in turn, for good, and by both ways to look.
func TestEveryLook(t *testing.T) {
	const looks = 9
	runs := 0
	EveryLook(4, func(ctx *Ending) {
		runs++
		for n := 1; n <= looks; n++ {
			was := ctx.Ended()
			if n%2 == 0 {
				select {
				case <-ctx.Done():
				default:
				}
			} else if err := ctx.Err(); (err != nil) != ctx.Ended() || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("run %d, look %d: %v", runs, n, err)
			}
			if want := was || runs == n && n <= 4; runs <= 4 && ctx.Ended() != want {
				t.Errorf("run %d, look %d: ended is %v", runs, n, ctx.Ended())
			}
		}
	})
	if runs != 7 { // it ends at looks 1 to 4, 6, 9 and then not at all
		t.Errorf("%d runs", runs)
	}
}

// failures counts what a check says.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

// TestCheap: what takes too much is told, and what does not is not.
func TestCheap(t *testing.T) {
	var kept []byte
	for _, c := range []struct {
		f    func()
		want int
	}{
		{func() {}, 0},
		{func() { kept = make([]byte, 10) }, 0},
		{func() { kept = make([]byte, constant+2100) }, 1},
		{func() { time.Sleep(most + 10*time.Millisecond) }, 1},
	} {
		f := &failures{TB: t}
		if Cheap(f, 1000, 2, c.f); f.n != c.want {
			t.Errorf("%d failures, want %d", f.n, c.want)
		}
	}
	_ = kept
}
