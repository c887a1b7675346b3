package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"tilework/internal/device"
	"tilework/internal/device/cuda"
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

// GPUs lists the GPUs that the driver shows. The error is ErrNoDevice, with what was
// looked for.
func GPUs() ([]cuda.Info, error) { return cuda.List() }

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
	dev, err := openDevice(d)
	if err != nil {
		return nil, &noDevice{d, err}
	}
	return dev, nil
}

// noDevice is why a device cannot be used. It is gemm's ErrNoDevice, and whatever
// else it was.
type noDevice struct {
	device Device
	why    error
}

func (e *noDevice) Error() string {
	if errors.Is(e.why, device.ErrNoDevice) {
		return e.why.Error()
	}
	return fmt.Sprintf("%v: %v: %v", gemm.ErrNoDevice, e.device, e.why)
}

func (e *noDevice) Unwrap() []error { return []error{gemm.ErrNoDevice, e.why} }

func openDevice(d Device) (device.Device, error) {
	if d.Kind == "gpu" {
		return cuda.Open(d.Index)
	}
	var o emu.Options
	if d.Model != "" {
		m, err := model.Lookup(d.Model)
		if err != nil {
			return nil, err
		}
		o.Model = m
	}
	return emu.Open(o)
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
	return &Plan{Request: r, Device: r.Device, Kernel: p.Kernel.Name, Detail: p.Detail(), Why: p.Why, run: p.Run}, nil
}
