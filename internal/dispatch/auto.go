package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch/auto"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
)

// shared is the chooser of this process; see theChooser.
var shared struct {
	once    sync.Once
	chooser *auto.Chooser
}

func theChooser() *auto.Chooser {
	shared.once.Do(func() { shared.chooser = newChooser() })
	return shared.chooser
}

// newChooser returns a chooser between the CPU and the first GPU.
func newChooser() *auto.Chooser {
	gpu := backend.Device{Kind: "gpu"}
	return auto.NewChooser(auto.Machine{
		GPU: gpu, Present: cuda.CheckDriver, Trial: tryOn,
		Identify: func() (auto.Identity, error) {
			list, err := cuda.List()
			if err != nil {
				return auto.Identity{}, err
			}
			first := list[0]
			return auto.Identity{Key: fmt.Sprint(first.UUID, first.Name, first.PCI, first.Driver), Memory: first.Memory}, nil
		},
		Open: func() error {
			_, err := openKept(gpu)
			return err
		},
		IsOpen: func() bool { return isOpen(gpu) },
	}, cache.Default())
}

// asChosen plans the product on the device that was chosen unasked: where a GPU cannot
// compute it after all, the processor does.
func (pl *Plan) asChosen() error {
	if c := &pl.choice; c.Device.IsGPU() {
		if c.Refused = pl.onGPU(c.Device); c.Refused == nil {
			return nil
		}
	}
	return pl.onCPU()
}

// byKernel plans the product on the device that has the kernel that was asked for.
func (pl *Plan) byKernel() error {
	if _, err := choose.Find(GPUOptions(pl.Request.Kernel).Kernel); err != nil {
		return pl.onCPU()
	}
	if err := pl.onGPU(backend.Device{Kind: "gpu"}); err != nil {
		return fmt.Errorf("kernel %s runs on GPUs, real or emulated (device emu): %w", pl.Request.Kernel, err)
	}
	return nil
}

// tryOn computes products of zeros on a device, as anybody's products are computed: from
// memory that was touched before into memory that was.
func tryOn(d backend.Device, types auto.Types, threads int) auto.Trial {
	var pl *Plan
	var b gemm.Buffers
	return func(n int) (time.Duration, error) {
		if pl == nil || pl.Problem.N != n {
			p, _, err := gemm.New(1, gemm.Dense(types.In, n, n), gemm.Dense(types.In, n, n), 0, gemm.Dense(types.Out, n, n), gemm.Epilogue{})
			if err != nil {
				return 0, err
			}
			if pl, err = New(Request{Problem: p, Device: d, Threads: threads, Timed: true}); err != nil {
				return 0, err
			}
			b = gemm.Buffers{gemm.A: touched(p.Layouts[gemm.A]), gemm.B: touched(p.Layouts[gemm.B]), gemm.C: touched(p.Layouts[gemm.C])}
		}
		err := pl.Run(context.Background(), b)
		return pl.Took(), err
	}
}

// touched is memory for a matrix that the system has given a place.
func touched(l gemm.Layout) []byte {
	b := make([]byte, l.Bytes())
	const page = 4096
	for i := 0; i < len(b); i += page {
		b[i] = 0
	}
	return b
}
