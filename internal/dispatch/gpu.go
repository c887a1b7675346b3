package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/model"
)

// gpus are the backends of the GPUs, real or emulated, that plans have asked for.
// They stay open: what they have compiled is worth keeping.
var gpus struct {
	sync.Mutex
	open map[Device]*gpu.Backend
}

// backend is the backend of d, which is no CPU. The error is ErrNoDevice.
func backend(d Device) (*gpu.Backend, error) {
	gpus.Lock()
	defer gpus.Unlock()
	if b := gpus.open[d]; b != nil {
		return b, nil
	}
	dev, err := open(d)
	if err != nil {
		return nil, err
	}
	if gpus.open == nil {
		gpus.open = map[Device]*gpu.Backend{}
	}
	b := gpu.New(dev)
	gpus.open[d] = b
	return b, nil
}

func open(d Device) (device.Device, error) {
	if d.Kind != "emu" {
		return nil, fmt.Errorf("%w: %v: this version of tilework comes without the CUDA driver binding (use cpu or emu)", gemm.ErrNoDevice, d)
	}
	var o emu.Options
	if d.Model != "" {
		m, err := model.Lookup(d.Model)
		if err != nil {
			return nil, fmt.Errorf("%w: %v: %w", gemm.ErrNoDevice, d, err)
		}
		o.Model = m
	}
	dev, err := emu.Open(o)
	if errors.Is(err, device.ErrNoDevice) {
		return nil, fmt.Errorf("%w: %v: %w", gemm.ErrNoDevice, d, err)
	}
	return dev, err
}

// newGPU plans a product on a GPU. A kernel may be named with the shape of its
// tiles: "tiled:16".
func newGPU(r Request) (*Plan, error) {
	b, err := backend(r.Device)
	if err != nil {
		return nil, err
	}
	name, shape, _ := strings.Cut(r.Kernel, ":")
	p, err := b.Plan(r.Problem, gpu.Options{Kernel: name, Shape: shape})
	if err != nil {
		return nil, err
	}
	return &Plan{Request: r, Device: r.Device, Kernel: p.Kernel.Name, Detail: p.Config.String(), Why: p.Why, run: p.Run}, nil
}
