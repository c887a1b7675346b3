package emu

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

func init() { testkit.CollectRarely() }

// loadFile loads a PTX file of the corpus.
func loadFile(t testing.TB, name string) *Program {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "nvcc", name))
	if err != nil {
		t.Fatal(err)
	}
	return loadText(t, name, string(text))
}

func loadText(t testing.TB, name, text string) *Program {
	t.Helper()
	m, err := ptx.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// findKernel returns the name of the kernel that contains part.
func findKernel(t testing.TB, p *Program, part string) string {
	t.Helper()
	for _, name := range p.Entries() {
		if strings.Contains(name, part) {
			return name
		}
	}
	t.Fatalf("no kernel %q among %q", part, p.Entries())
	return ""
}

func pack(t testing.TB, p *Program, kernel string, args ...any) []byte {
	t.Helper()
	b, err := p.Pack(kernel, args...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// upload allocates memory and writes values to it.
func upload(t testing.TB, mem *Memory, values any) uint64 {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := mem.Alloc(len(b))
	if err == nil {
		err = mem.Write(addr, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// download reads values from memory.
func download(t testing.TB, mem *Memory, addr uint64, values any) {
	t.Helper()
	b := make([]byte, binary.Size(values))
	if err := mem.Read(addr, b); err != nil {
		t.Fatal(err)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
}

func randomValues(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = rng.Float32()*2 - 1
	}
	return v
}

// matmulReference returns A·B with the operations of the kernels: in the order of K, with or
// without fused multiply-add.
func matmulReference(a, b []float32, m, n, k int, fused bool) []float32 {
	c := make([]float32, m*n)
	for i := range m {
		for j := range n {
			var sum float32
			for p := range k {
				x, y := a[i*k+p], b[p*n+j]
				if fused {
					sum = float32(number.FMAOdd(float64(x), float64(y), float64(sum)))
				} else {
					sum += float32(x * y)
				}
			}
			c[i*n+j] = sum
		}
	}
	return c
}

func TestMatmul(t *testing.T) {
	rng := testrand.New(t)
	files, err := filepath.Glob("../testdata/nvcc/matmul.*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		p := loadFile(t, filepath.Base(file))
		for _, kernel := range []struct {
			name string
			tile int
		}{{"naive", 8}, {"naive", 16}, {"tiledIfLi16", 16}} {
			for _, s := range [][3]int{{16, 16, 16}, {33, 17, 20}, {1, 40, 3}, {5, 5, 0}} {
				m, n, k := s[0], s[1], s[2]
				a, b := randomValues(rng, m*k), randomValues(rng, k*n)
				mem := NewMemory(MemoryOptions{})
				c := upload(t, mem, make([]float32, m*n))
				name := findKernel(t, p, kernel.name)
				_, err := p.Run(context.Background(), mem, Launch{
					Entry: name, Seed: rng.Uint64(),
					Grid:   Dim3{(n + kernel.tile - 1) / kernel.tile, (m + kernel.tile - 1) / kernel.tile, 1},
					Block:  Dim3{kernel.tile, kernel.tile, 1},
					Params: pack(t, p, name, upload(t, mem, a), upload(t, mem, b), c, int32(m), int32(n), int32(k)),
				})
				if err != nil {
					t.Fatalf("%s: %s %v: %v", file, name, s, err)
				}
				got, want := make([]float32, m*n), matmulReference(a, b, m, n, k, !strings.Contains(file, "O0") &&
					!strings.Contains(file, ".G."))
				download(t, mem, c, got)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%s: %s %v: element %d is %v, want %v", file, name, s, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// benchNaive runs the naive kernel on n×n matrices.
func benchNaive(b *testing.B, n, workers int, observers ...Observer) {
	p := loadFile(b, "matmul.sm_80.O3.ptx")
	rng := rand.New(rand.NewPCG(1, 1))
	mem := NewMemory(MemoryOptions{TrackWrites: len(observers) > 0})
	c := upload(b, mem, make([]float32, n*n))
	name := findKernel(b, p, "naive")
	l := Launch{
		Entry: name, Workers: workers, Observers: observers,
		Grid: Dim3{n / 16, n / 16, 1}, Block: Dim3{16, 16, 1},
		Params: pack(b, p, name, upload(b, mem, randomValues(rng, n*n)), upload(b, mem, randomValues(rng, n*n)), c, int32(n),
			int32(n), int32(n)),
	}
	var done uint64
	for b.Loop() {
		stats, err := p.Run(context.Background(), mem, l)
		if err != nil {
			b.Fatal(err)
		}
		done += stats.Instructions
	}
	b.ReportMetric(float64(done)/b.Elapsed().Seconds()/1e6, "Minst/s")
}

func BenchmarkNaive(b *testing.B)    { benchNaive(b, 256, 1) }
func BenchmarkNaive256(b *testing.B) { benchNaive(b, 256, 2) }

// BenchmarkNaiveObserved has a hook for every event that only counts.
func BenchmarkNaiveObserved(b *testing.B) {
	benchNaive(b, 256, 1, observer(func() *Hooks {
		events := 0
		return &Hooks{
			Access:    func(*Access) { events++ },
			Barrier:   func(*Barrier) { events++ },
			WarpSync:  func(*WarpSync) { events++ },
			Fence:     func(*Fence) { events++ },
			CopyDone:  func(*CopyDone) { events++ },
			Undefined: func(*Undefined) { events++ },
			Fault:     func(*Fault) bool { return true },
		}
	}))
}
