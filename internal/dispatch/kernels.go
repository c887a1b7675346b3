package dispatch

import (
	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
)

// Kernel describes a kernel of any backend.
type Kernel struct {
	Name      string
	Kind      string // of the devices that it runs on: "cpu", or "gpu" for the emulator too
	Adds      string
	Needs     string // instruction sets, or the least GPU …
	SM        int    // … whose architecture that is: 75 is sm_75
	Available bool   // whether this machine, or its emulator, can run it
	Types     []dtype.Type
	// Precisions are those besides the types' own in which it multiplies some type.
	Precisions []gemm.Precision
	Tiles      []int // sizes at which its blocks begin anew
	// Supports is nil for a product of those types that it computes; a nil function says that for
	// all.
	Supports func(p *gemm.Problem) error
	// Accuracy is how it computes a product.
	Accuracy func(p *gemm.Problem) gemm.Accuracy
}

// Kernels lists the kernels of a device, slowest first; of all devices, if its kind
// is empty.
func Kernels(d backend.Device) []Kernel {
	var all []Kernel
	if d.Kind == "" || d.OnCPU() {
		for _, k := range cpu.Kernels() {
			all = append(all, Kernel{
				Name: k.Name, Kind: "cpu", Adds: k.Adds, Needs: k.ISA,
				Available: k.Available(), Types: k.Types(), Tiles: k.Tiles(), Accuracy: k.Accuracy,
			})
		}
	}
	if d.Kind == "" || !d.OnCPU() {
		for _, k := range choose.Kernels() {
			row := Kernel{
				Name: k.Name, Kind: "gpu", Adds: k.Adds, Needs: k.Target().String(), SM: k.SM,
				Available: true, Types: k.Types(), Precisions: k.Precisions(), Accuracy: k.Accuracy,
				Supports: func(p *gemm.Problem) error { return k.Check(p, kernel.Tile{}, kernel.Align{}, nil) },
			}
			for _, s := range k.Tiles {
				row.Tiles = append(row.Tiles, s.M, s.N)
			}
			all = append(all, row)
		}
	}
	return all
}
