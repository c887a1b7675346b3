package tilework

import (
	"fmt"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// Plan says what a product would run on, and why.
type Plan struct {
	M, N, K int
	In, Out string // the element types of A and B, and of C
	Device  string // "cpu"
	Kernel  string // a name of [Kernels]
	Threads int    // at most so many goroutines; 0 on a GPU
	Detail  string // the kernel's parameters for this shape, in words
	Why     string // what decided
	// Compile is how long the kernel took to compile, once in this process; 0 before
	// its first use, and on the processor.
	Compile time.Duration
}

// String is the plan in one line.
func (p Plan) String() string {
	s := fmt.Sprintf("%d×%d·%d×%d %s → %s on %s, kernel %s", p.M, p.K, p.K, p.N, p.In, p.Out, p.Device, p.Kernel)
	if p.Threads > 0 {
		s += fmt.Sprintf(", %d threads", p.Threads)
	}
	s = fmt.Sprintf("%s: %s (%s)", s, p.Detail, p.Why)
	if p.Compile > 0 {
		s += fmt.Sprintf(", compiled in %v", p.Compile.Round(time.Microsecond))
	}
	return s
}

// planFor is what a plan says of the product itself.
func planFor(p *gemm.Problem) Plan {
	return Plan{M: p.M, N: p.N, K: p.K, In: p.In().String(), Out: p.Out().String()}
}

// PlanGemm is what [Gemm] would run for these matrices and options. No element is
// read; where the device is left to the plan it may have to be measured, on others.
func PlanGemm[I, O Element](a, b Matrix[I], c Matrix[O], opts ...Option) (Plan, error) {
	var p dispatch.Product
	var cfg config
	cfg.configure(&p.Request, opts)
	var by factor
	b.asFactor(&by)
	if err := plan(&p, &cfg, 1, &a, &by, 0, &c); err != nil {
		return Plan{}, err
	}
	pl := planFor(&p.Problem)
	pl.Device, pl.Kernel, pl.Threads, pl.Compile = p.Device.String(), p.Kernel, p.Threads, p.CompileTime()
	pl.Detail, pl.Why = p.Detail(), p.Why()
	return pl, nil
}

// KernelInfo describes a kernel that [WithKernel] can name.
type KernelInfo struct {
	Name      string
	Device    string   // what it runs on: "cpu", or "gpu" for a GPU and the emulator
	Adds      string   // what it adds to the one before it in the list
	Needs     string   // instruction sets beyond the platform's own
	Available bool     // whether this machine can run it
	Types     []string // the element types of A and B
	Sums      []KernelSums
}

// KernelSums describes how a kernel sums products of some element types in a precision: in which
// type or how many bits, and how sums are rounded.
type KernelSums struct {
	Types     []string
	Precision string
	How       string
}

// Kernels lists the kernels, for each device the slowest first.
func Kernels() []KernelInfo {
	var all []KernelInfo
	for _, k := range dispatch.Kernels(backend.Device{}) {
		var sums []KernelSums
		for _, s := range k.Sums() {
			sums = append(sums, KernelSums{typeNames(s.Types), s.Precision.String(), s.How})
		}
		all = append(all, KernelInfo{
			Name: k.Name, Device: k.Kind, Adds: k.Adds, Needs: k.Needs,
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
