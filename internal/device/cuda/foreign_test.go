package cuda

import (
	"errors"
	"testing"

	"tilework/internal/sentinel"
)

// TestForeign checks that f runs with the context current and the default stream, and does not run
// after Close.
func TestForeign(t *testing.T) {
	f := newFake()
	g := opened(t, f, 1)
	own := errors.New("library error")
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
	if err := g.Foreign(func(uintptr) error { t.Error("f was called on a closed GPU"); return nil }); !errors.Is(err,
		sentinel.ErrNoDevice) {
		t.Errorf("on a closed GPU: got error %v, want ErrNoDevice", err)
	}
}
