package tilework

import (
	"context"
	"fmt"

	"tilework/internal/call"
	"tilework/ranks"
)

// OpenRanks opens a device at each rank of a group, which divide each matrix among them. All ranks
// call it at the same time, and later make the same matrices and products in the same order.
//
// The device "gpu" is the GPU with the rank's number on its host, modulo the number of GPUs that
// the process sees, and "auto" is that GPU or, if there is none, the CPU. "cpu", "gpu:N", "emu" and
// "emu:MODEL" name a device. All ranks have the same kind. If each has a GPU of its own and
// NVIDIA's NCCL, they exchange data with it, and otherwise over TCP; [PlanGemm] states the reason.
//
// A rank stores and copies only its part of a matrix; see [DeviceMatrix.Part]. A product waits
// until this part of C is complete. The errors are ErrNoDevice, ErrUnsupported and those of the
// group, which has ended after an error, except for one that all ranks find in the operands of a
// product.
func OpenRanks(ctx context.Context, g *ranks.Group, device string) (*Device, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if g == nil || g.Size() < 1 {
		return nil, fmt.Errorf("%w: no group of ranks: want the Group of ranks.Join", ErrUnsupported)
	}
	at, err := call.OpenRanks(ctx, g, device)
	if err != nil {
		return nil, err
	}
	return &Device{at}, nil
}
