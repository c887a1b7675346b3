package cuda

import (
	"errors"
	"testing"

	"tilework/internal/device"
)

// TestForeign: a foreign library finds the GPU's context current and its stream, until
// the GPU is closed.
func TestForeign(t *testing.T) {
	f := newFake()
	g := opened(t, f, 1)
	own := errors.New("the library's own")
	err := g.Foreign(func(stream uintptr) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if stream == 0 || stream != g.stream {
			t.Errorf("stream %#x, want %#x", stream, g.stream)
		}
		if got := f.current[thread()]; got != g.context {
			t.Errorf("context %#x is current, want %#x", got, g.context)
		}
		return own
	})
	if err != own {
		t.Errorf("error %v, want %v", err, own)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Foreign(func(uintptr) error { t.Error("called on a closed GPU"); return nil }); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("closed: error %v", err)
	}
}
