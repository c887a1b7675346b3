package cpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestKernelsConform runs the suite on every kernel that this CPU supports. TILEWORK_REQUIRE_ISA,
// for example "avx2,avx512", names kernels that must not be skipped.
func TestKernelsConform(t *testing.T) {
	required := strings.Split(os.Getenv("TILEWORK_REQUIRE_ISA"), ",")
	for _, k := range Kernels() {
		t.Run(k.Name, func(t *testing.T) {
			if !k.Available() {
				if slices.Contains(required, k.Name) {
					t.Fatalf("this CPU lacks %s", k.ISA)
				}
				t.Skipf("this CPU lacks %s", k.ISA)
			}
			gemmtest.Run(t, implementation(k, 0))
		})
	}
}

// TestBlocksConform runs the suite with tiny blocks and several threads. Its small products then
// have several blocks of K, rows and columns, shared between threads.
func TestBlocksConform(t *testing.T) {
	for _, k := range Kernels() {
		if k.naive || !k.Available() {
			continue
		}
		small := *k
		small.f32, small.f64, small.i32 = shrunk(k.f32), shrunk(k.f64), shrunk(k.i32)
		t.Run(k.Name, func(t *testing.T) { gemmtest.Run(t, implementation(&small, 3)) })
		for threads := range 3 {
			copying := copyingTiles(k)
			if copying == nil {
				break
			}
			t.Run(fmt.Sprintf("%s copying B, %d threads", k.Name, threads+1), func(t *testing.T) {
				gemmtest.Run(t, implementation(copying, threads+1))
			})
		}
	}
}

// copyingTiles returns k with tiny blocks and only the blocked method, in which tiles copy B. It
// returns nil if k has no such tiles.
func copyingTiles(k *Kernel) *Kernel {
	if k.f32 == nil || k.f64 == nil || k.f32.Copy == nil {
		return nil
	}
	own := *k
	own.f32, own.f64 = shrunk(k.f32), shrunk(k.f64)
	own.f32.Direct, own.f64.Direct = k.f32.Direct, k.f64.Direct
	w := method{algorithm: algoBlocked, packsA: true}
	own.f32.forced, own.f64.forced = w, w
	return &own
}

// shrunk returns mk with blocks so small that products of size 50 have many, and without the
// kernels for small products.
func shrunk[T scalar](mk *microKernel[T]) *microKernel[T] {
	if mk == nil {
		return nil
	}
	s := *mk
	s.mc, s.kc, s.ms, s.ns = 2*mk.MR, 7, 4*mk.MR, 2*mk.NR
	s.Direct, s.Update = nil, nil
	return &s
}

// implementation adapts k to the suite. threads > 0 sets the number of threads even for small
// products; 0 leaves it to the planner.
func implementation(k *Kernel, threads int) gemmtest.Implementation {
	var pairs []gemmtest.Pair
	for _, p := range gemmtest.Pairs() {
		if slices.Contains(k.Types(), p.In) {
			pairs = append(pairs, p)
		}
	}
	return gemmtest.Implementation{
		Name: k.Name, Types: pairs, Tiles: k.Tiles(), Accuracy: k.Accuracy, Concurrent: true, Cancels: true,
		Gemm: func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error {
			pl, err := k.plan(p, backend.Options{})
			if err != nil {
				return err
			}
			if threads > 0 {
				pl.Threads = threads
			}
			return pl.Run(ctx, &b)
		},
	}
}

// TestSameBitsAtAnyNumberOfThreads compares the bits of products on one thread and on several, for
// every kernel and type. With -short, which the race detector needs, each draws one of the shapes.
func TestSameBitsAtAnyNumberOfThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // workers for all threads
	rng := testrand.New(t)
	for _, k := range Kernels() {
		if k.naive || !k.Available() {
			continue
		}
		for _, typ := range k.Types() {
			shapes := [][3]int{{37, 41, 29}, {8, 700, 90}, {130, 150, 600}, {5, 3, 300},
				{301, 90, 2}, {75, 300, 3}, {75, 1024, 7}, // outer products
				{2, 3, splitDepth(2, 3, typ)}, {24, 10, splitDepth(24, 10, typ)}}
			rng.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
			for _, s := range shapes[:testkit.Short(len(shapes))] {
				p, b := random(t, typ, s[0], s[1], s[2])
				var want []byte
				for _, threads := range []int{1, 2, 3, 7, 8, 16} {
					got := bitsOf(t, k, &p, b, threads)
					if want == nil {
						want = got
					} else if !slices.Equal(want, got) {
						t.Errorf("%s, %v: %d threads: bits differ from those of one thread", k.Name, &p, threads)
					}
				}
			}
		}
	}
}

// TestBlocksOfAnySize compares the bits of blocked products with those of the default blocks if
// blocks of A are larger than the matrix or are not a multiple of a tile's rows.
func TestBlocksOfAnySize(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, k := range Kernels() {
		if k.naive || !k.Available() || !k.Multiplies(dtype.F32) {
			continue
		}
		for _, rows := range []int{1, 12, 13, 50, 100} {
			p, b := random(t, dtype.F32, rows, 90, 40)
			var want []byte
			for _, mc := range []int{0, 1, 13, 50, 1000} {
				for _, method := range []string{"blocked", "blocked-pack-A"} {
					for _, threads := range []int{1, 3} {
						own, err := k.with(&backend.Config{MC: mc, Method: method}, &p)
						if errors.Is(err, gemm.ErrUnsupported) {
							continue
						} else if err != nil {
							t.Fatal(err)
						}
						got := bitsOf(t, own, &p, b, threads)
						if want == nil {
							want = got
						} else if !slices.Equal(want, got) {
							t.Errorf("%s, %v, %s, blocks of %d rows, %d threads: bits differ from those of the default blocks",
								k.Name, &p, method, mc, threads)
						}
					}
				}
			}
		}
	}
}

// bitsOf runs p with k on the given number of threads and returns a copy of C.
func bitsOf(t *testing.T, k *Kernel, p *gemm.Problem, b gemm.Buffers, threads int) []byte {
	t.Helper()
	pl, err := k.plan(p, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl.Threads = threads
	clear(b[gemm.C])
	if err := pl.Run(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(b[gemm.C])
}

// random returns a product with buffers of random values.
func random(t *testing.T, typ dtype.Type, m, n, k int) (gemm.Problem, gemm.Buffers) {
	t.Helper()
	p, _, err := gemm.New(1, gemm.Dense(typ, m, k), gemm.Dense(typ, k, n), 0, gemm.Dense(typ.Info().Results[0], m, n),
		gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	b := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()),
		gemm.C: make([]byte, p.C().Bytes())}
	x := uint32(1)
	for _, m := range []struct {
		l gemm.Layout
		b []byte
	}{{p.Layouts[gemm.A], b[gemm.A]}, {p.Layouts[gemm.B], b[gemm.B]}} {
		for i := range m.l.Len() {
			x = x*1664525 + 1013904223
			m.l.Type.Set(m.b, i, float64(int32(x))/(1<<31))
		}
	}
	return p, b
}

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		env, name string
		in        dtype.Type
		want      string // the kernel, or a part of the error
		err       error
	}{
		{env: "portable", in: dtype.F32, want: "portable"},
		{env: "loop", in: dtype.F64, want: "loop"},
		{env: "portable", in: dtype.I8, want: "portable"},
		{env: "loop", name: "portable", in: dtype.F32, want: "portable"},
		{env: "sse", in: dtype.F32, want: `TILEWORK_CPU: not supported: unknown CPU kernel "sse"`, err: gemm.ErrUnsupported},
		{name: "blocked", in: dtype.F32, want: `unknown CPU kernel "blocked"`, err: gemm.ErrUnsupported},
	} {
		c, err := choose(test.name, test.env, test.in)
		if test.err != nil {
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v: error %v, want %v with %q", test, err, test.err, test.want)
			}
		} else if err != nil || c.kernel.Name != test.want {
			t.Errorf("%+v: kernel %v, error %v", test, c.kernel, err)
		}
	}
}

// plan plans p for k even if another kernel is faster.
func (k *Kernel) plan(p *gemm.Problem, o backend.Options) (pl Plan, err error) {
	pl.packed, _ = o.Packed.(*Packed)
	err = pl.decideFor(k, p, &o)
	return pl, err
}
