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
	"tilework/internal/gpu"
)

// shared is the chooser of the process. defaultChooser creates it.
var shared struct {
	sync.Once
	chooser *auto.Chooser
}

func defaultChooser() *auto.Chooser {
	shared.Do(func() { shared.chooser = newChooser() })
	return shared.chooser
}

// newChooser returns a chooser between the CPU and the first GPU.
func newChooser() *auto.Chooser {
	first := backend.DeviceName{Kind: backend.GPU}
	return auto.NewChooser(auto.Machine{
		GPU: first, Present: cuda.CheckDriver, Trial: newTrial,
		Identify: func() (auto.Identity, error) {
			list, err := cuda.List()
			if err != nil {
				return auto.Identity{}, err
			}
			info := list[0]
			key := fmt.Sprint(info.UUID, info.Name, info.PCI, info.Driver)
			return auto.Identity{Key: key, Memory: info.Memory}, nil
		},
		Open:   func() error { return CheckDevice(first) },
		IsOpen: func() bool { return gpu.IsOpen(first) },
	}, cache.Default())
}

// newTrial returns a function that times products of zero matrices on a device as callers see them:
// with initialized host memory for operands and result.
func newTrial(d backend.DeviceName, types auto.Types, threads int) auto.Trial {
	var pl *Plan
	var b gemm.Buffers
	return func(ctx context.Context, n int) (time.Duration, error) {
		if pl == nil || pl.Problem.N != n {
			in := gemm.Dense(types.In, n, n)
			p, _, err := gemm.New(1, in, in, 0, gemm.Dense(types.Out, n, n), gemm.Epilogue{})
			if err != nil {
				return 0, err
			}
			if pl, err = New(ctx, Request{Problem: p, Device: d, Threads: threads, Timed: true}); err != nil {
				return 0, err
			}
			for o := range gemm.C + 1 {
				b[o] = newMemory(p.Layouts[o])
			}
		}
		err := pl.Run(ctx, &b)
		return pl.Took(), err
	}
}

// newMemory returns zeroed memory for a matrix, whose pages the operating system has assigned.
func newMemory(l gemm.Layout) []byte {
	b := make([]byte, l.Bytes())
	const page = 4096
	for i := 0; i < len(b); i += page {
		b[i] = 0
	}
	return b
}
