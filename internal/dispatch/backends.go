package dispatch

import (
	"slices"
	"strings"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gpu"
	"tilework/internal/multi"
)

// row is an entry of the list of backends: the devices of one kind.
type row struct {
	// automatic reports whether a product is computed on a device of this kind although its request
	// names none.
	automatic bool
	// backendOf returns the backend of a device. It does not open the device.
	backendOf func(backend.DeviceName) backend.Backend
	first     *target // the first device
}

// rows is the list of backends, in the order of the kinds of devices after Auto. The first one, the
// CPU, is the default for abilities that are not those of a kernel: packing and calling a function
// for each tile.
var rows = [...]row{
	newRow(backend.CPU, true, func(backend.DeviceName) backend.Backend { return cpu.Backend{} }),
	newRow(backend.GPU, true, onGPU),
	newRow(backend.Emulator, false, onGPU),
}

func newRow(kind backend.Kind, automatic bool, backendOf func(backend.DeviceName) backend.Backend) row {
	d := backend.DeviceName{Kind: kind}
	return row{automatic, backendOf, newTarget(backendOf(d), d)}
}

func onGPU(d backend.DeviceName) backend.Backend {
	if d.List != "" {
		return multi.Backend{Device: d}
	}
	return gpu.Backend{Device: d}
}

// target is a backend and the choices tuned for it.
type target struct {
	backend.Backend
	device  backend.DeviceName
	tunable backend.Tunable // the backend, or nil if its choices cannot be tuned
	tuned   tuned.Finder
}

func newTarget(b backend.Backend, d backend.DeviceName) *target {
	tunable, _ := b.(backend.Tunable)
	return &target{Backend: b, device: d, tunable: tunable}
}

// find returns the backend of a device, which must not be auto.
func find(d *backend.DeviceName) *target {
	r := &rows[d.Kind-1]
	if d.IsFirst() {
		return r.first
	}
	return newTarget(r.backendOf(*d), *d)
}

// automatic returns the first automatic backend with a kernel that fits. If there is none it
// returns the first backend, whose error then tells why.
func automatic(fits func(backend.Kernel) bool) *target {
	for i := range rows {
		if r := &rows[i]; r.automatic && slices.ContainsFunc(r.first.Kernels(), fits) {
			return r.first
		}
	}
	return rows[0].first
}

// Runners returns the kinds of devices that run the kernels of a kind: "gpu or emu".
func Runners(kind backend.Kind) string {
	var names []string
	for i := range rows {
		isOfKind := func(k backend.Kernel) bool { return k.Kind == kind }
		if slices.ContainsFunc(rows[i].first.Kernels(), isOfKind) {
			names = append(names, rows[i].first.String())
		}
	}
	return strings.Join(names, " or ")
}

// Kernels lists the kernels of a device, slowest first. For auto it lists those of all devices.
func Kernels(d backend.DeviceName) []backend.Kernel {
	if d.Kind != backend.Auto {
		return find(&d).Kernels()
	}
	var all []backend.Kernel
	for i := range rows {
		for _, k := range rows[i].first.Kernels() {
			if k.Kind == rows[i].first.device.Kind { // the emulator runs the kernels of GPUs
				all = append(all, k)
			}
		}
	}
	return all
}

// CheckDevice returns an error that wraps ErrNoDevice if d cannot be used.
func CheckDevice(d backend.DeviceName) error {
	if d.Kind == backend.Auto {
		return nil
	}
	return find(&d).Open()
}
