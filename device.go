package tilework

import (
	"runtime"

	"tilework/internal/host"
)

// DeviceInfo describes a device that [WithDevice] can name.
type DeviceInfo struct {
	Name     string   // "cpu"
	Title    string   // what it is: the processor's or the card's name
	Cores    int      // how many goroutines compute at once
	Memory   string   // what is free of it, in words; empty if the system does not say
	Features []string // the kernels that it can run
}

// Devices lists the devices of this machine.
func Devices() []DeviceInfo {
	d := DeviceInfo{Name: "cpu", Title: host.Processor(), Cores: runtime.GOMAXPROCS(0)}
	if free, ok := host.Available(); ok {
		d.Memory = host.Bytes(free) + " free"
	}
	emu := DeviceInfo{Name: "emu", Title: "emulated GPU: runs the GPU kernels' PTX, slowly", Cores: d.Cores}
	for _, k := range Kernels() {
		switch {
		case k.Device == "cpu" && k.Available:
			d.Features = append(d.Features, k.Name)
		case k.Device == "gpu":
			emu.Features = append(emu.Features, k.Name)
		}
	}
	return []DeviceInfo{d, emu}
}
