package dispatch

import (
	"fmt"
	"slices"
	"strings"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/multi"
)

// Row is an entry of the list of backends: the devices of one kind.
type Row struct {
	Kind backend.Kind
	// Automatic reports whether a product is computed on a device of this kind although its request
	// names none.
	Automatic bool
	// New returns the backend of a device. It does not open the device.
	New func(backend.Device) backend.Backend
}

// rows is the list of backends. The first one, the CPU, is the default for abilities that are not
// those of a kernel: packing and calling a function for each tile.
var rows = newRows([]Row{
	{backend.CPU, true, func(backend.Device) backend.Backend { return cpu.Backend{} }},
	{backend.GPU, true, newGPU},
	{backend.Emulator, false, newGPU},
})

func newGPU(d backend.Device) backend.Backend {
	if d.List != "" {
		return multi.Backend{Device: d}
	}
	return gpu.Backend{Device: d}
}

// row is a Row with the backend of its first device.
type row struct {
	Row
	first *target
}

// target is a backend and the choices tuned for it.
type target struct {
	backend.Backend
	device  backend.Device
	tunable backend.Tunable // the backend, or nil if its choices cannot be tuned
	tuned   tuned.Finder
}

func newRows(list []Row) []row {
	all := make([]row, len(list))
	for i, r := range list {
		all[i] = row{Row: r}
		all[i].first = newTarget(&r, backend.Device{Kind: r.Kind})
	}
	return all
}

func newTarget(r *Row, d backend.Device) *target {
	t := &target{Backend: r.New(d), device: d}
	t.tunable, _ = t.Backend.(backend.Tunable)
	return t
}

// Register adds a backend to the list and returns a function that removes it again. It is for
// tests. Nothing may be planned at the same time.
func Register(r Row) (remove func()) {
	before := rows
	rows = append(slices.Clip(rows), newRows([]Row{r})...)
	return func() { rows = before }
}

// find returns the backend of a device, which must not be auto.
func find(d *backend.Device) (*target, error) {
	for i := range rows {
		switch r := &rows[i]; {
		case r.Kind != d.Kind:
		case d.IsFirst():
			return r.first, nil
		default:
			return newTarget(&r.Row, *d), nil
		}
	}
	return nil, fmt.Errorf("%w: no backend for device %v", gemm.ErrUnsupported, d)
}

// automatic returns the first automatic backend with a kernel that fits. If there is none it
// returns the first backend, whose error then tells why.
func automatic(fits func(backend.Kernel) bool) *target {
	for i := range rows {
		if r := &rows[i]; r.Automatic && slices.ContainsFunc(r.first.Kernels(), fits) {
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
			names = append(names, rows[i].Kind.String())
		}
	}
	return strings.Join(names, " or ")
}

// Kernels lists the kernels of a device, slowest first. For auto it lists those of all devices.
func Kernels(d backend.Device) []backend.Kernel {
	if d.Kind != backend.Auto {
		t, err := find(&d)
		if err != nil {
			return nil
		}
		return t.Kernels()
	}
	var all []backend.Kernel
	for i := range rows {
		for _, k := range rows[i].first.Kernels() {
			if k.Kind == rows[i].Kind { // the emulator runs the kernels of GPUs
				all = append(all, k)
			}
		}
	}
	return all
}

// CheckDevice returns an error that wraps ErrNoDevice if d cannot be used.
func CheckDevice(d backend.Device) error {
	if d.Kind == backend.Auto {
		return nil
	}
	t, err := find(&d)
	if err != nil {
		return err
	}
	return t.Open()
}
