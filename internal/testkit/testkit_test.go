package testkit

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestCancelEverywhere checks that contexts are cancelled at each call in turn, by Done and by Err,
// and stay cancelled.
func TestCancelEverywhere(t *testing.T) {
	const calls = 9
	runs := 0
	CancelEverywhere(4, func(ctx *CountdownContext) {
		runs++
		for n := 1; n <= calls; n++ {
			was := ctx.Ended()
			if n%2 == 0 {
				select {
				case <-ctx.Done():
				default:
				}
			} else if err := ctx.Err(); (err != nil) != ctx.Ended() || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("run %d, call %d: %v", runs, n, err)
			}
			if want := was || runs == n && n <= 4; runs <= 4 && ctx.Ended() != want {
				t.Errorf("run %d, call %d: cancelled is %v, want %v", runs, n, ctx.Ended(), want)
			}
		}
	})
	if runs != 7 { // cancelled at calls 1 to 4, 6 and 9, and then not at all
		t.Errorf("%d runs, want 7", runs)
	}
}

// failures is a testing.TB that counts errors.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestCheckCost(t *testing.T) {
	var kept []byte
	slow := 0 // failures of slow work, whose time is only known on Linux
	if threadTime() > 0 {
		slow = 1
	}
	for _, c := range []struct {
		f    func()
		want int
	}{
		{func() {}, 0},
		{func() { kept = make([]byte, 10) }, 0},
		{func() { kept = make([]byte, constantBytes+2100) }, 1},
		{func() { // work without memory
			for start := threadTime(); start > 0 && threadTime()-start <= maxTime+maxTime/100; {
			}
		}, slow},
	} {
		f := &failures{TB: t}
		if CheckCost(f, 1000, 2, c.f); f.n != c.want {
			t.Errorf("%d failures, want %d", f.n, c.want)
		}
	}
	_ = kept
}

func TestCheckLinear(t *testing.T) {
	for _, c := range []struct {
		work func(n uint64) uint64
		want int // failures for the lengths 100, 200 and 800
	}{
		{func(n uint64) uint64 { return 5 * n }, 0},
		{func(n uint64) uint64 { return 2*n + 200 }, 0},
		{func(n uint64) uint64 { return 6 * n }, 3},
		{func(n uint64) uint64 { return n * n / 200 }, 1},
		{func(n uint64) uint64 { return n * n / 1000 }, 0}, // less than one for each byte
		{func(n uint64) uint64 { return n * n / 20 }, 2},
	} {
		f := &failures{TB: t}
		CheckLinear(f, "", []int{100, 200, 800}, 5, func(n int) string { return strings.Repeat("x", n) },
			func(input string) uint64 { return c.work(uint64(len(input))) })
		if f.n != c.want {
			t.Errorf("%d failures, want %d", f.n, c.want)
		}
	}
}
