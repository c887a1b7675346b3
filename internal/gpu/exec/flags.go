package exec

import (
	"context"
	"sync"

	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
)

// flags are the flags of stream-K for launches in the stream of the device, which orders them. All
// are zero between two launches. Other streams have none.
type flags struct {
	mu sync.Mutex
	at device.Ptr
}

// clearFlags returns the address of the flags in device memory, which are zero for the next launch.
// A GPU runs a kernel to its end, and so leaves them zero. The emulator can abort it.
func (b *Backend) clearFlags(ctx context.Context) (at device.Ptr, err error) {
	b.flags.mu.Lock()
	defer b.flags.mu.Unlock()
	if at = b.flags.at; at != 0 && !b.Info().Emulated {
		return at, nil
	}
	d, bytes := b.Device, kernel.FlagBytes(b.Info())
	if at == 0 {
		if at, err = d.Alloc(bytes); err != nil {
			return 0, err
		}
	}
	if err := d.CopyIn(ctx, at, make([]byte, bytes), device.Whole(bytes)); err != nil {
		b.flags.at = 0
		return 0, device.Join(err, d.Free(at))
	}
	b.flags.at = at
	return at, nil
}
