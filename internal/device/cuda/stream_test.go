package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"tilework/internal/device"
	"tilework/internal/testkit/testrand"
)

// TestStreams checks that a wait orders the work of two streams. The fake defers all work until it
// is queried, so without the wait the copy reads old bytes.
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
		clear(in) // CopyIn has read it
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
			t.Errorf("with wait %v: read new bytes %v", waits, got)
		}
		if err := e.Free(); err != nil {
			t.Fatal(err)
		}
		if err := s[1].Wait(e); err == nil || !strings.Contains(err.Error(), "was freed") {
			t.Errorf("Wait for a freed event: got error %v", err)
		}
		if err := s[1].Wait(nil); err == nil || !strings.Contains(err.Error(), "want an event of a GPU") {
			t.Errorf("Wait(nil): got error %v", err)
		}
		if err := errors.Join(s[0].Close(), s[0].Close(), g.Free(p)); err != nil { // s[1] is closed with the device
			t.Fatal(err)
		}
	}
}

// TestConcurrentCopies checks that concurrent copies in both directions, one stream per goroutine,
// keep their bytes apart.
func TestConcurrentCopies(t *testing.T) {
	g := opened(t, newFake(), 0)
	seed := testrand.Seed(t)
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
				n := 1 + rng.IntN(3*minPieceBytes)
				in, out := noise(rng, n), make([]byte, n)
				p, err := g.Alloc(n)
				if err == nil {
					err = errors.Join(
						s.CopyIn(t.Context(), p, in, device.Whole(n)),
						s.CopyOut(t.Context(), out, p, device.Whole(n)),
						g.Free(p))
				}
				if err != nil || !bytes.Equal(in, out) {
					t.Errorf("%d bytes: error %v, read back unchanged: %v", n, err, bytes.Equal(in, out))
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
