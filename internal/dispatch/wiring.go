package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tilework/internal/cache"
	"tilework/internal/device/cuda"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
)

// shared is the process's one chooser.
var shared struct {
	once sync.Once
	*chooser
}

func theChooser() *chooser {
	shared.once.Do(func() {
		gpu := Device{Kind: "gpu"}
		shared.chooser = newChooser(Machine{
			GPU: gpu, Present: cuda.Present, Trial: tryOn,
			Identify: func() (Identity, error) {
				list, err := cuda.List()
				if err != nil {
					return Identity{}, err
				}
				first := list[0]
				return Identity{Key: fmt.Sprint(first.UUID, first.Name, first.PCI, first.Driver), Memory: first.Memory}, nil
			},
			Open: func() error {
				_, err := backend(gpu)
				return err
			},
			IsOpen: func() bool { return isOpen(gpu) },
		}, cache.Default())
	})
	return shared.chooser
}

// asChosen plans the product on the device that was chosen unasked: where a GPU cannot
// compute it after all, the processor does.
func (pl *Plan) asChosen() error {
	if c := &pl.choice; c.device.IsGPU() {
		if c.refused = pl.onGPU(c.device); c.refused == nil {
			return nil
		}
	}
	return pl.onCPU()
}

// byKernel plans the product on the device that has the kernel that was asked for.
func (pl *Plan) byKernel() error {
	if _, err := gpu.Find(GPUOptions(pl.Request.Kernel).Kernel); err != nil {
		return pl.onCPU()
	}
	if err := pl.onGPU(Device{Kind: "gpu"}); err != nil {
		return fmt.Errorf("kernel %s runs on GPUs, real or emulated (device emu): %w", pl.Request.Kernel, err)
	}
	return nil
}

// tryOn computes products of zeros on a device, as anybody's products are computed: from
// memory that was touched before into memory that was.
func tryOn(d Device, types Types, threads int) Trial {
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
			b = gemm.Buffers{A: touched(p.A), B: touched(p.B), C: touched(p.C)}
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
