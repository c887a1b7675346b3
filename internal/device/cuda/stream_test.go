package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"tilework/internal/device"
)

// TestStreams: work of different streams is in order where one waits for another. The
// fake does nothing before somebody asks, so that without waiting the bytes are old.
func TestStreams(t *testing.T) {
	for _, waits := range []bool{true, false} {
		g := opened(t, newFake(), 0)
		ctx := t.Context()
		p, err := g.Alloc(100)
		if err != nil {
			t.Fatal(err)
		}
		var s [2]device.Stream
		for i := range s {
			if s[i], err = g.NewStream(); err != nil {
				t.Fatal(err)
			}
		}
		in, out := bytes.Repeat([]byte{7}, 100), make([]byte, 100)
		if err := s[0].CopyIn(ctx, p, in, device.Whole(100)); err != nil {
			t.Fatal(err)
		}
		clear(in) // which has been read
		e, err := s[0].Record()
		if err == nil && waits {
			err = s[1].Wait(e)
		}
		if err == nil {
			err = s[1].CopyOut(ctx, out, p, device.Whole(100))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := out[0] == 7 && out[99] == 7; got != waits {
			t.Errorf("waiting: %v, new bytes: %v", waits, got)
		}
		if err := e.Free(); err != nil {
			t.Fatal(err)
		}
		if err := s[1].Wait(e); err == nil || !strings.Contains(err.Error(), "was freed") {
			t.Errorf("waiting for an event that was freed: %v", err)
		}
		if err := s[1].Wait(nil); err == nil || !strings.Contains(err.Error(), "another device") {
			t.Errorf("waiting for no event: %v", err)
		}
		if err := errors.Join(s[0].Close(), s[0].Close(), g.Free(p)); err != nil { // s[1] is closed with the device
			t.Fatal(err)
		}
	}
}

// TestCopiesAtOnce: goroutines that copy both ways, each in a stream of its own, get what
// they put there.
func TestCopiesAtOnce(t *testing.T) {
	g := opened(t, newFake(), 0)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			s, err := g.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			for range 25 {
				n := 1 + rng.IntN(3*leastPiece)
				in, out := noise(rng, n), make([]byte, n)
				p, err := g.Alloc(n)
				if err == nil {
					err = errors.Join(
						s.CopyIn(t.Context(), p, in, device.Whole(n)),
						s.CopyOut(t.Context(), out, p, device.Whole(n)),
						g.Free(p))
				}
				if err != nil || !bytes.Equal(in, out) {
					t.Errorf("%d bytes: %v, the same: %v", n, err, bytes.Equal(in, out))
					return
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
