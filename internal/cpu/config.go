package cpu

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Config is how a kernel computes a product, as far as that is a choice. What is zero
// is left to the plan. KC and Packing decide in which order an element is summed, MC
// and Threads do not.
type Config struct {
	// MC and KC are the sizes of blocks, in rows of C and in terms of K.
	MC int `json:"mc,omitempty"`
	KC int `json:"kc,omitempty"`
	// Packing says what is copied into the order in which it is read.
	Packing Packing `json:"packing,omitempty"`
	// Threads is the most goroutines, where the caller allows more.
	Threads int `json:"threads,omitempty"`
}

// Packing is what of a product is packed.
type Packing string

const (
	PackNothing Packing = "nothing" // both operands are read where they lie
	PackB       Packing = "B"       // A is
	PackBoth    Packing = "both"
)

// maxBlock bounds the sides of blocks: a micro-kernel's call takes no longer than
// assembly, which cannot be preempted, may.
const maxBlock = 2048

// check refuses what no plan can do; the error is ErrUnsupported.
func (c Config) check() error {
	known := []Packing{"", PackNothing, PackB, PackBoth}
	if min(c.MC, c.KC, c.Threads) < 0 || max(c.MC, c.KC) > maxBlock || !slices.Contains(known, c.Packing) {
		return fmt.Errorf("%w: blocks of MC %d and KC %d (at most %d), packing %q, %d threads", gemm.ErrUnsupported, c.MC, c.KC, maxBlock, c.Packing, c.Threads)
	}
	return nil
}

// configured are the kernels that plans were given another configuration of, so that to
// plan such a product again allocates nothing.
var configured struct {
	sync.Mutex
	kernels map[configuredKey]*Kernel
}

type configuredKey struct {
	kernel *Kernel
	config Config
}

// with is the kernel as c would have it for p.
func (k *Kernel) with(o *Config, p *gemm.Problem) (*Kernel, error) {
	if *o == (Config{}) {
		return k, nil
	}
	c := *o
	if err := c.check(); err != nil {
		return nil, err
	}
	if in := p.A.Type; k.naive || !k.Multiplies(in) {
		return nil, fmt.Errorf("%w: kernel %s with blocks, for matrices of %v", gemm.ErrUnsupported, k.Name, in)
	}
	if blocks := k.blocking(p.Accum()); c.Packing != "" && c.Packing != blocks.defaultPacking(p) && !slices.Contains(blocks.packings(p), c.Packing) {
		return nil, fmt.Errorf("%w: %v by kernel %s with packing %q", gemm.ErrUnsupported, p, k.Name, c.Packing)
	}
	c.Threads = 0 // which is the plan's matter
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

// with is the micro-kernel with the blocks and the packing of c; nil for none.
func (mk *microKernel[T]) with(c Config) *microKernel[T] {
	if mk == nil {
		return nil
	}
	own := *mk
	own.packing = c.Packing
	own.mc, own.kc = cmp.Or(c.MC, mk.mc), cmp.Or(c.KC, mk.kc)
	return &own
}

// Candidate is a way to compute a product.
type Candidate struct {
	Kernel string
	Config Config
}

// Routes lists the ways to compute p with up to workers goroutines that differ in more
// than the sizes of blocks: the fastest kernel that may be chosen unasked and the one
// below it, what is packed, and how many goroutines share the work.
func Routes(p *gemm.Problem, workers int) []Candidate {
	var routes []Candidate
	best, err := chooseCached("", p.A.Type)
	if err != nil {
		return nil
	}
	last, _ := find(best.kernel.Name)
	taken := 0
	for i := last; i >= 0 && taken < 2; i-- {
		k := kernels[i]
		if k.naive || !k.Available() || !k.Multiplies(p.A.Type) {
			continue
		}
		taken++
		blocks := k.blocking(p.Accum())
		for _, packing := range blocks.packings(p) {
			if packing == blocks.defaultPacking(p) {
				packing = "" // by itself
			}
			for _, n := range threadCounts(p, workers) {
				routes = append(routes, Candidate{k.Name, Config{Packing: packing, Threads: n}})
			}
		}
	}
	return routes
}

// Blockings lists variants of a route with other sizes of blocks, those left out that
// cut p into the same blocks as another.
func Blockings(p *gemm.Problem, route Candidate) []Candidate {
	i, ok := find(route.Kernel)
	if !ok || kernels[i].naive {
		return nil
	}
	blocks := kernels[i].blocking(p.Accum())
	packing := cmp.Or(route.Config.Packing, blocks.defaultPacking(p))
	var all []Candidate
	seen := map[[2]int]bool{}
	for _, kc := range []int{128, 192, 256, 384, 512, 768, 1024} {
		for _, mc := range []int{48, 96, 144, 192, 288, 384} {
			if packing == PackNothing {
				mc = 0 // it has none
			}
			// Equal blocks of K, and of the rows, as plans cut them.
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

// blocker is a [micro] of any type.
type blocking interface {
	rows() int
	defaultPacking(p *gemm.Problem) Packing
	packings(p *gemm.Problem) []Packing
}

// blocker is the kernel's for sums of a type.
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

// usual is what of p is packed unless that is decided.
func (mk *microKernel[T]) defaultPacking(p *gemm.Problem) Packing {
	switch {
	case mk.algorithm(p) != algoBlocked:
		return PackNothing
	case mk.readsInPlace(p):
		return PackB
	}
	return PackBoth
}

// packings lists what may be packed of p.
func (mk *microKernel[T]) packings(p *gemm.Problem) []Packing {
	all := []Packing{PackBoth}
	if mk.canReadInPlace(p) {
		all = append(all, PackB)
	}
	// Without packing one goroutine computes its part at one go: what takes long could
	// not be cancelled.
	const most = 3e8
	if mk.canRunDirect(p) && (p.M <= len(mk.Direct) || p.Flops() <= most) {
		all = append(all, PackNothing)
	}
	return all
}

// threadCounts lists powers of two and all, for what is neither too small to be shared
// nor so large that all are best.
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
