package gemm

import (
	"errors"
	"testing"

	"tilework/dtype"
)

// TestPart checks the layouts and the memory of the operands of a part.
func TestPart(t *testing.T) {
	p, _, err := New(1, Dense(dtype.F32, 5, 3).T(), Dense(dtype.F32, 5, 7), 0, Dense(dtype.F32, 3, 7),
		Epilogue{Bias: BiasCol, RowScale: true, Residual: true, OutScale: true})
	if err != nil {
		t.Fatal(err)
	}
	p.Layouts[Residual] = Layout{Type: dtype.F32, Rows: 3, Cols: 7, LD: 9}
	var b Buffers
	for o := range Operands {
		if l := p.Layout(o); p.Uses(o) {
			b[o] = make([]byte, l.Bytes())
			for i := range l.Type.Elements(len(b[o])) {
				l.Type.Set(b[o], i, float64(i))
			}
		}
	}
	q, m, err := p.Part(Area{Row: 1, Col: 2, Rows: 2, Cols: 4}, &b)
	if err != nil || q.M != 2 || q.N != 4 || q.K != 5 || *q.C() != Dense(dtype.F32, 2, 4) || m[C] != nil {
		t.Fatalf("%v, C %v of %d bytes, error %v", &q, q.C(), len(m[C]), err)
	}
	for _, x := range []struct {
		o       Operand
		i, j    int
		element float64
	}{
		{A, 0, 0, 1}, {A, 1, 4, 14}, {B, 0, 0, 2}, {B, 4, 3, 33}, {Residual, 1, 3, 23}, {Bias, 0, 3, 5}, {RowScale, 0, 1, 2},
		{OutScale, 0, 0, 0},
	} {
		l := q.Layout(x.o)
		if got := l.Type.At(m[x.o], l.Index(x.i, x.j)); got != x.element {
			t.Errorf("%v: element (%d, %d) is %v, want %v", x.o, x.i, x.j, got, x.element)
		}
	}
	if _, _, err := p.Part(Area{Row: 2, Rows: 2, Cols: 7}, &b); !errors.Is(err, ErrShape) {
		t.Errorf("rows 2 and 3 of 3: error %v, want ErrShape", err)
	}
	p.Batch.Kind = Grouped
	if _, _, err := p.Part(Area{Rows: 1, Cols: 7}, &b); !errors.Is(err, ErrUnsupported) {
		t.Errorf("groups: error %v, want ErrUnsupported", err)
	}
}

// TestShares checks that shares are disjoint, complete and about equal.
func TestShares(t *testing.T) {
	for _, size := range [][2]int{{0, 0}, {1, 1}, {63, 64}, {100, 300}, {640, 100}, {1000, 1000}, {1 << 20, 5},
		{7, 99_999}} {
		for _, n := range []int{1, 2, 3, 4, 7, 64} {
			p := Problem{M: size[0], N: size[1]}
			rows, cols := 0, 0
			for _, a := range p.Shares(n) {
				byRows := a.Cols == p.N && a.Row == rows
				if !byRows && (a.Rows != p.M || a.Col != cols) || a.Rows < 0 || a.Cols < 0 {
					t.Fatalf("%v in %d shares: %v after %d rows and %d columns", size, n, a, rows, cols)
				}
				rows, cols = rows+a.Rows, cols+a.Cols
			}
			side := max(p.M, p.N)
			if p.M >= p.N && rows != p.M || p.M < p.N && cols != p.N {
				t.Errorf("%v in %d shares: %d rows and %d columns", size, n, rows, cols)
			}
			for _, a := range p.Shares(n) {
				got := a.Rows
				if p.M < p.N {
					got = a.Cols
				}
				if side > 256*n*16 && (got < side/n*9/10 || got > side/n*11/10) {
					t.Errorf("%v in %d shares: one has %d of %d", size, n, got, side)
				}
			}
		}
	}
}
