package tilework

import (
	"fmt"
	"runtime"

	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/host"
)

// DeviceInfo describes a device that [WithDevice] can name. What nobody tells is empty
// or 0.
type DeviceInfo struct {
	Name        string         `json:"name"`         // "cpu", "gpu:0", "emu"
	Title       string         `json:"title"`        // what it is: the processor's or the card's name
	Arch        string         `json:"arch"`         // of a card its SM, "sm_90a"; of the processor "amd64"
	Cores       int            `json:"cores"`        // goroutines that compute at once, or the card's SMs
	Memory      int64          `json:"memory_bytes"` // all that there is
	Clock       int            `json:"clock_mhz"`    // of a card's SMs, the highest
	MemoryClock int            `json:"memory_clock_mhz"`
	Link        string         `json:"link"`   // between a card and the host: "32.0 GT/s PCIe x16"
	Driver      string         `json:"driver"` // "CUDA 13.0": the latest that it is for
	UUID        string         `json:"uuid"`   // of a card, which [WithDevice] takes too
	Kernels     []DeviceKernel `json:"kernels"`
}

// DeviceKernel is a kernel that a device can run, and the element types of A and B.
type DeviceKernel struct {
	Name  string   `json:"name"`
	Types []string `json:"types"`
}

// Devices lists the devices of this machine: the processor, the GPUs that the driver
// shows, and the emulated GPU. The error, which wraps ErrNoDevice, says what was
// looked for when no GPU was found; the other devices are listed all the same.
func Devices() ([]DeviceInfo, error) {
	all := []DeviceInfo{{
		Name: "cpu", Title: host.CPUName(), Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), Memory: host.PhysicalMemory(),
		Kernels: deviceKernels(func(k dispatch.Kernel) bool { return k.Kind == "cpu" && k.Available }),
	}}
	cards, err := dispatch.GPUs()
	for _, c := range cards {
		all = append(all, DeviceInfo{
			Name: fmt.Sprintf("gpu:%d", c.Index), Title: c.Name, Arch: c.Target.String(), Cores: c.SMs, Memory: c.Memory,
			Clock: c.Clock, MemoryClock: c.MemoryClock, Link: c.Link, Driver: c.Driver, UUID: c.UUID,
			Kernels: deviceKernels(func(k dispatch.Kernel) bool { return k.Kind == "gpu" && k.SM <= c.Target.SM }),
		})
	}
	return append(all, DeviceInfo{
		Name: "emu", Title: "emulated GPU: runs the GPU kernels' PTX, slowly", Cores: runtime.GOMAXPROCS(0),
		Kernels: deviceKernels(func(k dispatch.Kernel) bool { return k.Kind == "gpu" }),
	}), err
}

func deviceKernels(runs func(dispatch.Kernel) bool) []DeviceKernel {
	var list []DeviceKernel
	for _, k := range dispatch.Kernels(backend.Device{}) {
		if runs(k) {
			list = append(list, DeviceKernel{k.Name, typeNames(k.Types)})
		}
	}
	return list
}
