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
	if min(c.MC, c.KC, c.Threads) < 0 || max(c.MC, c.KC) > maxBlock {
		return fmt.Errorf("%w: blocks of MC %d and KC %d, %d threads: want MC and KC of at most %d", gemm.ErrUnsupported,
			c.MC, c.KC, c.Threads, maxBlock)
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
	kernel  *Kernel
	config  backend.Config
	ordered bool
}

// orderedKC returns the KC of a row-invariant p, or 0 if the sums of p do not depend on the order.
// It is the same for all kernels with the arithmetic of the accumulator's type. Kernels that
// multiply bfloat16 themselves keep their own.
func (k *Kernel) orderedKC(p *gemm.Problem) int {
	switch {
	case !p.Ordered() || !k.Multiplies(p.In()):
		return 0
	case p.Accum() == dtype.F64:
		return 384
	case k.f32 != nil && k.f32.Group > 1:
		return k.f32.kc
	}
	return 512
}

// with returns k with the parameters of o, for the problem p.
func (k *Kernel) with(o *backend.Config, p *gemm.Problem) (*Kernel, error) {
	c := *o
	switch kc := k.orderedKC(p); {
	case kc == 0:
	case k.naive:
		return nil, fmt.Errorf("%w: kernel %s in a row-invariant product: it sums in another order", gemm.ErrUnsupported,
			k.Name)
	case c.KC != 0 && c.KC != kc:
		return nil, fmt.Errorf("%w: blocks of KC %d in a row-invariant product: want %d", gemm.ErrUnsupported, c.KC, kc)
	default:
		c.KC = kc
	}
	if c == (backend.Config{}) {
		return k, nil
	}
	if err := checkConfig(c); err != nil {
		return nil, err
	}
	if in := p.In(); k.naive || !k.Multiplies(in) {
		return nil, fmt.Errorf("%w: kernel %s with blocks, for matrices of %v", gemm.ErrUnsupported, k.Name, in)
	}
	var w method
	if c.Method != "" {
		var err error
		if w, err = parseMethod(c.Method); err != nil {
			return nil, err
		}
		if !slices.Contains(k.tiles(p.Accum()).methods(p), w) {
			return nil, fmt.Errorf("%w: %v by kernel %s with method %v", gemm.ErrUnsupported, p, k.Name, w)
		}
	}
	c.Threads = 0 // does not depend on the kernel
	configured.Lock()
	defer configured.Unlock()
	key := configuredKey{k, c, p.Ordered()}
	own := configured.kernels[key]
	if own == nil {
		const most = 1000
		if configured.kernels == nil || len(configured.kernels) >= most {
			configured.kernels = map[configuredKey]*Kernel{}
		}
		own = new(Kernel)
		*own = *k
		own.ordered = key.ordered
		own.f32, own.f64, own.i32 = k.f32.with(c, w), k.f64.with(c, w), k.i32.with(c, w)
		configured.kernels[key] = own
	}
	return own, nil
}

// with returns mk with the block sizes of c and the method w. It returns nil for a nil mk.
func (mk *microKernel[T]) with(c backend.Config, w method) *microKernel[T] {
	if mk == nil {
		return nil
	}
	own := *mk
	own.forced = w
	own.mc, own.kc = cmp.Or(c.MC, mk.mc), cmp.Or(c.KC, mk.kc)
	return &own
}

// nearest is the largest predicted time of a method that [Routes] lists, relative to the smallest.
const nearest = 1.5

// Routes lists candidates for p with up to workers goroutines that differ in kernel, method or
// number of goroutines. The kernels are the default one and the next slower one, the methods those
// with a predicted time of at most [nearest] times the smallest.
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
		t := k.tiles(p.Accum())
		chosen := t.method(p)
		for _, w := range t.methods(p) {
			name := w.String()
			switch {
			case w == chosen:
				name = "" // the default
			case t.predict(p, w) > nearest*t.predict(p, chosen):
				continue
			}
			for _, n := range threadCounts(p, workers) {
				routes = append(routes, backend.Choice{Kernel: k.Name, Config: backend.Config{Method: name, Threads: n}})
			}
		}
	}
	return routes
}

// Blockings lists variants of a candidate with other block sizes. It omits sizes that divide p into
// the same blocks as an earlier variant.
func Blockings(p *gemm.Problem, route backend.Choice) []backend.Choice {
	i, err := find(route.Kernel)
	if err != nil || kernels[i].naive {
		return nil
	}
	t := kernels[i].tiles(p.Accum())
	w := t.method(p)
	if route.Config.Method != "" {
		var err error
		if w, err = parseMethod(route.Config.Method); err != nil {
			return nil
		}
	}
	if !w.isDirect() && w.algorithm != algoBlocked {
		return nil // its block sizes are fixed
	}
	var all []backend.Choice
	seen := map[[2]int]bool{}
	for _, kc := range []int{128, 192, 256, 384, 512, 768, 1024} {
		for _, mc := range []int{48, 96, 144, 192, 288, 384} {
			if w.algorithm != algoBlocked {
				mc = 0 // not used
			}
			// Plans divide K and the rows into blocks of equal size.
			cut := [2]int{equalParts(p.K, kc, 1), equalParts(p.M, max(mc, 1), t.rows())}
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

// tiles describes a [microKernel] of any type.
type tiles interface {
	rows() int
	depth() int // KC
	edgeColumns(p *gemm.Problem) int
	method(p *gemm.Problem) method             // the fastest by prediction
	methods(p *gemm.Problem) []method          // all that can compute p
	predict(p *gemm.Problem, w method) float64 // nanoseconds on one thread, or 0
}

// tiles returns the micro-kernel for an accumulator type.
func (k *Kernel) tiles(sums dtype.Type) tiles {
	switch sums {
	case dtype.F32:
		return k.f32
	case dtype.F64:
		return k.f64
	}
	return k.i32
}

func (mk *microKernel[T]) rows() int  { return mk.MR }
func (mk *microKernel[T]) depth() int { return mk.kc }

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
