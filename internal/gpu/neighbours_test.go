package gpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// results holds the bits of an epilogue's results by the bits of the element that it was applied
// to.
type results map[uint64]uint64

// check compares the results of elements with those of equal elements before.
func (r results) check(t *testing.T, p *gemm.Problem, inputs, c []byte) {
	t.Helper()
	for i := range p.M {
		for j := range p.N {
			at := p.C().Index(i, j)
			x, y := math.Float64bits(p.Out().At(inputs, at)), math.Float64bits(p.Out().At(c, at))
			if want, known := r[x]; known && y != want {
				t.Fatalf("%v, epilogue %v: element (%d, %d), before the epilogue %v, is %v, elsewhere it is %v", p, p.Epilogue,
					i, j, math.Float64frombits(x), math.Float64frombits(y), math.Float64frombits(want))
			}
			r[x] = y
		}
	}
}

// TestElementsAlone checks that an epilogue's result depends on its element alone: neither on the
// elements beside it, among them NaN, infinities and large numbers, nor on the place in the tile,
// the tile and the kernel. With alpha = 0 the elements are those of the old C.
func TestElementsAlone(t *testing.T) {
	t.Parallel()
	rng, b := seeded(t)
	activations := shuffledActivations(rng)
	for i, pair := range gemmtest.Pairs() {
		act := activations[i%len(activations)]
		if pair.Out == dtype.I32 {
			act = gemm.ActReLU // the only one for integers
		}
		known := results{}
		for _, w := range waysOf(rng, pair) {
			p := elementsProblem(t, rng, pair, gemm.Epilogue{Activation: act})
			values := make([]byte, p.C().Bytes())
			special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 2e4, -2e4, 1e-6, 0}
			for i := range p.C().Len() {
				v := float64(rng.IntN(64)-32) / 8
				if rng.IntN(6) == 0 && pair.Out != dtype.I32 {
					v = special[rng.IntN(len(special))]
				}
				pair.Out.Set(values, i, v)
			}
			c := slices.Clone(values)
			m := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()), gemm.C: c}
			if runWay(t, b, w, &p, m) {
				known.check(t, &p, values, c)
			}
		}
	}
}

// TestGatedElementsAlone is [TestElementsAlone] for the activations of gated products. A is the
// unit matrix, so the factors are elements of B and, always 1, of Up.
func TestGatedElementsAlone(t *testing.T) {
	t.Parallel()
	rng, b := seeded(t)
	activations, perType := shuffledActivations(rng), testkit.Cases(1, 2)
	for i, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F8E4M3} {
		for n := range perType {
			act := activations[(perType*i+n)%len(activations)]
			known := results{}
			for _, w := range waysOf(rng, gemmtest.Pair{In: typ, Out: dtype.F32}) {
				p := elementsProblem(t, rng, gemmtest.Pair{In: typ, Out: dtype.F32}, gemm.Epilogue{Activation: act, Gated: true})
				m := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()),
					gemm.Up: make([]byte, p.Layouts[gemm.Up].Bytes()), gemm.C: make([]byte, p.C().Bytes())}
				values := make([]byte, p.C().Bytes())
				for i := range p.M {
					typ.Set(m[gemm.A], p.A().Index(i, i), 1)
					for j := range p.N {
						v := []float64{float64(rng.IntN(64)-32) / 8, 240, -240}[max(0, rng.IntN(10)-7)]
						typ.Set(m[gemm.B], p.B().Index(i, j), v)
						typ.Set(m[gemm.Up], p.Layouts[gemm.Up].Index(i, j), 1)
						p.Out().Set(values, p.C().Index(i, j), v)
					}
				}
				if runWay(t, b, w, &p, m) {
					known.check(t, &p, values, m[gemm.C])
				}
			}
		}
	}
}

// seeded returns random numbers and a backend on the emulator.
func seeded(t *testing.T) (*rand.Rand, *stream.Backend) {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return testrand.New(t), stream.New(d)
}

// shuffledActivations returns all activations but none, in random order. Tests take consecutive
// ones, so that different types have different activations.
func shuffledActivations(rng *rand.Rand) []gemm.Activation {
	all := slices.DeleteFunc(gemm.Activations(), func(a gemm.Activation) bool { return a == gemm.ActNone })
	rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

// elementsProblem returns a product of random size whose C is the old C, unless it is gated.
func elementsProblem(t *testing.T, rng *rand.Rand, pair gemmtest.Pair, e gemm.Epilogue) gemm.Problem {
	t.Helper()
	m, n, alpha, beta := 1+rng.IntN(40), 1+rng.IntN(70), complex(0, 0), complex(1, 0)
	if e.Gated {
		alpha, beta = 1, 0
	}
	c := gemm.Dense(pair.Out, m, n)
	c.LD += rng.IntN(2) * rng.IntN(8)
	p, _, err := gemm.New(alpha, gemm.Dense(pair.In, m, m), gemm.Dense(pair.In, m, n), beta, c, e)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waysOf returns tiles of kernels that multiply the types, chosen at random: one of each of three
// kernels or, with testkit.Full, two of every kernel.
func waysOf(rng *rand.Rand, pair gemmtest.Pair) (all []gputest.Way) {
	for _, k := range choose.Kernels() {
		var own []gputest.Way
		for _, precision := range append([]gemm.Precision{gemm.Native}, k.Precisions()...) {
			for _, s := range gpu.Smallest(gpu.Shapes(k, gpu.Emulable(k))) {
				if w := (gputest.Way{Kernel: k, Precision: precision, Shape: s}); slices.Contains(w.Types(), pair) {
					own = append(own, w)
				}
			}
		}
		rng.Shuffle(len(own), func(i, k int) { own[i], own[k] = own[k], own[i] })
		all = append(all, own[:min(testkit.Cases(1, 2), len(own))]...)
	}
	if !testkit.Full() {
		all = some(rng, all, 3)
	}
	return all
}

// runWay computes p in a way, and reports whether that is possible.
func runWay(t *testing.T, b *stream.Backend, w gputest.Way, p *gemm.Problem, m gemm.Buffers) bool {
	t.Helper()
	q := *p
	q.Precision = w.Precision
	if w.Kernel.Check(&q, w.Shape, kernel.Align{}, b.Device.Info()) != nil {
		return false
	}
	plan, err := b.Plan(&q, exec.Options{Kernel: w.Kernel.Name, Tile: w.Tile(), KeepLayout: true})
	if err == nil {
		err = plan.Run(t.Context(), m)
	}
	if err != nil {
		t.Fatalf("%v by %v: %v", p, w, err)
	}
	return true
}
