// Package devicetest provides helpers for tests that use device memory.
package devicetest

import (
	"context"
	"errors"

	"tilework/internal/device"
)

// WithBuffers copies each piece to an allocation of its own, calls f with the addresses and copies
// pieces[result] back. The address of an empty piece is 0.
func WithBuffers(ctx context.Context, d device.Device, result int, pieces [][]byte,
	f func(at []device.Ptr) error) (err error) {
	at := make([]device.Ptr, len(pieces))
	defer func() {
		for _, p := range at {
			err = errors.Join(err, d.Free(p))
		}
	}()
	for i, b := range pieces {
		if len(b) == 0 {
			continue
		}
		if at[i], err = d.Alloc(len(b)); err != nil {
			return err
		}
		if err := d.CopyIn(ctx, at[i], b, device.Whole(len(b))); err != nil {
			return err
		}
	}
	if err := f(at); err != nil || len(pieces[result]) == 0 {
		return err
	}
	return d.CopyOut(ctx, pieces[result], at[result], device.Whole(len(pieces[result])))
}
