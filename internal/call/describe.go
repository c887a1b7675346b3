package call

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// Description describes how a product would be computed, and why.
type Description struct {
	Problem                     gemm.Problem
	Device, Kernel, Detail, Why string
	Threads                     int           // maximum number of goroutines; 0 on a GPU
	Compile                     time.Duration // see [dispatch.Plan.CompileTime]
}

// Describe plans the product and describes the plan. Of a batch on the host it describes the first
// product, and of groups the product of all rows.
func (k *Call) Describe() (Description, error) {
	err := k.check()
	switch {
	case k.team() != nil:
		return k.describeTeam(err)
	case err != nil:
		return Description{}, err
	case k.device() != nil:
		return k.describeResident()
	case k.grouped():
		whole, ends, err := k.planGroups()
		if err == nil && len(ends) == 0 {
			err = fmt.Errorf("%w: a plan of no groups", gemm.ErrShape)
		}
		return describeHost(whole, err)
	case k.batched():
		return k.describeBatch()
	}
	err = k.planProduct()
	return describeHost(&k.product.Product, err)
}

func describeHost(p *dispatch.Product, err error) (Description, error) {
	if err != nil {
		return Description{}, err
	}
	return Description{Problem: p.Problem, Device: p.Device().String(), Kernel: p.Kernel(), Detail: p.Detail(),
		Why: p.Why(), Threads: p.Threads(), Compile: p.CompileTime()}, nil
}

func (k *Call) describeBatch() (Description, error) {
	batch, err := k.planBatch()
	if err == nil && len(batch) == 0 {
		err = fmt.Errorf("%w: a plan of an empty batch", gemm.ErrShape)
	}
	if err != nil {
		return Description{}, err
	}
	d, err := describeHost(batch[0].Product, nil)
	if division := dispatch.Division(batch); division != "" {
		d.Detail += "; " + division
	}
	return d, err
}

func (k *Call) describeResident() (Description, error) {
	p, err := k.resident()
	if err != nil {
		return Description{}, err
	}
	found, division, err := resident.PlanOf(p)
	if err != nil {
		return Description{}, err
	}
	d := Description{Problem: *found.Problem(), Device: k.device().String(), Kernel: found.Kernel.Name,
		Detail: found.Config.String(), Why: found.Why, Compile: found.CompileTime()}
	if division != "" {
		d.Detail += "; " + division
	}
	return d, nil
}

func (k *Call) describeTeam(invalid error) (Description, error) {
	p, invalid := k.validOnTeam(invalid)
	d, err := k.team().PlanOf(context.Background(), p, invalid)
	if err != nil {
		return Description{}, err
	}
	return Description{Problem: p.Problem, Device: d.Device, Kernel: d.Kernel, Detail: d.Detail, Why: d.Why}, nil
}
