package machine_test

import (
	"fmt"

	"tilework/machine"
)

func ExampleKernels() {
	for _, k := range machine.Kernels() {
		if k.Name == "loop" {
			fmt.Println(k.Device, k.Available, k.Types[0])
		}
	}
	// Output: cpu true float64
}

func ExampleDevices() {
	devices, _ := machine.Devices() // the error only reports that there is no GPU
	fmt.Println(devices[0].Name, devices[len(devices)-1].Name)
	// Output: cpu emu
}
