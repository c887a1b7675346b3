package stream

import (
	"slices"

	"tilework/internal/device"
)

// streams holds the streams of a product besides the device's default stream: those of the copies,
// and one that computes every other panel of C.
type streams struct {
	in, out, concurrent device.Stream
	peers               device.Stream // copies from other devices; nil until a product needs it
}

// all returns the streams that exist.
func (s *streams) all() []device.Stream {
	return slices.DeleteFunc([]device.Stream{s.in, s.out, s.concurrent, s.peers},
		func(x device.Stream) bool { return x == nil })
}

func (s *streams) close() error {
	var errs []error
	for _, x := range s.all() {
		errs = append(errs, x.Close())
	}
	return device.Join(errs...)
}

// streams returns streams that no other product uses.
func (b *Backend) streams(peers bool) (*streams, error) {
	s, err := b.idleStreams()
	if err == nil && peers && s.peers == nil {
		if s.peers, err = b.Device.NewStream(); err != nil {
			return nil, device.Join(err, s.close())
		}
	}
	return s, err
}

func (b *Backend) idleStreams() (*streams, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.idle); n > 0 {
		s := b.idle[n-1]
		b.idle = b.idle[:n-1]
		return s, nil
	}
	s := &streams{}
	for _, to := range []*device.Stream{&s.in, &s.out, &s.concurrent} {
		x, err := b.Device.NewStream()
		if err != nil {
			return nil, device.Join(err, s.close())
		}
		*to = x
	}
	return s, nil
}

// release keeps streams for the next product.
func (b *Backend) release(s *streams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = append(b.idle, s)
}
