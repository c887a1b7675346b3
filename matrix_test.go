package tilework

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// counted returns a rows×cols matrix whose element (i, j) is 100·i + j.
func counted(rows, cols int) Matrix[float64] {
	m := New[float64](rows, cols)
	for i := range rows {
		for j := range cols {
			m.Set(i, j, float64(100*i+j))
		}
	}
	return m
}

func TestViewsShareMemory(t *testing.T) {
	m := counted(4, 6)
	s := m.Sub(1, 2, 2, 3)
	if s.At(0, 0) != 102 || s.At(1, 2) != 204 {
		t.Errorf("Sub(1, 2, 2, 3) = %v, %v at its corners", s.At(0, 0), s.At(1, 2))
	}
	st := m.T().Sub(2, 1, 3, 2) // the same part, transposed
	for i := range 2 {
		for j := range 3 {
			if st.At(j, i) != s.At(i, j) {
				t.Errorf("element (%d, %d) of the transposed part is %v, want %v", j, i, st.At(j, i), s.At(i, j))
			}
		}
	}
	st.Set(2, 1, -1)
	if m.At(2, 4) != -1 {
		t.Error("setting an element of a view did not change the matrix")
	}
	c := st.clone()
	if c.Transposed() || c.Rows() != 3 || c.Cols() != 2 ||
		!slices.Equal(c.Data(), []float64{102, 202, 103, 203, 104, -1}) {
		t.Errorf("clone of a transposed part = %d×%d %v", c.Rows(), c.Cols(), c.Data())
	}
	c.Set(0, 0, 7)
	if m.At(1, 2) == 7 {
		t.Error("a clone shares memory with its source")
	}
	if len(s.Data()) != 6+3 {
		t.Errorf("a 2×3 part of stride 6 spans %d elements, want 9", len(s.Data()))
	}
}

func TestEmptyViews(t *testing.T) {
	m := counted(3, 4)
	for _, s := range []Matrix[float64]{m.Sub(3, 4, 0, 0), m.Sub(0, 4, 3, 0), m.Sub(3, 0, 0, 4), m.T().Sub(4, 3, 0, 0),
		New[float64](0, 5), {}} {
		if s.Err() != nil || len(s.Data()) != 0 {
			t.Errorf("an empty %d×%d view: error %v, %d elements", s.Rows(), s.Cols(), s.Err(), len(s.Data()))
		}
		if c := s.clone(); c.Err() != nil || c.Rows() != s.Rows() || c.Cols() != s.Cols() {
			t.Errorf("the clone of an empty %d×%d view is %d×%d, error %v", s.Rows(), s.Cols(), c.Rows(), c.Cols(), c.Err())
		}
	}
}

func TestBadMatricesKeepTheirError(t *testing.T) {
	ok := counted(3, 4)
	for name, m := range map[string]Matrix[float64]{
		"negative rows":        New[float64](-1, 2),
		"negative columns":     FromSlice(2, -1, []float64{}),
		"too few elements":     FromSlice(2, 2, make([]float64, 3)),
		"too many elements":    FromSlice(2, 2, make([]float64, 5)),
		"overflow":             New[float64](math.MaxInt/2, 3),
		"overflow of bytes":    New[float64](math.MaxInt/4, 1),
		"stride too small":     FromStrided(2, 3, 2, make([]float64, 9)),
		"slice too short":      FromStrided(2, 3, 5, make([]float64, 7)),
		"stride overflow":      FromStrided(math.MaxInt, 1, math.MaxInt, make([]float64, 7)),
		"part outside":         ok.Sub(1, 1, 3, 1),
		"part overflowing":     ok.Sub(1, 1, math.MaxInt, 1),
		"part before":          ok.Sub(-1, 0, 1, 1),
		"part of invalid":      New[float64](-1, 1).Sub(0, 0, 0, 0),
		"transpose of invalid": New[float64](-1, 1).T(),
		"clone of invalid":     New[float64](-1, 1).clone(),
		"negative part":        ok.Sub(0, 0, -1, 1),
		"clone of bad stride":  FromStrided(2, 3, 1, make([]float64, 9)).clone(),
	} {
		if !errors.Is(m.Err(), ErrShape) {
			t.Errorf("%s: error %v, want ErrShape", name, m.Err())
		}
		if _, err := Mul(t.Context(), m, ok); !errors.Is(err, ErrShape) {
			t.Errorf("%s: Mul's error is %v, want ErrShape", name, err)
		}
		if _, err := Mul(t.Context(), ok, m); !errors.Is(err, ErrShape) {
			t.Errorf("%s as B: Mul's error is %v, want ErrShape", name, err)
		}
	}
	if m := New[float64](1<<10, math.MaxInt>>13); !errors.Is(m.Err(), ErrOutOfMemory) {
		t.Errorf("a matrix of nearly math.MaxInt bytes: error %v, want ErrOutOfMemory", m.Err())
	}
}

func TestIndexOutOfRangePanics(t *testing.T) {
	m := counted(2, 3)
	for _, at := range [][2]int{{2, 0}, {0, 3}, {-1, 0}, {0, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("At(%d, %d) of a 2×3 matrix did not panic", at[0], at[1])
				}
			}()
			m.At(at[0], at[1])
		}()
	}
}
