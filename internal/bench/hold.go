package bench

import (
	"context"
	"math"
	"time"

	"tilework/internal/device"
)

// holdPTX is a kernel that spins for the given number of nanoseconds.
const holdPTX = `.version 6.4
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

// holder keeps a device busy with a spinning kernel.
type holder struct {
	device   device.Device
	module   device.Module
	function device.Function
}

// newHolder compiles the kernel. An emulated device needs none, because it runs each call
// synchronously.
func newHolder(ctx context.Context, d device.Device) (*holder, error) {
	h := &holder{device: d}
	if d.Info().Emulated {
		return h, nil
	}
	var err error
	if h.module, err = d.Load(ctx, holdPTX); err == nil {
		h.function, err = h.module.Function("hold")
	}
	return h, err
}

// maxHold limits how long the device is held. A product that takes longer to enqueue takes much
// longer still to compute.
const maxHold = 5 * time.Millisecond

// hold keeps the device busy for the expected duration of enqueueing, plus a margin, and returns
// how long that is. For an emulated device, whose timings never include waiting for the host, it
// returns the largest possible duration.
func (h *holder) hold(ctx context.Context, enqueueing time.Duration) (time.Duration, error) {
	if h.function == nil {
		return math.MaxInt64, nil
	}
	held := min(enqueueing*5/4+30*time.Microsecond, maxHold)
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
