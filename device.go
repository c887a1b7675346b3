package tilework

import (
	"runtime"

	"tilework/internal/cpu"
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
	for _, k := range cpu.Kernels() {
		if k.Available() {
			d.Features = append(d.Features, k.Name)
		}
	}
	return []DeviceInfo{d}
}
