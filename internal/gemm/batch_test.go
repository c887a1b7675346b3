package gemm

import (
	"errors"
	"math"
	"testing"

	"tilework/dtype"
)

// TestStrided checks that overlapping C matrices are refused, and that contiguous ones and ones
// side by side in long rows are not.
func TestStrided(t *testing.T) {
	l := Dense(dtype.F32, 4, 4)
	c := l
	c.LD = 12
	p, _, err := New(1, l, l, 0, c, Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		count int
		b     Batch
		want  error
	}{
		"behind each other":        {5, Batch{Stride: Strides{A: 16, B: 16, C: 40}}, nil},
		"side by side":             {3, Batch{Stride: Strides{A: 16, B: 16, C: 4}}, nil},
		"one too many for the row": {4, Batch{Stride: Strides{A: 16, B: 16, C: 4}}, ErrShape},
		"side by side, too near":   {3, Batch{Stride: Strides{A: 16, B: 16, C: 3}}, ErrShape},
		"in each other's rows":     {3, Batch{Stride: Strides{A: 16, B: 16, C: 24}}, ErrShape},
		"operands that overlap":    {3, Batch{Stride: Strides{A: 1, B: 0, C: 40}}, nil},
		"one C for all":            {2, Batch{Stride: Strides{A: 16, B: 16}}, ErrShape},
		"one product":              {1, Batch{}, nil},
		"none":                     {0, Batch{}, nil},
		"fewer than none":          {-1, Batch{}, ErrShape},
		"a distance below 0":       {2, Batch{Stride: Strides{A: -16, B: 16, C: 40}}, ErrShape},
		"too far":                  {3, Batch{Stride: Strides{A: math.MaxInt / 4, B: 16, C: 40}}, ErrShape},
	} {
		q, err := p.Strided(x.count, x.b)
		if !errors.Is(err, x.want) || err == nil != (x.want == nil) {
			t.Errorf("%s: error %v, want %v", name, err, x.want)
		}
		if err == nil && (q.Products() != x.count || q.Flops() != float64(x.count)*p.Flops()) {
			t.Errorf("%s: %d products of %v operations", name, q.Products(), q.Flops())
		}
	}
}

// TestBatchMemory checks that the memory of a batch includes that of the last product, and that
// shared matrices count once.
func TestBatchMemory(t *testing.T) {
	a, b, c := Dense(dtype.F32, 2, 3), Dense(dtype.F32, 3, 5), Dense(dtype.F32, 2, 5)
	p, _, err := New(1, a, b, 0, c, Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	strided, err := p.Strided(4, Batch{Stride: Strides{A: 10, C: 20}})
	if err != nil {
		t.Fatal(err)
	}
	grouped, err := p.Grouped(3, 16)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		p       Problem
		bytes   [Operands]int
		traffic float64
	}{
		{p, [Operands]int{6 * 4, 15 * 4, 10 * 4}, 31 * 4},
		{strided, [Operands]int{36 * 4, 15 * 4, 70 * 4}, (24 + 15 + 40) * 4},
		{grouped, [Operands]int{A: 6 * 4, B: 47 * 4, C: 10 * 4, GroupEnds: 3 * 4}, (6 + 45 + 10) * 4},
	} {
		if got := x.p.Bytes(); got != x.bytes {
			t.Errorf("%v: %v bytes, want %v", &x.p, got, x.bytes)
		}
		if got := x.p.Traffic(); got != x.traffic {
			t.Errorf("%v: a traffic of %v bytes, want %v", &x.p, got, x.traffic)
		}
	}
	if one, at := strided.Product(2); one != p || at != [C + 1]int{80, 0, 160} {
		t.Errorf("product 2 is %v at %v", &one, at)
	}
	transposed := p
	transposed.Layouts[A] = Dense(dtype.F32, 3, 2).T()
	if _, err := transposed.Grouped(2, 15); !errors.Is(err, ErrUnsupported) {
		t.Errorf("groups of a transposed A: %v", err)
	}
}
