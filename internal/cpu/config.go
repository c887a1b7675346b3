package cpu

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// maxBlock is the maximum MC and KC. It bounds the time of one call of a micro-kernel, because
// assembly cannot be preempted.
const maxBlock = 2048

// checkConfig returns an error that wraps ErrUnsupported if no plan can use c.
func checkConfig(c backend.Config) error {
	known := []backend.Packing{"", backend.PackNothing, backend.PackB, backend.PackBoth}
	if min(c.MC, c.KC, c.Threads) < 0 || max(c.MC, c.KC) > maxBlock || !slices.Contains(known, c.Packing) {
		return fmt.Errorf("%w: blocks of MC %d and KC %d (at most %d), packing %q, %d threads", gemm.ErrUnsupported,
			c.MC, c.KC, maxBlock, c.Packing, c.Threads)
	}
	return nil
}

// configured caches kernels with changed block sizes, so that planning with the same Config again
// allocates nothing.
var configured struct {
	sync.Mutex
	kernels map[configuredKey]*Kernel
}

type configuredKey struct {
	kernel *Kernel
	config backend.Config
}

// with returns k with the parameters of o, for the problem p.
func (k *Kernel) with(o *backend.Config, p *gemm.Problem) (*Kernel, error) {
	if *o == (backend.Config{}) {
		return k, nil
	}
	c := *o
	if err := checkConfig(c); err != nil {
		return nil, err
	}
	if in := p.In(); k.naive || !k.Multiplies(in) {
		return nil, fmt.Errorf("%w: kernel %s with blocks, for matrices of %v", gemm.ErrUnsupported, k.Name, in)
	}
	if blocks := k.blocking(p.Accum()); c.Packing != "" && c.Packing != blocks.defaultPacking(p) &&
		!slices.Contains(blocks.packings(p), c.Packing) {
		return nil, fmt.Errorf("%w: %v by kernel %s with packing %q", gemm.ErrUnsupported, p, k.Name, c.Packing)
	}
	c.Threads = 0 // does not depend on the kernel
	configured.Lock()
	defer configured.Unlock()
	key := configuredKey{k, c}
	own := configured.kernels[key]
	if own == nil {
		const most = 1000
		if configured.kernels == nil || len(configured.kernels) >= most {
			configured.kernels = map[configuredKey]*Kernel{}
		}
		own = new(Kernel)
		*own = *k
		own.f32, own.f64, own.i32 = k.f32.with(c), k.f64.with(c), k.i32.with(c)
		configured.kernels[key] = own
	}
	return own, nil
}

// with returns mk with the block sizes and packing of c. It returns nil for a nil mk.
func (mk *microKernel[T]) with(c backend.Config) *microKernel[T] {
	if mk == nil {
		return nil
	}
	own := *mk
	own.packing = c.Packing
	own.mc, own.kc = cmp.Or(c.MC, mk.mc), cmp.Or(c.KC, mk.kc)
	return &own
}

// Routes lists candidates for p with up to workers goroutines that differ in kernel, packing or
// number of goroutines. The kernels are the default one and the next slower one.
func Routes(p *gemm.Problem, workers int) []backend.Choice {
	var routes []backend.Choice
	best, err := chooseCached("", p.In())
	if err != nil {
		return nil
	}
	last, _ := find(best.kernel.Name)
	taken := 0
	for i := last; i >= 0 && taken < 2; i-- {
		k := kernels[i]
		if k.naive || !k.Available() || !k.Multiplies(p.In()) {
			continue
		}
		taken++
		blocks := k.blocking(p.Accum())
		for _, packing := range blocks.packings(p) {
			if packing == blocks.defaultPacking(p) {
				packing = "" // the default
			}
			for _, n := range threadCounts(p, workers) {
				routes = append(routes, backend.Choice{Kernel: k.Name, Config: backend.Config{Packing: packing, Threads: n}})
			}
		}
	}
	return routes
}

// Blockings lists variants of a candidate with other block sizes. It omits sizes that divide p into
// the same blocks as an earlier variant.
func Blockings(p *gemm.Problem, route backend.Choice) []backend.Choice {
	i, ok := find(route.Kernel)
	if !ok || kernels[i].naive {
		return nil
	}
	blocks := kernels[i].blocking(p.Accum())
	packing := cmp.Or(route.Config.Packing, blocks.defaultPacking(p))
	var all []backend.Choice
	seen := map[[2]int]bool{}
	for _, kc := range []int{128, 192, 256, 384, 512, 768, 1024} {
		for _, mc := range []int{48, 96, 144, 192, 288, 384} {
			if packing == backend.PackNothing {
				mc = 0 // not used
			}
			// Plans divide K and the rows into blocks of equal size.
			cut := [2]int{equalParts(p.K, kc, 1), equalParts(p.M, max(mc, 1), blocks.rows())}
			if seen[cut] {
				continue
			}
			seen[cut] = true
			c := route
			c.Config.KC, c.Config.MC = kc, mc
			all = append(all, c)
		}
	}
	return all
}

// blocking describes the block sizes and packing of a [microKernel] of any type.
type blocking interface {
	rows() int
	defaultPacking(p *gemm.Problem) backend.Packing
	packings(p *gemm.Problem) []backend.Packing
}

// blocking returns the micro-kernel for an accumulator type.
func (k *Kernel) blocking(sums dtype.Type) blocking {
	switch sums {
	case dtype.F32:
		return k.f32
	case dtype.F64:
		return k.f64
	}
	return k.i32
}

func (mk *microKernel[T]) rows() int { return mk.MR }

// defaultPacking returns the operands of p that are packed by default.
func (mk *microKernel[T]) defaultPacking(p *gemm.Problem) backend.Packing {
	switch {
	case mk.algorithm(p) != algoBlocked:
		return backend.PackNothing
	case mk.readsInPlace(p):
		return backend.PackB
	}
	return backend.PackBoth
}

// packings lists the possible packings for p.
func (mk *microKernel[T]) packings(p *gemm.Problem) []backend.Packing {
	all := []backend.Packing{backend.PackBoth}
	if mk.canReadInPlace(p) {
		all = append(all, backend.PackB)
	}
	// Without packing each goroutine computes its part in a single task, so a long product could
	// not be cancelled.
	const most = 3e8
	if mk.canRunDirect(p) && (p.M <= len(mk.Direct) || p.Flops() <= most) {
		all = append(all, backend.PackNothing)
	}
	return all
}

// threadCounts lists the numbers of threads to try for p: one for a small product, all for a large
// one, otherwise all and the powers of two below.
func threadCounts(p *gemm.Problem, workers int) []int {
	const small, large = 1e6, 1e10 // operations
	switch flops := p.Flops(); {
	case flops < small:
		return []int{1}
	case flops > large:
		return []int{workers}
	}
	counts := []int{workers}
	for n := 1; n < workers; n *= 2 {
		counts = append(counts, n)
	}
	return counts
}
