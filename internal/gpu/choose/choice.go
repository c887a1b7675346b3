// Package choose lists the GPU kernels and chooses one of them, with its tile and its split
// of K, for a product on a device.
package choose

import (
	"cmp"
	"fmt"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// Choice is a kernel and its configuration for a product.
type Choice struct {
	Kernel *kernel.Kernel
	Config kernel.Config
	Why    string // in words
}

// Best chooses among all kernels for p, whose matrices are aligned to a, on a device. The error is
// ErrUnsupported.
func Best(p *gemm.Problem, a kernel.Align, d *device.Info) (Choice, error) {
	var first, last error // of the kernels that multiply such elements, and of all
	for _, r := range slices.Backward(rows) {
		var c Choice
		if last = r.Unsuited(p, a, d); last == nil {
			c, last = r.choose(p, d, "the fastest kernel for this product that "+d.Name+" can run")
		}
		if last == nil {
			return c, nil
		}
		if first == nil && r.Supports(p) == nil {
			first = last
		}
	}
	return Choice{}, cmp.Or(first, last)
}

// Named chooses the configuration of the kernel of that name, with the tile that is given unless
// it is empty. The error is ErrUnsupported.
func Named(name, tile string, p *gemm.Problem, d *device.Info) (Choice, error) {
	r, err := find(name)
	if err != nil {
		return Choice{}, err
	}
	const why = "asked for by name"
	if tile == "" {
		return r.choose(p, d, why)
	}
	if err := r.Runs(p, d); err != nil {
		return Choice{}, err
	}
	s, err := r.ParseTile(tile)
	if err != nil {
		return Choice{}, err
	}
	c := Choice{r.Kernel, r.For(r.Config(p, s), d.Target), why}
	return c, r.CheckDevice(c.Config, p, d)
}

// choose takes the first configuration.
func (r *row) choose(p *gemm.Problem, d *device.Info, why string) (Choice, error) {
	if err := r.Runs(p, d); err != nil {
		return Choice{}, err
	}
	configs := Configs(r.Kernel, p, d)
	if len(configs) == 0 {
		return Choice{}, fmt.Errorf("%w: kernel %s has no tile for %v on %s", gemm.ErrUnsupported, r.Name, p, d.Name)
	}
	c := Choice{r.Kernel, configs[0], why}
	if r.predict != nil && !p.Empty() {
		x := r.predict(c.Config, p, d)
		c.Why += "; " + x.String()
	}
	return c, nil
}
