package tilework

import (
	"context"
	"fmt"
	"io"
	"reflect"

	"tilework/internal/backend"
	"tilework/internal/team"
)

// Group is a group of processes, the ranks. [tilework/ranks.Group] implements it.
type Group interface {
	Rank() int
	Size() int
	LocalRank() int
	Gather(ctx context.Context, name string, data []byte) ([][]byte, error)
	Broadcast(ctx context.Context, name string, from int, data []byte) ([]byte, error)
	Agree(ctx context.Context, values ...[2]string) error
	Connect(ctx context.Context) ([]io.ReadWriteCloser, error)
	Context(parent context.Context) (ctx context.Context, stop func())
	Err() error
	Fail(err error)
}

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
func OpenRanks(ctx context.Context, g Group, device string) (*Device, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	// A nil pointer and the zero ranks.Group are no group either.
	if v := reflect.ValueOf(g); g == nil || v.Kind() == reflect.Pointer && v.IsNil() || g.Size() < 1 {
		return nil, fmt.Errorf("%w: no group of ranks: want the Group of ranks.Join", ErrUnsupported)
	}
	t, err := team.Open(ctx, g, device)
	if err != nil {
		return nil, err
	}
	return &Device{t: t}, nil
}

// onTeam returns the product of matrices of several ranks as package team takes it.
func (k *call) onTeam() (*team.Product, error) {
	request := &k.product.Request
	switch {
	case request.Device.Kind != backend.Auto:
		return nil, fmt.Errorf("%w: device %v for matrices of several ranks", ErrUnsupported, request.Device)
	case request.GPUMemory != 0:
		return nil, fmt.Errorf("%w: a limit of GPU memory for matrices of several ranks", ErrUnsupported)
	case request.Verify:
		return nil, fmt.Errorf("%w: verifying a product of matrices of several ranks", ErrUnsupported)
	case k.tile != nil:
		return nil, fmt.Errorf("%w: a function for the tiles of matrices of several ranks", ErrUnsupported)
	case k.grouped():
		return nil, fmt.Errorf("%w: groups of rows of matrices of several ranks", ErrUnsupported)
	}
	swapped, err := k.complete(&k.product.Problem)
	if err != nil {
		return nil, err
	}
	p := &team.Product{Problem: k.product.Problem, Kernel: request.Kernel, Threads: request.Threads}
	for s := k.given; s != 0; s &= s - 1 {
		a, o := &k.arguments[s.first()], s.first()
		if swapped {
			o = o.Transposed()
		}
		p.Operands[o] = team.Operand{On: team.Matrix{Memory: a.team, Layout: a.layout}, Host: a.host}
	}
	return p, nil
}

// runOnTeam computes the product with all ranks. The other ranks learn of an error of the operands
// unless they have the same.
func (k *call) runOnTeam(ctx context.Context, invalid error) error {
	p, invalid := k.validOnTeam(invalid)
	return k.team().Gemm(ctx, p, invalid)
}

// teamPlan returns the plan of a product with all ranks.
func (k *call) teamPlan(invalid error) (Plan, error) {
	p, invalid := k.validOnTeam(invalid)
	d, err := k.team().PlanOf(context.Background(), p, invalid)
	if err != nil {
		return Plan{}, err
	}
	pl := planOf(&p.Problem)
	pl.Device, pl.Kernel, pl.Detail, pl.Why = d.Device, d.Kernel, d.Detail, d.Why
	return pl, nil
}

// validOnTeam returns the product, or the error of its operands if invalid is nil.
func (k *call) validOnTeam(invalid error) (*team.Product, error) {
	if invalid != nil {
		return nil, invalid
	}
	return k.onTeam()
}
