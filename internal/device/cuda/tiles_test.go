package cuda

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	gpukernel "tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit/testrand"
)

// TestTiles measures tiles of the blocked kernel on float32 products, for tuning. TILEWORK_TILES
// names a file with one product per line: M, N, K and a list of tiles, where "auto" selects the
// default tile. The matrices are read from DRAM, not from the L2 cache. Some elements of each
// result are verified.
func TestTiles(t *testing.T) {
	path := os.Getenv("TILEWORK_TILES")
	if path == "" {
		t.Skip("set TILEWORK_TILES to a file of lines such as: 4096 4096 4096 auto 128x256x8/16x8/3")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newTiles(t)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 4 {
			t.Fatalf("%s: line %q: want M N K TILE...", path, line)
		}
		p := s.product(words[:3])
		for _, tile := range words[3:] {
			took, chosen := s.time(p, strings.TrimPrefix(tile, "auto"))
			t.Logf("%6d %6d %6d  %-22s %9.1f µs %6.2f TFLOP/s", p.M, p.N, p.K, chosen, took.Seconds()*1e6,
				p.Flops()/took.Seconds()/1e12)
		}
	}
}

// tiles is a GPU with random data for A and B.
type tiles struct {
	speed
	t        *testing.T
	data     []float32 // contents of the operand memory, repeated
	size     int       // bytes of operand memory
	operands device.Ptr
}

func newTiles(t *testing.T) *tiles {
	s := &tiles{speed: speed{gpu: openGPU(t)}, t: t, data: make([]float32, 16<<20), size: 3 << 30}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range s.data {
		s.data[i] = 2*rng.Float32() - 1
	}
	var err error
	if s.operands, err = s.gpu.Alloc(s.size); err != nil {
		t.Fatal(err)
	}
	b := dtype.Bytes(s.data)
	for at := 0; at < s.size; at += len(b) {
		if err := s.gpu.CopyIn(t.Context(), s.operands+device.Ptr(at), b, device.Whole(len(b))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *tiles) product(sizes []string) *gemm.Problem {
	n := [3]int{}
	for i, text := range sizes {
		v, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatal(err)
		}
		n[i] = v
	}
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, n[0], n[2]), gemm.Dense(dtype.F32, n[2], n[1]), 0,
		gemm.Dense(dtype.F32, n[0], n[1]), gemm.Epilogue{})
	if err != nil {
		s.t.Fatal(err)
	}
	return &p
}

// time returns the time of p with a tile and the name of the selected tile.
func (s *tiles) time(p *gemm.Problem, tile string) (time.Duration, string) {
	t := s.t
	b := stream.New(s.gpu)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	plan, err := b.Plan(p, exec.Options{Kernel: "blocked", Tile: tile, KeepLayout: true})
	if err != nil {
		t.Fatal(err)
	}
	const align, cold = 256, 150 << 20 // bytes; cold is more than twice the L2 cache
	up := func(n int) int { return (n + align - 1) / align * align }
	c, err := s.gpu.Alloc(up(p.C().Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.gpu.Free(c); err != nil {
			t.Error(err)
		}
	}()
	set := up(p.A().Bytes()) + up(p.B().Bytes())
	sets, turn := max(1, min(s.size/set, cold/set+1)), 0
	run := func() error {
		at := s.operands + device.Ptr(turn%sets*set)
		turn++
		return plan.Enqueue(t.Context(), gpukernel.Memory{gemm.A: at, gemm.B: at + device.Ptr(up(p.A().Bytes())), gemm.C: c})
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	s.verify(p, c, dtype.F32.Elements(up(p.A().Bytes())))
	times := max(1, min(50, int(5e-3/(p.Flops()/40e12+3e-6))))
	batch := func() error {
		for range times {
			if err := run(); err != nil {
				return err
			}
		}
		return nil
	}
	s.events(t, batch)
	took := median(7, func() time.Duration { return s.events(t, batch) }) / time.Duration(times)
	return took, plan.Config.Tile.String()
}

// verify checks some elements of the C at at. B starts offsetB elements after A.
func (s *tiles) verify(p *gemm.Problem, at device.Ptr, offsetB int) {
	t := s.t
	c := make([]float32, p.M*p.N)
	if err := s.gpu.CopyOut(t.Context(), dtype.Bytes(c), at, device.Whole(4*len(c))); err != nil {
		t.Fatal(err)
	}
	element := func(i int) float64 { return float64(s.data[i%len(s.data)]) }
	rng := testrand.New(t)
	positions := [][2]int{{0, 0}, {p.M - 1, p.N - 1}, {0, p.N - 1}, {p.M - 1, 0}}
	for range 50 {
		positions = append(positions, [2]int{rng.IntN(p.M), rng.IntN(p.N)})
	}
	for _, x := range positions {
		var want, size float64
		for k := range p.K {
			term := element(x[0]*p.K+k) * element(offsetB+k*p.N+x[1])
			want, size = want+term, size+math.Abs(term)
		}
		if got := float64(c[x[0]*p.N+x[1]]); !(math.Abs(got-want) <= size*float64(p.K+3)*0x1p-24) {
			t.Errorf("%d×%d×%d: C[%d,%d] is %v, want %v", p.M, p.N, p.K, x[0], x[1], got, want)
		}
	}
}
