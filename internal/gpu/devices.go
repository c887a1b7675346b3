package gpu

import (
	"errors"
	"fmt"
	"sync"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
	"tilework/internal/sentinel"
)

// devices holds the open GPUs, real and emulated.
var devices struct {
	sync.Mutex
	open map[backend.DeviceName]*opened
	// substitute, if not nil, opens devices instead of openDevice.
	substitute func(backend.DeviceName) (device.Device, error)
}

// opened is an open device.
type opened struct {
	*stream.Backend
	name  backend.DeviceName // its key in devices.open
	users int
	// kept reports whether the device stays open without users. A device that a [Backend] has opened
	// does: its compiled kernels are worth keeping, and no call tells when the last plan is unused.
	kept bool
}

// Keep returns the open device d for the rest of the process. The error wraps ErrNoDevice.
func Keep(d backend.DeviceName) (*stream.Backend, error) {
	devices.Lock()
	defer devices.Unlock()
	o, err := use(d)
	if err != nil {
		return nil, err
	}
	o.kept = true
	return o.Backend, nil
}

// Open opens d, a GPU or an emulated one, until release is called. All users of a device share its
// backend. The error wraps ErrNoDevice.
func Open(d backend.DeviceName) (b *stream.Backend, release func() error, err error) {
	devices.Lock()
	defer devices.Unlock()
	o, err := use(d)
	if err != nil {
		return nil, nil, err
	}
	o.users++
	return o.Backend, sync.OnceValue(func() error {
		devices.Lock()
		defer devices.Unlock()
		if o.users--; o.users > 0 || o.kept {
			return nil
		}
		if devices.open[o.name] == o {
			delete(devices.open, o.name)
		}
		return o.close()
	}), nil
}

// EachMember calls f for the GPUs of a list in its order, or for d itself. The first error ends it.
// The GPUs of [backend.AllGPUs] end where f, which opens them, returns [device.ErrIndex] after the
// first.
func EachMember(d backend.DeviceName, f func(backend.DeviceName) error) error {
	switch d.List {
	case "":
		return f(d)
	case backend.AllGPUs:
		for i := 0; ; i++ {
			err := f(backend.DeviceName{Kind: d.Kind, Index: i})
			if errors.Is(err, device.ErrIndex) && i > 0 {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	for _, member := range d.Members() {
		if err := f(member); err != nil {
			return fmt.Errorf("device %v: %w", d, err)
		}
	}
	return nil
}

// IsOpen reports whether d is open.
func IsOpen(d backend.DeviceName) bool {
	devices.Lock()
	defer devices.Unlock()
	return devices.open[d] != nil
}

// use returns an open device, which it opens if necessary. The caller has locked devices.
func use(d backend.DeviceName) (*opened, error) {
	if d.List != "" {
		return nil, fmt.Errorf("%w: matrices in the memory of several GPUs, %v: want one GPU", gemm.ErrUnsupported, d)
	}
	if d.UUID != "" {
		index, err := cuda.Find(d.UUID)
		if err != nil {
			return nil, device.WithKind(sentinel.ErrNoDevice, err)
		}
		d = backend.DeviceName{Kind: d.Kind, Index: index} // so that each GPU is opened once
	}
	if o := devices.open[d]; o != nil {
		return o, nil
	}
	dev, err := open(d)
	if err != nil {
		return nil, err
	}
	if devices.open == nil {
		devices.open = map[backend.DeviceName]*opened{}
	}
	o := &opened{Backend: stream.New(dev), name: d}
	devices.open[d] = o
	return o, nil
}

func (o *opened) close() error {
	err := o.Backend.Close()
	return device.Join(err, o.Device.Close())
}

// Substitute makes open open all devices until restore is called. No device is open at first, and
// restore closes the devices that are open then. It is for tests.
func Substitute(open func(backend.DeviceName) (device.Device, error)) (restore func() error) {
	devices.Lock()
	defer devices.Unlock()
	before, substitute := devices.open, devices.substitute
	devices.open, devices.substitute = nil, open
	return func() error {
		devices.Lock()
		defer devices.Unlock()
		var errs []error
		for _, o := range devices.open {
			errs = append(errs, o.close())
		}
		devices.open, devices.substitute = before, substitute
		return device.Join(errs...)
	}
}

// open opens a device. The error wraps ErrNoDevice.
func open(d backend.DeviceName) (device.Device, error) {
	openWith := openDevice
	if devices.substitute != nil {
		openWith = devices.substitute
	}
	dev, err := openWith(d)
	if err != nil && !errors.Is(err, sentinel.ErrNoDevice) {
		err = fmt.Errorf("%w: %v: %w", sentinel.ErrNoDevice, d, err)
	}
	return dev, err
}

func openDevice(d backend.DeviceName) (device.Device, error) {
	if d.Kind == backend.GPU {
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
