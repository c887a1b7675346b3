package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/model"
	"tilework/internal/testkit/testrand"
)

// stepsOf returns the steps of a block of a float32 product.
func stepsOf(t *testing.T, kernel, tile string, m, n, k, block int) *Steps {
	t.Helper()
	kernelOf, s := findKernel(t, kernel, tile)
	gpu, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	p := problem(t, dtype.F32, m, n, k, false, false)
	if kernelOf.Tensor {
		if *p, err = p.WithPrecision(gemm.TF32); err != nil {
			t.Fatal(err)
		}
	}
	machine, _, err := NewMachine(kernelOf, s, p, gpu, Source{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := machine.Steps(t.Context(), block)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestSteps checks the steps of the textbook exercise: 4×4 matrices with tiles of 2. A phase has
// two loads, two stores, a barrier, two multiply-adds with two reads each, and a barrier. At the
// end, the sums are written.
func TestSteps(t *testing.T) {
	x := stepsOf(t, "tiled", "2", 4, 4, 4, 3) // the block of the last two rows and columns
	phase := []string{"load", "store", "load", "store", "barrier", "read", "read", "fma", "read", "read", "fma", "barrier"}
	want := append(append(append([]string{}, phase...), phase...), "write")
	if len(x.Steps) != len(want) {
		t.Fatalf("got %d steps, want %d", len(x.Steps), len(want))
	}
	for i, s := range x.Steps {
		phase := i / 12
		if s.Op == "write" {
			phase = -1
		}
		if s.Op != want[i] || s.Op != "barrier" && len(s.Parts[0].Elements) != 4 || s.Line == 0 || s.Phase != phase {
			t.Errorf("step %d: got %+v, want %s by 4 threads in phase %d", i, s, want[i], phase)
		}
	}
	as, bs := SharedArray{"As", "A", 0, 4, 2}, SharedArray{"Bs", "B", 32, 4, 2} // aligned to 128 bytes
	if !slices.Equal(x.Arrays, []SharedArray{as, bs}) {
		t.Errorf("got arrays %+v, want %+v and %+v", x.Arrays, as, bs)
	}
	// In the second phase thread 1, (0,1), stores A[2][3] to As[0][1]. Its read of As is of A[2][2].
	for at, want := range map[int][3]int{13: {1, 2*4 + 3, 1}, 17: {1, 2*4 + 2, 0}} {
		p := x.Steps[at].Parts[0]
		if got := [3]int{p.Threads[1], p.Elements[1], p.Words[1]}; p.Matrix != "A" || got != want {
			t.Errorf("step %d: got thread, element and word %v of %q, want %v of A", at, got, p.Matrix, want)
		}
	}
	// Thread 3, (1,1), then adds A[3][2]·B[2][3] to C[3][3], in step 20.
	for i, want := range []int{3*4 + 2, 2*4 + 3, 3*4 + 3} {
		if p := x.Steps[19].Parts[i]; p.Threads[3] != 3 || p.Elements[3] != want {
			t.Errorf("got element %d of %s for thread %d, want %d", p.Elements[3], p.Matrix, p.Threads[3], want)
		}
	}
	if got := x.Terms[4*15:]; !slices.Equal(got, []int{8, 11, 20, 23}) {
		t.Errorf("C[3][3] gets its terms in the steps %v, want 8, 11, 20 and 23", got)
	}
	if s := x.Steps[17]; s.Wavefronts != 1 || s.Ideal != 1 {
		t.Errorf("got %d wavefronts, %d ideal, want 1", s.Wavefronts, s.Ideal)
	}
	if s := x.Steps[0]; s.Sectors != 1 {
		t.Errorf("a load of two rows of 16 bytes takes %d sectors, want 1", s.Sectors)
	}
}

// TestStepsSums follows every kernel of the study through random products, block by block. Each
// element of C belongs to one block, and gets each of its terms in one step, in order.
func TestStepsSums(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range []struct{ kernel, tile, uses string }{
		{"naive", "16", "load fma write"},
		{"tiled", "2", "load store barrier read fma write"},
		{"tiled", "16", "load store barrier read fma write"},
		{"tiled", "32", "load store barrier read fma write"},
		{"blocked", "32x32x16/4x4/4", "copy wait barrier read fma store write"},
		{"mma", "32x32x32/2x4/4", "copy wait barrier read multiply write"},
		{"wgmma", "64x16x32/2x4/12t", "copy wait arrive read multiply write"},
	} {
		for try := range 3 {
			m, n, k := 1+rng.IntN(40), 1+rng.IntN(40), 1+rng.IntN(64)
			if try == 0 {
				m, n, k = 32, 32, 64
			}
			if c.kernel == "wgmma" {
				n = max(n, 2)
			}
			t.Run(fmt.Sprintf("%s/%s/%dx%dx%d", c.kernel, c.tile, m, n, k), func(t *testing.T) {
				owned := make([]int, m*n)
				for block, blocks := 0, 1; block < blocks; block++ {
					x := stepsOf(t, c.kernel, c.tile, m, n, k, block)
					blocks = x.Grid[0] * x.Grid[1] * x.Grid[2]
					checkSteps(t, x, k, owned)
					if try > 0 || block > 0 {
						continue
					}
					for _, op := range strings.Fields(c.uses) {
						if !slices.ContainsFunc(x.Steps, func(s Step) bool { return s.Op == op }) {
							t.Errorf("no step is a %s", op)
						}
					}
				}
				if i := slices.IndexFunc(owned, func(n int) bool { return n != 1 }); i >= 0 {
					t.Errorf("%d blocks own element %d of C, want 1", owned[i], i)
				}
			})
		}
	}
}

func checkSteps(t *testing.T, x *Steps, k int, owned []int) {
	t.Helper()
	for i, owner := range x.Owner {
		terms := x.Terms[i*k : (i+1)*k]
		if owner < 0 {
			if slices.Max(terms) > 0 {
				t.Fatalf("element %d of another block has terms %v", i, terms)
			}
			continue
		}
		owned[i]++
		if slices.Min(terms) < 1 || !slices.IsSorted(terms) || slices.Max(terms) > len(x.Steps) {
			t.Fatalf("element %d gets its terms in the steps %v of %d, want an order along K", i, terms, len(x.Steps))
		}
	}
	phase := 0
	for i, s := range x.Steps {
		if s.Phase >= 0 && s.Phase < phase || s.Phase >= k {
			t.Fatalf("step %d is in phase %d after %d", i, s.Phase, phase)
		}
		phase = max(phase, s.Phase)
		for _, p := range s.Parts {
			for i, word := range p.Words {
				if p.Elements[i] >= 0 && !slices.ContainsFunc(x.Arrays, func(a SharedArray) bool {
					return word >= a.First && word < a.First+a.Words && (a.Matrix == p.Matrix)
				}) {
					t.Fatalf("step %d, %s: word %d is in no array of %s: %+v", i, s.Op, word, p.Matrix, x.Arrays)
				}
			}
		}
	}
}

// TestStepsFragments checks the threads that hold the operands of a tensor core instruction, as the
// PTX manual draws them for m16n8k8.
func TestStepsFragments(t *testing.T) {
	const m, n, k = 32, 32, 32
	x := stepsOf(t, "mma", "32x32x32/2x4/4", m, n, k, 0)
	i := slices.IndexFunc(x.Steps, func(s Step) bool { return s.Op == "multiply" })
	s := x.Steps[i]
	a, b, c := s.Parts[0], s.Parts[1], s.Parts[2]
	if len(a.Elements) != 16*8 || len(b.Elements) != 8*8 || len(c.Elements) != 16*8 {
		t.Fatalf("got fragments of %d, %d and %d elements, want 128, 64 and 128", len(a.Elements), len(b.Elements),
			len(c.Elements))
	}
	row, col := a.Elements[0]/k, b.Elements[0]%n // of the fragments' first elements
	for lane := range frag.Lanes {
		g, q := lane/4, lane%4
		at := func(r, c, cols int) int { return r*cols + c }
		wantA := []int{at(row+g, q, k), at(row+g+8, q, k), at(row+g, q+4, k), at(row+g+8, q+4, k)}
		wantB := []int{at(q, col+g, n), at(q+4, col+g, n)}
		wantC := []int{at(row+g, col+2*q, n), at(row+g, col+2*q+1, n), at(row+g+8, col+2*q, n), at(row+g+8, col+2*q+1, n)}
		if got := a.Elements[4*lane : 4*lane+4]; !slices.Equal(got, wantA) {
			t.Errorf("lane %d holds %v of A, want %v", lane, got, wantA)
		}
		if got := b.Elements[2*lane : 2*lane+2]; !slices.Equal(got, wantB) {
			t.Errorf("lane %d holds %v of B, want %v", lane, got, wantB)
		}
		if got := c.Elements[4*lane : 4*lane+4]; !slices.Equal(got, wantC) {
			t.Errorf("lane %d holds %v of C, want %v", lane, got, wantC)
		}
	}
}

// TestStepsErrors checks the limits.
func TestStepsErrors(t *testing.T) {
	k, s := findKernel(t, "tiled", "2")
	gpu, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in       dtype.Type
		m, block int
		want     string
	}{
		{dtype.F32, MaxSteps + 1, 0, "the steps of 65×4×4: want at most 64"},
		{dtype.F32, 4, 4, "block 4: want 0 to 3"},
		{dtype.F32, 4, -1, "block -1: want 0 to 3"},
		{dtype.F16, 4, 0, "want elements of 4 bytes"},
	} {
		machine, _, err := NewMachine(k, s, problem(t, c.in, c.m, 4, 4, false, false), gpu, Source{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := machine.Steps(t.Context(), c.block); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}
