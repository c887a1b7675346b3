package team

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/nccl"
	"tilework/internal/ref"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// fakeNCCL passes for the communicator of NCCL: it moves contiguous memory of emulated GPUs.
type fakeNCCL struct {
	rank    int
	store   *gpuStore
	net     *fakeNetwork
	mu      sync.Mutex
	failAt  int // the number of the exchange that fails, from 1 on
	calls   int
	aborted chan struct{}
	closed  bool
	moved   *[2]int // transfers and bytes that all ranks have sent
}

// fakeNetwork connects fakes: channels by sender and receiver.
type fakeNetwork [4][4]chan []byte

func (c *fakeNCCL) Exchange(ctx context.Context, _ nccl.Stream, sends, receives []nccl.Transfer) error {
	if len(sends)+len(receives) == 0 {
		return nil
	}
	c.mu.Lock()
	c.calls++
	failed := c.calls == c.failAt
	c.mu.Unlock()
	if failed {
		return errors.New("ncclGroupEnd: no route")
	}
	for _, t := range sends {
		b := make([]byte, t.Bytes)
		if err := c.store.copies.CopyOut(ctx, b, t.At, device.Whole(t.Bytes)); err != nil {
			return err
		}
		select {
		case c.net[c.rank][t.Rank] <- b:
		case <-c.aborted:
			return errors.New("aborted")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, t := range receives {
		select {
		case b := <-c.net[t.Rank][c.rank]:
			if len(b) != t.Bytes {
				return fmt.Errorf("%d bytes, want %d", len(b), t.Bytes)
			}
			if err := c.store.copies.CopyIn(ctx, t.At, b, device.Whole(t.Bytes)); err != nil {
				return err
			}
			c.mu.Lock()
			c.moved[0]++
			c.moved[1] += t.Bytes
			c.mu.Unlock()
		case <-c.aborted:
			return errors.New("aborted")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *fakeNCCL) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.aborted)
	}
	return nil
}

func (c *fakeNCCL) Close(context.Context) error { return c.Abort() }

// withFakeNCCL replaces the transport of teams on emulated GPUs.
func withFakeNCCL(t *testing.T, all []*Team) []*fakeNCCL {
	net := &fakeNetwork{}
	for i := range net {
		for j := range net[i] {
			net[i][j] = make(chan []byte, 100)
		}
	}
	fakes := make([]*fakeNCCL, len(all))
	for r, team := range all {
		store := team.store.(*gpuStore)
		fakes[r] = &fakeNCCL{rank: r, store: store, net: net, aborted: make(chan struct{}), moved: new([2]int)}
		team.transport.abort()
		team.transport = &ncclTransport{store: store, comm: fakes[r], version: 22703}
		team.rate = ncclRate
	}
	return fakes
}

// TestNCCLTransport computes random products whose parts are packed for NCCL, and compares them
// with the reference and with the traffic of the plan.
func TestNCCLTransport(t *testing.T) {
	rng := testrand.New(t)
	for _, n := range []int{2, 3} {
		all := teams(t, n, "emu")
		fakes := withFakeNCCL(t, all)
		if got := all[0].transport.String(); got != "NCCL 2.27.3" {
			t.Errorf("transport %s", got)
		}
		for range testkit.Short(6) {
			x := random(t, rng, []dtype.Type{dtype.F32, dtype.BF16}[rng.IntN(2)], 70, true)
			want := ref.Gemm(&x.Problem, x.memory)
			for pick := range 3 {
				for _, team := range all {
					team.pick = func(plans []split.Division) int { return pick * 5 % len(plans) }
					clear(team.divisions)
				}
				if err := want.Exactly(x.compute(t, all)); err != nil {
					t.Errorf("%d ranks, division %d of %v, %v: %v", n, pick, &x.Problem, x.by, err)
				}
			}
		}
		moved := 0
		for _, f := range fakes {
			moved += f.moved[1]
		}
		if moved == 0 {
			t.Errorf("%d ranks: nothing was moved", n)
		}
	}
}

// TestNCCLFails lets NCCL fail at one rank. All ranks must end with an error that names it.
func TestNCCLFails(t *testing.T) {
	x := square(t, 64)
	x.by = [gemm.Operands]split.By{gemm.A: split.Rows, gemm.B: split.Rows, gemm.C: split.Rows}
	for failAt := 1; failAt < 4; failAt++ {
		all := teams(t, 3, "emu")
		fakes := withFakeNCCL(t, all)
		fakes[1].failAt = failAt
		for r, err := range each(3, func(r int) error {
			p, err := x.matrices(t.Context(), all[r])
			if err != nil {
				return err
			}
			return all[r].Gemm(t.Context(), p, nil)
		}) {
			want := "rank 1 failed: ncclGroupEnd: no route"
			if r == 1 {
				want = "ncclGroupEnd: no route"
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("exchange %d fails: rank %d: error %v, want %s", failAt, r, err, want)
			}
			if _, err := all[r].New(gemm.Dense(dtype.F32, 2, 2), split.Rows); err == nil {
				t.Errorf("exchange %d fails: rank %d goes on", failAt, r)
			}
		}
	}
}
