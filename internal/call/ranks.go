package call

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/split"
	"tilework/internal/team"
	"tilework/ranks"
)

// group is the devices of the ranks of a group.
type group struct{ *team.Team }

// groupMemory is a matrix of several ranks.
type groupMemory struct{ *team.Memory }

// OpenRanks opens a device at each rank of a group; see [team.Open].
func OpenRanks(ctx context.Context, g *ranks.Group, name string) (Place, error) {
	t, err := team.Open(ctx, g, name)
	if err != nil {
		return nil, err
	}
	return group{t}, nil
}

// errBatch refuses a batch.
var errBatch = fmt.Errorf("%w: a batch on several ranks: open a device for it", gemm.ErrUnsupported)

func (t group) New(l gemm.Layout, by split.By) (Memory, gemm.Layout, error) {
	m, err := t.Team.New(l, by)
	if err != nil {
		return nil, m.Layout, err
	}
	return groupMemory{m.Memory}, m.Layout, nil
}

func (group) NewBatch(gemm.Layout, int, split.By) (Memory, gemm.Layout, error) {
	return nil, gemm.Layout{}, errBatch
}

// Sync does not wait: products of ranks have finished.
func (group) Sync(ctx context.Context) error { return ctx.Err() }

func (group) ofRanks() bool { return true }

func (group) toTune(asked backend.DeviceName) (backend.DeviceName, error) { return asked, nil }

func (m groupMemory) Place() Place { return group{m.Team()} }

func (m groupMemory) Matrix(_ int, l gemm.Layout) Stored {
	return team.Matrix{Memory: m.Memory, Layout: l}
}

func (groupMemory) Size() (int, error) { return 0, errBatch }

func (groupMemory) CheckPart() error {
	return fmt.Errorf("%w: a part of a matrix of several ranks", gemm.ErrUnsupported)
}

// product returns the product of k as package team takes it, or the error of its operands if
// invalid is nil.
func (group) product(k *Call, invalid error) (*team.Job, error) {
	switch {
	case invalid != nil:
		return nil, invalid
	case k.Device.Kind != backend.Auto:
		return nil, fmt.Errorf("%w: device %v for matrices of several ranks", gemm.ErrUnsupported, k.Device)
	case k.GPUMemory != 0:
		return nil, fmt.Errorf("%w: a limit of GPU memory for matrices of several ranks", gemm.ErrUnsupported)
	case k.Verify:
		return nil, fmt.Errorf("%w: verifying a product of matrices of several ranks", gemm.ErrUnsupported)
	case k.Tile != nil:
		return nil, fmt.Errorf("%w: a function for the tiles of matrices of several ranks", gemm.ErrUnsupported)
	case k.grouped():
		return nil, fmt.Errorf("%w: groups of rows of matrices of several ranks", gemm.ErrUnsupported)
	}
	p := &team.Job{Kernel: k.Kernel, Threads: k.Threads}
	swapped, err := k.complete(&p.Problem, &k.Layouts)
	for s := k.given; s != 0; s &= s - 1 {
		x, o := &k.operands[s.first()], s.first()
		if swapped {
			o = o.Transposed()
		}
		p.Operands[o].Host, p.Operands[o].On.Layout = x.Host, x.Layout
		if m, ok := x.Memory.(groupMemory); ok {
			p.Operands[o].On.Memory = m.Memory
		}
	}
	return p, err
}

// run computes the product with all ranks. The other ranks learn of an error of the operands unless
// they have the same.
func (t group) run(ctx context.Context, k *Call, invalid error) error {
	p, invalid := t.product(k, invalid)
	return t.Gemm(ctx, p, invalid)
}

func (t group) describe(ctx context.Context, k *Call, invalid error) (Description, error) {
	p, invalid := t.product(k, invalid)
	d, err := t.PlanOf(ctx, p, invalid)
	if err != nil {
		return Description{}, err
	}
	return Description{Problem: p.Problem, Device: d.Device, Kernel: d.Kernel, Detail: d.Detail, Why: d.Why}, nil
}
