package main

import (
	"fmt"
	"runtime"

	"tilework/internal/backend"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch"
	"tilework/internal/host"
)

// deviceInfo describes a device. Unknown values are empty or 0.
type deviceInfo struct {
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
	Kernels     []deviceKernel `json:"kernels"`
}

// deviceKernel is a kernel that a device can run, with the element types of A and B.
type deviceKernel struct {
	Name  string   `json:"name"`
	Types []string `json:"types"`
}

// listDevices returns the devices of this machine: the CPU, the GPUs of the driver, and the
// emulated GPU. If there is no GPU the error states where it was looked for and wraps
// sentinel.ErrNoDevice; the other devices are returned all the same.
func listDevices() ([]deviceInfo, error) {
	all := []deviceInfo{{
		Name: "cpu", Title: host.CPUName(), Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), Memory: host.PhysicalMemory(),
		Kernels: deviceKernels(func(k backend.Kernel) bool { return k.Kind == backend.CPU && k.Available }),
	}}
	gpus, err := cuda.List()
	for _, g := range gpus {
		all = append(all, deviceInfo{
			Name: fmt.Sprintf("gpu:%d", g.Index), Title: g.Name, Arch: g.Target.String(), Cores: g.SMs, Memory: g.Memory,
			Clock: g.Clock, MemoryClock: g.MemoryClock, Link: g.Link, Driver: g.Driver, UUID: g.UUID,
			Kernels: deviceKernels(func(k backend.Kernel) bool { return k.Kind == backend.GPU && k.SM <= g.Target.SM }),
		})
	}
	return append(all, deviceInfo{
		Name: "emu", Title: "emulated GPU: runs the GPU kernels' PTX, slowly", Cores: runtime.GOMAXPROCS(0),
		Kernels: deviceKernels(func(k backend.Kernel) bool { return k.Kind == backend.GPU }),
	}), err
}

func deviceKernels(runs func(backend.Kernel) bool) []deviceKernel {
	var list []deviceKernel
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		if runs(k) {
			list = append(list, deviceKernel{k.Name, texts(k.Types)})
		}
	}
	return list
}

// kernelInfo describes a kernel.
type kernelInfo struct {
	Name      string     `json:"name"`
	Device    string     `json:"device"`    // "cpu", or "gpu" for GPUs and the emulator
	Adds      string     `json:"adds"`      // the technique that it adds to the one before it in the list
	Needs     string     `json:"needs"`     // instruction sets beyond those of every machine of the platform
	Available bool       `json:"available"` // whether this machine, or its emulator, can run it
	Types     []string   `json:"types"`     // element types of A and B
	Sums      []sumsInfo `json:"sums"`
}

// sumsInfo describes how a kernel sums products of some element types in a precision: in which type
// or number of bits, and how sums are rounded.
type sumsInfo struct {
	Types     []string `json:"types"`
	Precision string   `json:"precision"`
	How       string   `json:"how"`
}

// listKernels returns the kernels, for each device the slowest first.
func listKernels() []kernelInfo {
	var all []kernelInfo
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		var sums []sumsInfo
		for _, s := range k.Sums() {
			sums = append(sums, sumsInfo{texts(s.Types), s.Precision.String(), s.How})
		}
		all = append(all, kernelInfo{
			Name: k.Name, Device: k.Kind.String(), Adds: k.Adds, Needs: k.Needs,
			Available: k.Available, Types: texts(k.Types), Sums: sums,
		})
	}
	return all
}
