package exec

import (
	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
)

// scratch is memory on the device that a caller has allocated for the launches of one product.
type scratch struct{ next device.Ptr }

// scratchAlign is the alignment of each part of the scratch memory, that of [device.Device.Alloc].
const scratchAlign = 256

// ScratchBytes returns the size of the scratch memory in which the launches pass data to each
// other.
func (pl *Plan) ScratchBytes() (n int) {
	if pl.device.Empty() {
		return 0
	}
	if pl.splitsGate() {
		first := pl.firstFactor()
		n = scratchSize(first.gateBytes()) + first.productScratch()
	}
	return n + pl.productScratch()
}

// productScratch returns the scratch memory without that of the first product of a gated one.
func (pl *Plan) productScratch() (n int) {
	switch sub, packed := pl.Packed(); {
	case packed.Any():
		for _, o := range kernel.Packable {
			if packed[o] {
				n += scratchSize(pl.packedBytes(&sub.device, o))
			}
		}
		return n + sub.productScratch()
	case pl.Config.Tile.SplitK > 1:
		return scratchSize(kernel.PartialSumBytes(&pl.device, pl.Config.Tile))
	}
	return 0
}

func scratchSize(n int) int { return kernel.RoundUp(n, scratchAlign) }

// InScratch returns the plan with its scratch memory at an address, where [Plan.ScratchBytes] are
// allocated. The plan allocates no other memory, and may be enqueued once.
func (pl *Plan) InScratch(at device.Ptr) *Plan {
	placed := *pl
	placed.scratch = &scratch{at}
	return &placed
}

// take returns n bytes of scratch memory, which the caller passes to give after the launches that
// use them.
func (pl *Plan) take(n int) (device.Ptr, error) {
	if pl.scratch == nil {
		return pl.backend.Device.Alloc(n)
	}
	at := pl.scratch.next
	pl.scratch.next += device.Ptr(scratchSize(n))
	return at, nil
}

// give releases memory that take returned.
func (pl *Plan) give(at device.Ptr) error {
	if pl.scratch == nil {
		return pl.backend.Device.Free(at)
	}
	return nil
}
