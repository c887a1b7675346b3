package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
)

// TestSweep measures configurations of a kernel on float64 products, to choose the
// shapes in its list by: TILEWORK_SWEEP is a line for each set of products,
//
//	KERNEL TILE,TILE,… MxNxK,MxNxK,… [NN|NT|TN|TT]
//
// with ';' for a new line. Operands are random in [-1, 1) and lie one behind the other
// in memory, so many sets of them that the L2 cache has forgotten one when its turn
// comes. Of each product some elements are computed again here.
func TestSweep(t *testing.T) {
	sweep := os.Getenv("TILEWORK_SWEEP")
	if sweep == "" {
		t.Skip("set TILEWORK_SWEEP to lines of KERNEL TILES SHAPES to measure")
	}
	s := &sweeper{gpu: card(t), rng: rand.New(rand.NewPCG(1, 2))}
	s.host = make([]float64, sweepPool/8)
	for i := range s.host {
		s.host[i] = 2*s.rng.Float64() - 1
	}
	for _, at := range []*device.Ptr{&s.in, &s.out} {
		p, err := s.gpu.Alloc(sweepPool)
		if err != nil {
			t.Fatal(err)
		}
		*at = p
	}
	if err := s.gpu.CopyIn(t.Context(), s.in, dtype.Bytes(s.host), device.Whole(sweepPool)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(sweep, ";") {
		f := append(strings.Fields(line), "NN")
		if len(f) < 4 {
			t.Fatalf("cannot read %q", line)
		}
		k, err := gpu.Find(f[0])
		if err != nil {
			t.Fatal(err)
		}
		for shape := range strings.SplitSeq(f[2], ",") {
			var m, n, depth int
			if _, err := fmt.Sscanf(shape, "%dx%dx%d", &m, &n, &depth); err != nil {
				t.Fatalf("%q: %v", shape, err)
			}
			p := sweepProblem(t, m, n, depth, f[3])
			for tile := range strings.SplitSeq(f[1], ",") {
				s.measure(t, k, tile, p)
			}
		}
	}
}

const sweepPool = 1 << 30

type sweeper struct {
	gpu     *GPU
	rng     *rand.Rand
	host    []float64
	in, out device.Ptr
}

func sweepProblem(t *testing.T, m, n, k int, ops string) *gemm.Problem {
	t.Helper()
	operand := func(rows, cols int, op byte) gemm.Layout {
		if op == 'T' {
			return gemm.Dense(dtype.F64, cols, rows).T()
		}
		return gemm.Dense(dtype.F64, rows, cols)
	}
	p, _, err := gemm.New(1, operand(m, k, ops[0]), operand(k, n, ops[1]), 0, gemm.Dense(dtype.F64, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func (s *sweeper) measure(t *testing.T, k *gpu.Kernel, tile string, p *gemm.Problem) {
	shape, err := k.ParseShape(tile)
	if err != nil {
		t.Fatal(err)
	}
	c := k.For(k.Config(p, shape), s.gpu.Info().Target)
	text, err := k.Emit(c)
	if err != nil {
		t.Fatal(err)
	}
	f := find(t, s.gpu, text.String(), k.Entry())
	const align = 256
	up := func(n int) int { return (n + align - 1) / align * align }
	a, b, out := up(p.A.Bytes()), up(p.B.Bytes()), up(p.C.Bytes())
	if a+b > sweepPool || out > sweepPool {
		t.Fatalf("%v is more than a pool of %d bytes holds", p, sweepPool)
	}
	sets := min(sweepPool/(a+b), sweepPool/out, 1+(128<<20)/(a+b+out))
	launches := make([]device.Launch, sets)
	for i := range launches {
		at := gpu.Memory{A: s.in + device.Ptr(i*(a+b)), C: s.out + device.Ptr(i*out)}
		at.B = at.A + device.Ptr(a)
		if launches[i], err = k.Launch(c, p, at); err != nil {
			t.Fatal(err)
		}
	}
	run := func(n int) time.Duration {
		return (&speed{gpu: s.gpu}).events(t, func() error {
			for i := range n {
				if err := s.gpu.Launch(t.Context(), f, launches[i%sets]); err != nil {
					return err
				}
			}
			return nil
		}) / time.Duration(n)
	}
	once := min(run(1), run(1))
	n := max(2, min(200, int(3*time.Millisecond/once)))
	d := median(3, func() time.Duration { return run(n) })
	r := f.Resources()
	t.Logf("%v %-22v %9.2f µs %6.2f TFLOP/s, %d registers, %d spilled", p, shape, d.Seconds()*1e6, p.Flops()/d.Seconds()/1e12, r.Registers, r.Spilled)
	s.verify(t, p, a, 0)
}

// verify computes some elements of the product of set 0 again.
func (s *sweeper) verify(t *testing.T, p *gemm.Problem, b, c int) {
	t.Helper()
	at := func(l gemm.Layout, i, j int) int {
		if l.Trans {
			i, j = j, i
		}
		return i*l.LD + j
	}
	for n := range 24 {
		i, j := s.rng.IntN(p.M), s.rng.IntN(p.N)
		if n < 4 { // the corners
			i, j = (p.M-1)*(n&1), (p.N-1)*(n>>1)
		}
		var got, want, size float64
		from := s.out + device.Ptr(c+8*at(p.C, i, j))
		if err := s.gpu.CopyOut(t.Context(), unsafe.Slice((*byte)(unsafe.Pointer(&got)), 8), from, device.Whole(8)); err != nil {
			t.Fatal(err)
		}
		for k := range p.K {
			x := s.host[at(p.A, i, k)] * s.host[b/8+at(p.B, k, j)]
			want, size = want+x, size+math.Abs(x)
		}
		if !(math.Abs(got-want) <= size*float64(p.K+3)*0x1p-53) {
			t.Errorf("%v: C[%d,%d] is %v, want %v", p, i, j, got, want)
		}
	}
}
