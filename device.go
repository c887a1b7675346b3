package tilework

import (
	"fmt"
	"runtime"

	"tilework/internal/dispatch"
	"tilework/internal/host"
)

// DeviceInfo describes a device that [WithDevice] can name.
type DeviceInfo struct {
	Name     string   // "cpu", "gpu:0", "emu"
	Title    string   // what it is: the processor's or the card's name
	Cores    int      // goroutines that compute at once, or the card's SMs
	Memory   string   // what there is of it, in words; empty if the system does not say
	Details  string   // of a card: architecture, clock, link, driver
	Features []string // the kernels that it can run
}

// Devices lists the devices of this machine: the processor, the GPUs that the driver
// shows, and the emulated GPU. The error, which wraps ErrNoDevice, says what was
// looked for when no GPU was found; the other devices are listed all the same.
func Devices() ([]DeviceInfo, error) {
	processor := DeviceInfo{Name: "cpu", Title: host.Processor(), Cores: runtime.GOMAXPROCS(0)}
	if free, ok := host.Available(); ok {
		processor.Memory = host.Bytes(free) + " free"
	}
	emulated := DeviceInfo{Name: "emu", Title: "emulated GPU: runs the GPU kernels' PTX, slowly", Cores: processor.Cores}
	for _, k := range Kernels() {
		switch {
		case k.Device == "cpu" && k.Available:
			processor.Features = append(processor.Features, k.Name)
		case k.Device == "gpu":
			emulated.Features = append(emulated.Features, k.Name)
		}
	}
	all := []DeviceInfo{processor}
	cards, err := dispatch.GPUs()
	for _, c := range cards {
		details := fmt.Sprintf("%v, %d MHz, %s", c.Target, c.Clock, c.Driver)
		if c.Link != "" {
			details += ", " + c.Link
		}
		all = append(all, DeviceInfo{
			Name: fmt.Sprintf("gpu:%d", c.Index), Title: c.Name, Cores: c.SMs, Memory: host.Bytes(uint64(c.Memory)),
			Details: details, Features: emulated.Features,
		})
	}
	return append(all, emulated), err
}
