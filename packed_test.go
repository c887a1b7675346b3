package tilework

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
)

// TestPacked checks that products with a packed B equal those with the plain B, from several
// goroutines at once. It also checks the errors of unsupported uses of a packed B.
func TestPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := whole[float32](rng, 20, 300), whole[float32](rng, 90, 300).T()
	bias := make([]float32, 90)
	for i := range bias {
		bias[i] = rng.Float32()
	}
	opts := []Option{WithDevice("cpu"), WithColBias(Vector(bias...)), WithSiLU()}
	want, err := Mul(t.Context(), a, b, opts...)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Pack(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if w.Rows() != 300 || w.Cols() != 90 || w.b.Bytes() < 300*90*4 {
		t.Errorf("a packed 300×90 matrix is %d×%d and has %d bytes", w.Rows(), w.Cols(), w.b.Bytes())
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got, err := Mul(t.Context(), a, w, opts...); err != nil || !slices.Equal(got.data, want.data) {
				t.Errorf("error %v, or a result that differs bitwise from that with the plain B", err)
			}
		})
	}
	wg.Wait()

	c := New[float32](20, 90)
	if !raceEnabled { // under the race detector, sync.Pool drops items at random
		if n := testing.AllocsPerRun(20, func() {
			if err := Gemm(t.Context(), 1, a, w, 0, c); err != nil {
				t.Error(err)
			}
		}); n > 0.5 { // a garbage collection may empty the pool between calls
			t.Errorf("a product with a packed B makes %v allocations, want 0", n)
		}
	}
	for _, tc := range []struct {
		what string
		err  error
		want string
	}{
		{"packing for a GPU", second(Pack(t.Context(), b, WithDevice("emu"))), "Open and Upload"},
		{"multiplying on a GPU", Gemm(t.Context(), 1, a, w, 0, c, WithDevice("emu")), "Open and Upload"},
		{"another kernel", Gemm(t.Context(), 1, a, w, 0, c, WithKernel("loop")),
			"kernel loop for a B that was packed for kernel"},
		{"kernel without packing", second(Pack(t.Context(), b, WithKernel("loop"))), "kernel loop packs nothing"},
		{"verification", Gemm(t.Context(), 1, a, w, 0, c, WithVerify()), "needs the unpacked B"},
		{"transposed C", Gemm(t.Context(), 1, a, w, 0, New[float32](90, 20).T()), "transposed C"},
	} {
		if !errors.Is(tc.err, ErrUnsupported) || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: error %v, want ErrUnsupported with %q", tc.what, tc.err, tc.want)
		}
	}
	if err := Gemm(t.Context(), 1, New[float32](20, 301), w, 0, c); !errors.Is(err, ErrShape) {
		t.Errorf("A with 301 columns and a packed B with 300 rows: error %v, want ErrShape", err)
	}
	if _, err := Mul(t.Context(), a, PackedMatrix[float32]{}); !errors.Is(err, ErrShape) {
		t.Errorf("the zero PackedMatrix: error %v, want ErrShape", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestPackedOverlap checks that C must not share memory with A in a product with a packed B.
func TestPackedOverlap(t *testing.T) {
	a := New[float32](16, 16)
	w, err := Pack(t.Context(), New[float32](16, 16))
	if err != nil {
		t.Fatal(err)
	}
	if err := Gemm(t.Context(), 1, a, w, 0, a); !errors.Is(err, ErrOverlap) {
		t.Errorf("C as A: error %v, want ErrOverlap", err)
	}
}

// TestTileFunc checks that the tile function sees each element of C exactly once, with its final
// value, and may change it in place. It covers every CPU kernel, several threads, verification, a
// transposed C and a packed B.
func TestTileFunc(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		if k.Kind != backend.CPU || !k.Available || !slices.Contains(k.Types, dtype.F32) {
			continue
		}
		for _, s := range [][3]int{{5, 300, 70}, {130, 170, 140}} {
			m, n, depth := s[0], s[1], s[2]
			a, b := whole[float32](rng, m, depth), whole[float32](rng, depth, n)
			opts := []Option{WithKernel(k.Name), WithReLU()}
			want, err := Mul(t.Context(), a, b, opts...)
			if err != nil {
				t.Fatal(err)
			}
			for way := range 4 {
				c := New[float32](m, n)
				var mu sync.Mutex
				seen := 0
				all := append(slices.Clip(opts), WithTileFunc(func(tile Matrix[float32], row, col int) {
					mu.Lock()
					defer mu.Unlock()
					seen += tile.Rows() * tile.Cols()
					for i := range tile.Rows() {
						for j := range tile.Cols() {
							if x := want.At(row+i, col+j); tile.At(i, j) != x {
								t.Errorf("%s: element (%d, %d) is %v in its tile, want %v", k.Name, row+i, col+j, tile.At(i, j), x)
							}
							tile.Set(i, j, -tile.At(i, j)-1)
						}
					}
				}))
				switch way {
				case 0:
					err = Gemm(t.Context(), 1, a, b, 0, c, all...)
				case 1:
					err = Gemm(t.Context(), 1, a, b, 0, c, append(all, WithVerify())...)
				case 2:
					c = New[float32](n, m).T()
					err = Gemm(t.Context(), 1, a, b, 0, c, all...)
				case 3:
					if k.Name == "loop" {
						continue
					}
					w, packErr := Pack(t.Context(), b, opts...)
					if packErr != nil {
						t.Fatal(packErr)
					}
					err = Gemm(t.Context(), 1, a, w, 0, c, all...)
				}
				if err != nil {
					t.Fatal(err)
				}
				if seen != m*n {
					t.Errorf("%s, way %d: the tiles have %d elements, want %d", k.Name, way, seen, m*n)
				}
				for i := range m {
					for j := range n {
						if c.At(i, j) != -want.At(i, j)-1 {
							t.Fatalf("%s, way %d: C(%d, %d) is %v, want %v", k.Name, way, i, j, c.At(i, j), -want.At(i, j)-1)
						}
					}
				}
			}
		}
	}
}

// TestTileFuncErrors checks that a tile function of another type, or for a GPU, is an error.
func TestTileFuncErrors(t *testing.T) {
	a := New[float32](8, 8)
	for _, opts := range [][]Option{
		{WithTileFunc(func(Matrix[float64], int, int) {})},
		{WithTileFunc(func(Matrix[float32], int, int) {}), WithDevice("emu")},
	} {
		if _, err := Mul(t.Context(), a, a, opts...); !errors.Is(err, ErrUnsupported) {
			t.Errorf("error %v, want ErrUnsupported", err)
		}
	}
	if _, err := Mul(t.Context(), a, a, WithTileFunc[float32](nil)); err != nil {
		t.Errorf("nil function: error %v", err)
	}
}
