package cpu

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/memo"
)

// algorithm is one of the algorithms of package cpu.
type algorithm uint8

const (
	algoNaive   algorithm = iota // the triple loop
	algoDirect                   // micro-kernels on A and B as stored
	algoCopy                     // the same; the first tile that reads a panel of B copies it for the tiles below
	algoStrips                   // the same in strips of a few rows of B or of the transposed A, which stay in L2
	algoStream                   // the same; each tile reads its rows of a large A from end to end
	algoDeep                     // the same with several sums for each element of a tiny C
	algoRows                     // adds multiples of rows of B to whole rows of C, for a few steps of K
	algoAxpy                     // the same for few rows of C, a few steps of K at a time (fused AXPY)
	algoDot                      // dot products; op(B) is the large operand
	algoSplitK                   // split-K: independent products of slices of K
	algoBlocked                  // the five loops of BLIS around a micro-kernel; packs B
)

var algorithmNames = [...]string{"naive", "direct", "copy", "strips", "stream", "deep", "rows", "axpy", "dot",
	"split-K", "blocked"}

// String returns the name of a.
func (a algorithm) String() string { return algorithmNames[a] }

// method is a way to compute a product: an algorithm and its variant.
type method struct {
	algorithm algorithm
	swapAB    bool // the transposed product is computed, Cᵀ = op(B)ᵀ·op(A)ᵀ
	packsA    bool // packs A; see algoBlocked
	packsB    bool // packs all of B first; see the direct algorithms. algoBlocked always packs B.
}

// isDirect reports whether micro-kernels read unpacked operands: [direct] computes the product.
func (w method) isDirect() bool { return algoDirect <= w.algorithm && w.algorithm <= algoRows }

// The suffixes of the name of a method.
const (
	suffixSwapAB = "-swapAB"
	suffixPacksA = "-pack-A"
	suffixPacksB = "-pack-B"
)

// String returns the name of w, such as "direct-swapAB-pack-B".
func (w method) String() string {
	s := w.algorithm.String()
	for _, f := range w.suffixes() {
		if *f.set {
			s += f.name
		}
	}
	return s
}

// suffixes returns the suffixes of w's name with the fields that they set.
func (w *method) suffixes() [3]struct {
	name string
	set  *bool
} {
	return [3]struct {
		name string
		set  *bool
	}{{suffixSwapAB, &w.swapAB}, {suffixPacksA, &w.packsA}, {suffixPacksB, &w.packsB}}
}

// parseMethod parses the name of a method. The error wraps ErrUnsupported.
func parseMethod(name string) (w method, err error) {
	for a, prefix := range algorithmNames {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || algorithm(a) == algoNaive {
			continue
		}
		w = method{algorithm: algorithm(a)}
		for _, f := range w.suffixes() {
			if after, ok := strings.CutPrefix(rest, f.name); ok {
				*f.set, rest = true, after
			}
		}
		if rest == "" {
			return w, nil
		}
	}
	return w, fmt.Errorf("%w: method %q on the CPU", gemm.ErrUnsupported, name)
}

// maxMethods is the largest number of methods for a product.
const maxMethods = 24

// methodList is a list of methods that allocates nothing.
type methodList struct {
	list [maxMethods]method
	n    int
}

func (l *methodList) add(w method) {
	l.list[l.n] = w
	l.n++
}

func (l *methodList) all() []method { return l.list[:l.n] }

// methods lists the methods that can compute p.
func (mk *microKernel[T]) methods(p *gemm.Problem) []method {
	var l methodList
	mk.list(&l, p)
	return slices.Clone(l.all())
}

// list adds the methods that can compute p to l.
func (mk *microKernel[T]) list(l *methodList, p *gemm.Problem) {
	if mk.native(p) {
		mk.listDirect(l, p, method{})
		if p.A().Trans && p.K > 1 && !p.Ordered() { // else the transposed product reads nothing in a better order
			q := transposed(p)
			mk.listDirect(l, &q, method{swapAB: true})
		}
	}
	if mk.readsRuns(p) && !p.Ordered() {
		if len(mk.Update) > 0 && !p.B().Trans && p.M <= axpyRows {
			l.add(method{algorithm: algoAxpy})
		}
		if len(mk.Update) > 0 && p.A().Trans && p.N <= axpyRows {
			l.add(method{algorithm: algoAxpy, swapAB: true})
		}
		if alongK(p.B().T()) && mk.takesDots(p, p.N, p.M) {
			l.add(method{algorithm: algoDot})
		}
		if alongK(p.Layouts[gemm.A]) && mk.takesDots(p, p.M, p.N) {
			l.add(method{algorithm: algoDot, swapAB: true})
		}
	}
	if splits(p) {
		l.add(method{algorithm: algoSplitK})
	}
	l.add(method{algorithm: algoBlocked, packsA: true})
	if mk.canReadInPlace(p) {
		l.add(method{algorithm: algoBlocked})
	}
}

// takesDots reports whether the elements of C may be dot products of l rows and s other rows.
func (mk *microKernel[T]) takesDots(p *gemm.Problem, l, s int) bool {
	return len(mk.Dot) > 0 && s <= dotsRows && (p.K >= dotsMinK || p.In() == p.Accum() && mk.dotsTall(l, s, p.K))
}

// native reports whether the micro-kernels can read and write p's matrices as stored.
func (mk *microKernel[T]) native(p *gemm.Problem) bool {
	return len(mk.Direct) > 0 && p.In() == p.Accum() && p.Out() == p.In() && p.ReadsAB()
}

// readsRuns reports whether algorithms without tiles can read A and B, which they widen in runs.
func (mk *microKernel[T]) readsRuns(p *gemm.Problem) bool {
	return p.ReadsAB() && !p.BlockScaled() && (p.In() == p.Accum() || mk.wideners.of(p.In()).CopyRows != nil)
}

// The limits of the direct methods. Outside them a method is never the fastest.
const (
	deepMaxRows  = 3    // rows of a C for which a tile has too few independent sums
	deepMinK     = 64   // below it, adding the sums of an element takes longer than the gain
	rowsMaxK     = 8    // steps of K that are added to whole rows of C
	stripMaxRows = 128  // rows of a C whose strips of B stay in L2
	stripMinCols = 256  // columns of a B whose rows are read in order
	stripMaxCols = 64   // columns of a C that strips of A add to again and again
	stripMinRows = 4096 // rows of an A that is read in more than a few strips
	streamMaxN   = 64   // columns of a C whose tiles read A from end to end
	streamMinK   = 32   // the least K for that: a tile prefetches lines every few steps
)

// listDirect adds the direct methods for p to l, with the other fields of w. If w.swapAB is set, p
// is the transposed product.
func (mk *microKernel[T]) listDirect(l *methodList, p *gemm.Problem, w method) {
	add := func(a algorithm) {
		w.algorithm = a
		l.add(w)
	}
	streams := !p.A().Trans && p.N <= streamMaxN && p.K >= streamMinK
	w.packsB = !hasRows(p.B(), p.K)
	add(algoDirect)
	if p.Ordered() { // the other methods sum in other orders
		if !w.packsB && p.K > smallK && p.N >= mk.NR && p.M > mk.MR {
			add(algoCopy)
		}
		if streams {
			add(algoStream)
		}
		return
	}
	if (p.M <= deepMaxRows || p.N <= mk.lanes()) && p.M+p.N <= splitSides && p.K >= deepMinK {
		add(algoDeep)
	}
	if streams {
		add(algoStream)
	}
	if p.K <= rowsMaxK && p.N >= 2*mk.NR && len(mk.Update) > 0 {
		add(algoRows)
	}
	if !w.swapAB && stripsOfA(p) {
		add(algoStrips)
	}
	if w.packsB {
		return
	}
	if p.K > smallK && p.N >= mk.NR && p.M > mk.MR {
		add(algoCopy)
	}
	if p.M <= stripMaxRows && p.K > 2*stripDepth && p.N >= stripMinCols {
		add(algoStrips)
	}
	w.packsB = true
	add(algoDirect)
	if streams {
		add(algoStream)
	}
}

// stripsOfA reports whether [algoStrips] divides A into strips: a transposed A of many rows for a
// narrow C. Tiles that ran through all of K would read a short run of each of many pages.
func stripsOfA(p *gemm.Problem) bool {
	return p.A().Trans && p.N <= stripMaxCols && p.K > stripDepth && p.M >= stripMinRows
}

// chosenMethods keeps the methods of recent products, because predicting the times of all methods
// takes as long as a product of 16³.
var chosenMethods memo.Recent[methodKey, method]

// methodKey holds all that the choice of a method depends on.
type methodKey struct {
	kernel                 any // a *microKernel
	m, n, k, lda, ldb, ldc int
	in, out                dtype.Type
	transA, transB         bool
	readsAB, scaled        bool
	ordered                bool
}

func (k *methodKey) hash() (h uint64) {
	const odd = 0x9e3779b97f4a7c15
	for _, x := range [...]int{k.m, k.n, k.k, k.lda, k.ldb} {
		h = (h ^ uint64(x)) * odd
	}
	return h
}

// method returns the method for p with the shortest predicted time, unless one is requested.
func (mk *microKernel[T]) method(p *gemm.Problem) method {
	switch {
	case mk.forced != (method{}) && mk.forced.algorithm != algoSplitK: // whose pieces have other methods
		return mk.forced
	case splits(p): // the only method in which several threads compute a tiny C
		return method{algorithm: algoSplitK}
	}
	key := methodKey{kernel: mk, m: p.M, n: p.N, k: p.K, lda: p.A().LD, ldb: p.B().LD, ldc: p.C().LD,
		in: p.In(), out: p.Out(), transA: p.A().Trans, transB: p.B().Trans, readsAB: p.ReadsAB(), scaled: p.BlockScaled(),
		ordered: p.Ordered()}
	hash := key.hash()
	if w, ok := chosenMethods.Get(hash, &key); ok {
		return w
	}
	var l methodList
	mk.list(&l, p)
	w := mk.fastest(&l, p)
	chosenMethods.Put(hash, key, w)
	return w
}

// fastest returns the method of l with the shortest predicted time.
func (mk *microKernel[T]) fastest(l *methodList, p *gemm.Problem) (best method) {
	if l.n == 1 {
		return l.list[0]
	}
	least := math.Inf(1)
	for _, w := range l.all() {
		if time := mk.predict(p, w); time < least {
			least, best = time, w
		}
	}
	return best
}

// methodForPackedB returns the method for p if B is already packed.
func (mk *microKernel[T]) methodForPackedB(p *gemm.Problem) method {
	var l methodList
	l.add(method{algorithm: algoBlocked, packsA: true})
	if mk.canReadInPlace(p) {
		l.add(method{algorithm: algoBlocked})
	}
	return mk.fastest(&l, p)
}
