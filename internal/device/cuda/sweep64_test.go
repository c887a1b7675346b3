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
	"tilework/internal/gpu/exec"
	gpukernel "tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
)

// TestSweep64 measures tiles of a kernel on float64 products, to choose the tiles to list for it.
// TILEWORK_SWEEP64 has one line per set of products,
//
//	KERNEL TILE,TILE,… MxNxK,MxNxK,… [NN|NT|TN|TT]
//
// with ';' as the line separator. The tile "auto" lets the kernel choose. Operands are random in
// [-1, 1). Runs cycle through several sets of operands, so that none is in the L2 cache when it is
// used again. Some elements of each product are verified.
func TestSweep64(t *testing.T) {
	sweep := os.Getenv("TILEWORK_SWEEP64")
	if sweep == "" {
		t.Skip("set TILEWORK_SWEEP64 to lines of KERNEL TILES SHAPES to measure")
	}
	s := &sweeper64{gpu: openGPU(t), rng: rand.New(rand.NewPCG(1, 2))}
	s.backend = stream.New(s.gpu)
	defer func() {
		if err := s.backend.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.host = make([]float64, sweep64Pool/8)
	for i := range s.host {
		s.host[i] = 2*s.rng.Float64() - 1
	}
	for _, at := range []*device.Ptr{&s.in, &s.out} {
		p, err := s.gpu.Alloc(sweep64Pool)
		if err != nil {
			t.Fatal(err)
		}
		*at = p
	}
	if err := s.gpu.CopyIn(t.Context(), s.in, dtype.Bytes(s.host), device.Whole(sweep64Pool)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(sweep, ";") {
		f := append(strings.Fields(line), "NN")
		if len(f) < 4 {
			t.Fatalf("line %q: want KERNEL TILES SHAPES [TRANSPOSES]", line)
		}
		for shape := range strings.SplitSeq(f[2], ",") {
			var m, n, depth int
			if _, err := fmt.Sscanf(shape, "%dx%dx%d", &m, &n, &depth); err != nil {
				t.Fatalf("%q: %v", shape, err)
			}
			p := sweep64Problem(t, m, n, depth, f[3])
			for tile := range strings.SplitSeq(f[1], ",") {
				s.measure(t, f[0], tile, p)
			}
		}
	}
}

// sweep64Pool is the size in bytes of the memory for operands and of that for results.
const sweep64Pool = 1 << 30

type sweeper64 struct {
	gpu     *GPU
	backend *stream.Backend
	rng     *rand.Rand
	host    []float64
	in, out device.Ptr
}

func sweep64Problem(t *testing.T, m, n, k int, ops string) *gemm.Problem {
	t.Helper()
	operand := func(rows, cols int, op byte) gemm.Layout {
		if op == 'T' {
			return gemm.Dense(dtype.F64, cols, rows).T()
		}
		return gemm.Dense(dtype.F64, rows, cols)
	}
	p, _, err := gemm.New(1, operand(m, k, ops[0]), operand(k, n, ops[1]), 0, gemm.Dense(dtype.F64, m, n),
		gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func (s *sweeper64) measure(t *testing.T, kernel, tile string, p *gemm.Problem) {
	t.Helper()
	opt := exec.Options{Kernel: kernel, Tile: tile, KeepLayout: true}
	if tile == "auto" {
		opt.Tile = ""
	}
	plan, err := s.backend.Plan(p, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Compile(t.Context()); err != nil {
		t.Fatal(err)
	}
	const align = 256
	up := func(n int) int { return (n + align - 1) / align * align }
	a, b, out := up(p.A().Bytes()), up(p.B().Bytes()), up(p.C().Bytes())
	if a+b > sweep64Pool || out > sweep64Pool {
		t.Fatalf("%v exceeds a pool of %d bytes", p, sweep64Pool)
	}
	sets := make([]gpukernel.Memory, min(sweep64Pool/(a+b), sweep64Pool/out, 1+(128<<20)/(a+b+out)))
	for i := range sets {
		sets[i] = gpukernel.Memory{gemm.A: s.in + device.Ptr(i*(a+b)), gemm.C: s.out + device.Ptr(i*out)}
		sets[i][gemm.B] = sets[i][gemm.A] + device.Ptr(a)
	}
	run := func(n int) time.Duration {
		return (&speed{gpu: s.gpu}).events(t, func() error {
			for i := range n {
				if err := plan.Enqueue(t.Context(), sets[i%len(sets)]); err != nil {
					return err
				}
			}
			return nil
		}) / time.Duration(n)
	}
	once := min(run(1), run(1))
	n := max(2, min(200, int(3*time.Millisecond/once)))
	d := median(3, func() time.Duration { return run(n) })
	t.Logf("%v %-22v %9.2f µs %6.2f TFLOP/s", p, plan.Config.Tile, d.Seconds()*1e6, p.Flops()/d.Seconds()/1e12)
	s.verify(t, p, a)
}

// verify checks some elements of the product of the first set of operands. Its B starts at byte b.
func (s *sweeper64) verify(t *testing.T, p *gemm.Problem, b int) {
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
		from := s.out + device.Ptr(8*at(p.Layouts[gemm.C], i, j))
		if err := s.gpu.CopyOut(t.Context(), unsafe.Slice((*byte)(unsafe.Pointer(&got)), 8), from,
			device.Whole(8)); err != nil {
			t.Fatal(err)
		}
		for k := range p.K {
			x := s.host[at(p.Layouts[gemm.A], i, k)] * s.host[b/8+at(p.Layouts[gemm.B], k, j)]
			want, size = want+x, size+math.Abs(x)
		}
		if !(math.Abs(got-want) <= size*float64(p.K+3)*0x1p-53) {
			t.Errorf("%v: C[%d,%d] is %v, want %v", p, i, j, got, want)
		}
	}
}
