package stream

import "tilework/internal/device"

// streams are those of a product beside the device's own: for copies, and for every
// other panel of C.
type streams struct{ in, out, beside device.Stream }

func (s *streams) all() []device.Stream { return []device.Stream{s.in, s.out, s.beside} }

func (s *streams) close() error {
	var errs []error
	for _, x := range s.all() {
		if x != nil {
			errs = append(errs, x.Close())
		}
	}
	return device.Join(errs...)
}

// streams are some that no other product uses.
func (b *Backend) streams() (*streams, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.idle); n > 0 {
		s := b.idle[n-1]
		b.idle = b.idle[:n-1]
		return s, nil
	}
	s := &streams{}
	for _, to := range []*device.Stream{&s.in, &s.out, &s.beside} {
		x, err := b.Device.NewStream()
		if err != nil {
			return nil, device.Join(err, s.close())
		}
		*to = x
	}
	return s, nil
}

// giveBack keeps streams for the next product.
func (b *Backend) giveBack(s *streams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = append(b.idle, s)
}
