package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

func trace(t *testing.T, k *kernel.Kernel, s kernel.Tile, p *gemm.Problem) *Trace {
	t.Helper()
	x, err := NewTrace(t.Context(), k, s, p)
	if err != nil {
		t.Fatalf("%s %v, %v: %v", k.Name, s, p, err)
	}
	return x
}

// TestTraceTextbook traces the textbook exercise with 4×4 matrices and tiles of 2, whose first
// block is known.
func TestTraceTextbook(t *testing.T) {
	k, s := findKernel(t, "tiled", "2")
	x := trace(t, k, s, problem(t, dtype.F32, 4, 4, 4, false, false))
	if len(x.Blocks) != 4 {
		t.Fatalf("got %d blocks, want 4", len(x.Blocks))
	}
	b := x.Blocks[0]
	if b.Index != [3]int{} || len(b.Phases) != 2 {
		t.Fatalf("got block %v with %d phases, want (0,0,0) with 2", b.Index, len(b.Phases))
	}
	for phase, ph := range b.Phases {
		if len(ph.Loads) != 8 || len(ph.Sums) != 4 || ph.Before != 1 || ph.After != 1 || ph.Ahead != nil {
			t.Fatalf("phase %d: got %+v, want 8 loads, 4 sums and 2 barriers", phase, ph)
		}
		for i, l := range ph.Loads {
			ty, tx := i/2/2, i/2%2
			want := TraceLoad{Thread: [3]int{tx, ty}, Matrix: "A", Row: ty, Col: 2*phase + tx,
				Shared: fmt.Sprintf("As[%d][%d]", ty, tx)}
			if i%2 == 1 {
				want = TraceLoad{Thread: [3]int{tx, ty}, Matrix: "B", Row: 2*phase + ty, Col: tx,
					Shared: fmt.Sprintf("Bs[%d][%d]", ty, tx)}
			}
			want.Value = map[string][][]float64{"A": x.A, "B": x.B}[want.Matrix][want.Row][want.Col]
			if l != want {
				t.Errorf("phase %d: got %+v, want %+v", phase, l, want)
			}
		}
	}
	// A's first row is 1 2 3 4, B's first column 9 5 1 6.
	want := TraceSum{Thread: [3]int{}, Terms: []TraceTerm{{0, 1, 9}, {1, 2, 5}}, Added: 19, Sum: 19}
	if got := b.Phases[0].Sums[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want = TraceSum{Thread: [3]int{}, Terms: []TraceTerm{{2, 3, 1}, {3, 4, 6}}, Added: 27, Sum: 46}
	if got := b.Phases[1].Sums[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	text := x.Text()
	for _, want := range []string{
		"Threads and blocks are written as (x,y).",
		"thread (0,1)  loads A[1][0] = 5 → As[1][0], B[1][0] = 5 → Bs[1][0]\n",
		"thread (0,0)  C[0][0] += A[0][2]·B[2][0] + A[0][3]·B[3][0] = 3·1 + 4·6 = 27, now 46\n",
		"BLOCK (1,0)\n\nPhase 0\n  thread (0,0)  loads A[0][0] = 1 → As[0][0], B[0][2] = 7",
		"barrier: all loads are complete",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// TestTraceSums checks the traces of every kernel and type, with full and partial tiles: each
// element of C is the sum of all its terms, once each and in order, and no load is out of bounds.
func TestTraceSums(t *testing.T) {
	rng := testrand.New(t)
	types := []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2, dtype.I8}
	tries := testkit.Cases(20, 40)
	for _, k := range choose.Kernels() {
		if k.Tensor || k.KPerThread > 0 {
			p := problem(t, k.Types()[0], 4, 4, 4, false, false)
			if _, err := NewTrace(t.Context(), k, k.Tiles[0], p); !errors.Is(err, gemm.ErrUnsupported) {
				t.Errorf("a trace of %s: got error %v, want ErrUnsupported", k.Name, err)
			}
			continue
		}
		for i := range tries {
			s := k.Tiles[rng.IntN(len(k.Tiles))]
			p := problem(t, types[i%len(types)], 1+rng.IntN(MaxTrace), 1+rng.IntN(MaxTrace), 1+rng.IntN(MaxTrace),
				rng.IntN(2) == 0, rng.IntN(2) == 0)
			if refused := k.Check(p, s, kernel.Align{}, nil); refused != nil { // too few registers for float64
				if _, err := NewTrace(t.Context(), k, s, p); err == nil || err.Error() != refused.Error() {
					t.Errorf("a trace of %s with tile %v: got error %v, want %v", k.Name, s, err, refused)
				}
				continue
			}
			checkTrace(t, trace(t, k, s, p), p)
		}
	}
}

func checkTrace(t *testing.T, x *Trace, p *gemm.Problem) {
	t.Helper()
	what := fmt.Sprintf("%s, %s, %v", x.Kernel, x.Config, p)
	sums := map[[2]int]float64{}
	terms := map[[2]int]int{}
	for _, b := range x.Blocks {
		for _, ph := range b.Phases {
			for _, l := range append(ph.Loads, ph.Ahead...) {
				m := map[string][][]float64{"A": x.A, "B": x.B}[l.Matrix]
				if l.Row >= len(m) || l.Col >= len(m[0]) || m[l.Row][l.Col] != l.Value {
					t.Errorf("%s: wrong load %+v", what, l)
				}
			}
			for _, s := range ph.Sums {
				c := [2]int{s.Row, s.Col}
				for _, term := range s.Terms {
					if term.K != terms[c] {
						t.Errorf("%s: C%v: got term %d, want term %d", what, c, term.K, terms[c])
					}
					terms[c]++
					sums[c] += x.A[s.Row][term.K] * x.B[term.K][s.Col]
				}
				if s.Sum != sums[c] {
					t.Errorf("%s: C%v is %v, want %v, the sum of its terms", what, c, s.Sum, sums[c])
				}
			}
		}
	}
	for i := range p.M {
		for j := range p.N {
			if terms[[2]int{i, j}] != p.K {
				t.Errorf("%s: C[%d][%d] has %d terms, want %d", what, i, j, terms[[2]int{i, j}], p.K)
			}
		}
	}
}

// TestTraceCheck checks that a C that differs from the traced sums is an error.
func TestTraceCheck(t *testing.T) {
	k, s := findKernel(t, "tiled", "2")
	p := problem(t, dtype.F32, 4, 4, 4, false, false)
	x := trace(t, k, s, p)
	x.C[3][2]++
	if err := x.check(p); err == nil || !strings.Contains(err.Error(), "C[3][2]") {
		t.Errorf("wrong C[3][2]: got error %v", err)
	}
}

func TestTraceJSON(t *testing.T) {
	k, s := findKernel(t, "blocked", "64x64x8/8x4/4")
	x := trace(t, k, s, problem(t, dtype.I8, 3, 5, 16, true, false))
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var y Trace
	if err := json.Unmarshal(text, &y); err != nil || !reflect.DeepEqual(&y, x) {
		t.Errorf("round trip: got error %v,\n%+v\nwant\n%+v", err, y, x)
	}
}

func TestTraceErrors(t *testing.T) {
	k, s := findKernel(t, "tiled", "2")
	scaled := problem(t, dtype.F32, 4, 4, 4, false, false)
	scaled.Alpha = 2
	for _, c := range []struct {
		p    *gemm.Problem
		want string
	}{
		{problem(t, dtype.F32, MaxTrace+1, 4, 4, false, false), "at most 16"},
		{scaled, "alpha"},
	} {
		if _, err := NewTrace(t.Context(), k, s, c.p); !errors.Is(err, gemm.ErrUnsupported) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}
