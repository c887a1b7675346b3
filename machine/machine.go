// Package machine lists the devices of this machine and the kernels that they can run: the names
// for the options WithDevice and WithKernel of package tilework.
package machine

import (
	"fmt"
	"runtime"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch"
	"tilework/internal/host"
)

// Device describes a device. Unknown values are empty or 0.
type Device struct {
	Name        string         `json:"name"`         // "cpu", "gpu:0", "emu"
	Title       string         `json:"title"`        // the name of the CPU's or GPU's model
	Arch        string         `json:"arch"`         // of a GPU its SM, "sm_90a"; of the CPU "amd64"
	Cores       int            `json:"cores"`        // goroutines that compute at once, or the GPU's SMs
	Memory      int64          `json:"memory_bytes"` // total
	Clock       int            `json:"clock_mhz"`    // maximum of a GPU's SMs
	MemoryClock int            `json:"memory_clock_mhz"`
	Link        string         `json:"link"`   // between a GPU and the host: "32.0 GT/s PCIe x16"
	Driver      string         `json:"driver"` // latest CUDA version of the driver: "CUDA 13.0"
	UUID        string         `json:"uuid"`   // of a GPU, which WithDevice takes too
	Kernels     []DeviceKernel `json:"kernels"`
}

// DeviceKernel is a kernel that a device can run, with the element types of A and B.
type DeviceKernel struct {
	Name  string   `json:"name"`
	Types []string `json:"types"`
}

// Devices returns the devices of this machine: the CPU, the GPUs of the driver, and the emulated
// GPU. If there is no GPU the error states where it was looked for and wraps tilework.ErrNoDevice;
// the other devices are returned all the same.
func Devices() ([]Device, error) {
	all := []Device{{
		Name: "cpu", Title: host.CPUName(), Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), Memory: host.PhysicalMemory(),
		Kernels: deviceKernels(func(k backend.Kernel) bool { return k.Kind == backend.CPU && k.Available }),
	}}
	gpus, err := cuda.List()
	for _, g := range gpus {
		all = append(all, Device{
			Name: fmt.Sprintf("gpu:%d", g.Index), Title: g.Name, Arch: g.Target.String(), Cores: g.SMs, Memory: g.Memory,
			Clock: g.Clock, MemoryClock: g.MemoryClock, Link: g.Link, Driver: g.Driver, UUID: g.UUID,
			Kernels: deviceKernels(func(k backend.Kernel) bool { return k.Kind == backend.GPU && k.SM <= g.Target.SM }),
		})
	}
	return append(all, Device{
		Name: "emu", Title: "emulated GPU: runs the GPU kernels' PTX, slowly", Cores: runtime.GOMAXPROCS(0),
		Kernels: deviceKernels(func(k backend.Kernel) bool { return k.Kind == backend.GPU }),
	}), err
}

func deviceKernels(runs func(backend.Kernel) bool) []DeviceKernel {
	var list []DeviceKernel
	for _, k := range dispatch.Kernels(backend.Device{}) {
		if runs(k) {
			list = append(list, DeviceKernel{k.Name, typeNames(k.Types)})
		}
	}
	return list
}

// Kernel describes a kernel.
type Kernel struct {
	Name      string   `json:"name"`
	Device    string   `json:"device"`    // "cpu", or "gpu" for GPUs and the emulator
	Adds      string   `json:"adds"`      // the technique that it adds to the one before it in the list
	Needs     string   `json:"needs"`     // instruction sets beyond those of every machine of the platform
	Available bool     `json:"available"` // whether this machine, or its emulator, can run it
	Types     []string `json:"types"`     // element types of A and B
	Sums      []Sums   `json:"sums"`
}

// Sums describes how a kernel sums products of some element types in a precision: in which type or
// number of bits, and how sums are rounded.
type Sums struct {
	Types     []string `json:"types"`
	Precision string   `json:"precision"`
	How       string   `json:"how"`
}

// Kernels returns the kernels, for each device the slowest first.
func Kernels() []Kernel {
	var all []Kernel
	for _, k := range dispatch.Kernels(backend.Device{}) {
		var sums []Sums
		for _, s := range k.Sums() {
			sums = append(sums, Sums{typeNames(s.Types), s.Precision.String(), s.How})
		}
		all = append(all, Kernel{
			Name: k.Name, Device: k.Kind.String(), Adds: k.Adds, Needs: k.Needs,
			Available: k.Available, Types: typeNames(k.Types), Sums: sums,
		})
	}
	return all
}

func typeNames(types []dtype.Type) []string {
	var names []string
	for _, t := range types {
		names = append(names, t.String())
	}
	return names
}
