package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
)

// gpus are the GPUs, real or emulated, that are in use.
var gpus struct {
	sync.Mutex
	open map[backend.Device]*opened
	// with, if set, opens them instead of openDevice; see Substitute.
	with func(backend.Device) (device.Device, error)
}

// opened is a GPU in use.
type opened struct {
	*stream.Backend
	name  backend.Device // that it is open under
	users int
	// kept says that a plan asked for it: it then stays open, since what it has
	// compiled is worth keeping and nobody says when the last plan is done.
	kept bool
}

// GPUs lists the GPUs that the driver shows. The error is ErrNoDevice, with what was
// looked for.
func GPUs() ([]cuda.Info, error) { return cuda.List() }

// backend is the backend of d, which is no CPU, for the rest of the process. The
// error is ErrNoDevice.
func openKept(d backend.Device) (*stream.Backend, error) {
	gpus.Lock()
	defer gpus.Unlock()
	o, err := use(d)
	if err != nil {
		return nil, err
	}
	o.kept = true
	return o.Backend, nil
}

// OpenGPU is the backend of d, which is no CPU, until close is called; whoever uses the
// same device at the same time has the same backend. The error is ErrNoDevice.
func OpenGPU(d backend.Device) (b *stream.Backend, close func() error, err error) {
	gpus.Lock()
	defer gpus.Unlock()
	o, err := use(d)
	if err != nil {
		return nil, nil, err
	}
	o.users++
	return o.Backend, sync.OnceValue(func() error {
		gpus.Lock()
		defer gpus.Unlock()
		if o.users--; o.users > 0 || o.kept {
			return nil
		}
		if gpus.open[o.name] == o {
			delete(gpus.open, o.name)
		}
		return o.close()
	}), nil
}

// isOpen says that d is in use.
func isOpen(d backend.Device) bool {
	gpus.Lock()
	defer gpus.Unlock()
	return gpus.open[d] != nil
}

// use finds or opens a GPU; gpus is locked.
func use(d backend.Device) (*opened, error) {
	if d.UUID != "" { // the same GPU as that of some number
		index, err := cuda.Find(d.UUID)
		if err != nil {
			return nil, device.WithKind(gemm.ErrNoDevice, err)
		}
		d = backend.Device{Kind: d.Kind, Index: index}
	}
	if o := gpus.open[d]; o != nil {
		return o, nil
	}
	dev, err := open(d)
	if err != nil {
		return nil, err
	}
	if gpus.open == nil {
		gpus.open = map[backend.Device]*opened{}
	}
	o := &opened{Backend: stream.New(dev), name: d}
	gpus.open[d] = o
	return o, nil
}

func (o *opened) close() error {
	err := o.Backend.Close()
	return device.Join(err, o.Device.Close())
}

// Substitute has devices opened by a function of a test's, from an empty start, until
// restore is called, which closes those that plans have kept.
func Substitute(open func(backend.Device) (device.Device, error)) (restore func() error) {
	gpus.Lock()
	defer gpus.Unlock()
	before, with := gpus.open, gpus.with
	gpus.open, gpus.with = nil, open
	return func() error {
		gpus.Lock()
		defer gpus.Unlock()
		var errs []error
		for _, o := range gpus.open {
			errs = append(errs, o.close())
		}
		gpus.open, gpus.with = before, with
		return device.Join(errs...)
	}
}

func open(d backend.Device) (device.Device, error) {
	how := openDevice
	if gpus.with != nil {
		how = gpus.with
	}
	dev, err := how(d)
	switch {
	case err == nil:
		return dev, nil
	case errors.Is(err, device.ErrNoDevice):
		return nil, device.WithKind(gemm.ErrNoDevice, err)
	}
	return nil, fmt.Errorf("%w: %v: %w", gemm.ErrNoDevice, d, err)
}

func openDevice(d backend.Device) (device.Device, error) {
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

// onGPU plans the product on a GPU, real or emulated.
func (pl *Plan) onGPU(d backend.Device) error {
	b, err := openKept(d)
	if err != nil {
		return err
	}
	problem := pl.Problem
	p, err := PlanGPU(b.Backend, &problem, GPUOptions(pl.Request.Kernel))
	if err != nil {
		return err
	}
	pl.Device, pl.Kernel, pl.gpu = d, p.Kernel.Name, b.PlanOf(p, &problem, false)
	return nil
}

// Reasoning lists the ways to compute the product that its GPU's kernels have, and why
// each was chosen or put aside, in a line or so each; empty on the processor, and where
// the kernel was named or tuned.
func (pl *Plan) Reasoning() string {
	if pl.gpu == nil {
		return ""
	}
	all := pl.gpu.Considered()
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("of %d ways to compute it on %v\n%s", len(all), pl.Device, choose.Reasoning(all))
}

// GPUOptions are what a kernel's name asks of a plan on a GPU. It may end with the
// shape of its tiles: "tiled:16".
func GPUOptions(kernel string) exec.Options {
	name, shape, _ := strings.Cut(kernel, ":")
	return exec.Options{Kernel: name, Shape: shape}
}

// Check reports whether the device is there to be used. The error is ErrNoDevice.
func CheckDevice(d backend.Device) error {
	if d.OnCPU() {
		return nil
	}
	_, err := openKept(d)
	return err
}
