package bench

import (
	"context"
	"math"
	"time"

	"tilework/internal/device"
)

// holdText is a kernel that ends after so many nanoseconds.
const holdText = `.version 6.4
.target sm_75
.address_size 64

.visible .entry hold(.param .u64 nanoseconds)
{
	.reg .u64 %start, %passed, %most;
	.reg .pred %early;
	ld.param.u64 %most, [nanoseconds];
	mov.u64 %start, %globaltimer;
wait:
	mov.u64 %passed, %globaltimer;
	sub.u64 %passed, %passed, %start;
	setp.lt.u64 %early, %passed, %most;
	@%early bra wait;
	ret;
}
`

// holder keeps a device busy with nothing.
type holder struct {
	device   device.Device
	module   device.Module
	function device.Function
}

// newHolder compiles the kernel. An emulated device, which does at once what it is
// asked for, needs none.
func newHolder(ctx context.Context, d device.Device) (*holder, error) {
	h := &holder{device: d}
	if d.Info().Emulated {
		return h, nil
	}
	var err error
	if h.module, err = d.Load(ctx, holdText); err == nil {
		h.function, err = h.module.Function("hold")
	}
	return h, err
}

// mostHeld bounds how long the device is held: a product that takes so long to ask
// for that this is not enough takes much longer to compute.
const mostHeld = 5 * time.Millisecond

// hold has the device do nothing for as long as the host is thought to take to ask for
// something, and then some, and says how long that is. An emulated device is held for
// good: nothing is late there.
func (h *holder) hold(ctx context.Context, asking time.Duration) (time.Duration, error) {
	if h.function == nil {
		return math.MaxInt64, nil
	}
	held := min(asking*5/4+30*time.Microsecond, mostHeld)
	var args device.Params
	args.U64(uint64(held))
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	return held, h.device.Launch(ctx, h.function, device.Launch{Grid: one, Block: one, Params: args.Bytes()})
}

func (h *holder) close() error {
	if h == nil || h.module == nil {
		return nil
	}
	return h.module.Unload()
}
