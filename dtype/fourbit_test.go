package dtype_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/matio"
)

// fourBit gives the elements of a type 4 bits until the end of the test and returns the type.
func fourBit(t *testing.T) dtype.Type {
	in := *dtype.I8.Info()
	in.Name, in.Short, in.Bits = "int4", "i4", 4
	dtype.Replace(t, dtype.I8, in)
	return dtype.I8
}

// TestFourBitSizes checks the sizes and the leading dimensions of matrices of a 4-bit type.
func TestFourBitSizes(t *testing.T) {
	i4 := fourBit(t)
	l := gemm.Dense(i4, 3, 5)
	if want := (gemm.Layout{Type: i4, Rows: 3, Cols: 5, LD: 6}); l != want {
		t.Errorf("Dense: got %+v, want %+v", l, want)
	}
	if got := l.Bytes(); got != 3+3+3 {
		t.Errorf("Bytes: got %d, want 9", got)
	}
	for _, x := range []struct {
		l    gemm.Layout
		want error
	}{
		{l, nil},
		{gemm.Layout{Type: i4, Rows: 3, Cols: 5, LD: 5}, gemm.ErrShape},
		{gemm.Layout{Type: i4, Rows: 1, Cols: math.MaxInt - 1, LD: math.MaxInt - 1}, nil},
		{gemm.Layout{Type: i4, Rows: 2, Cols: 2, LD: math.MaxInt - 1}, gemm.ErrShape},
	} {
		if err := x.l.Check("A"); !errors.Is(err, x.want) {
			t.Errorf("%+v: got %v, want %v", x.l, err, x.want)
		}
	}
	const want = "shapes do not fit: A has leading dimension 5: want rows of int4, 4 bits each, that take whole bytes"
	if err := (&gemm.Layout{Type: i4, Rows: 3, Cols: 5, LD: 5}).Check("A"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestFourBitParts checks the offsets of parts of a matrix of a 4-bit type, which must start at
// whole bytes.
func TestFourBitParts(t *testing.T) {
	i4 := fourBit(t)
	l := gemm.Dense(i4, 6, 10)
	for _, x := range []struct {
		l    gemm.Layout
		i, j int
		want int // bytes; -1 for ErrShape
	}{
		{l, 0, 2, 1}, {l, 3, 0, 15}, {l, 3, 4, 17}, {l, 3, 3, -1},
		{l.T(), 2, 0, 1}, {l.T(), 4, 3, 17}, {l.T(), 3, 3, -1},
	} {
		part, offset, err := x.l.Sub(x.i, x.j, 2, 2)
		switch {
		case x.want < 0:
			if !errors.Is(err, gemm.ErrShape) {
				t.Errorf("part of %v from (%d, %d): got error %v, want ErrShape", x.l, x.i, x.j, err)
			}
		case err != nil || part.Type.Bytes(offset) != x.want || part.LD != l.LD:
			t.Errorf("part of %v from (%d, %d): got %v at byte %d, error %v, want byte %d", x.l, x.i, x.j, part,
				part.Type.Bytes(offset), err, x.want)
		}
	}
}

// TestFourBitProblem checks the bytes, offsets and traffic of single products and of batches of a
// 4-bit type.
func TestFourBitProblem(t *testing.T) {
	i4 := fourBit(t)
	p, _, err := gemm.New(1, gemm.Dense(i4, 4, 6), gemm.Dense(i4, 6, 8), 0, gemm.Dense(dtype.I32, 4, 8), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Bytes(), ([gemm.Operands]int{12, 24, 128}); got != want {
		t.Errorf("Bytes: got %v, want %v", got, want)
	}
	if got := p.Traffic(); got != 12+24+128 {
		t.Errorf("Traffic: got %v, want 164", got)
	}
	short := gemm.Buffers{make([]byte, 12), make([]byte, 23), make([]byte, 128)}
	if err := short.Check(&p); !errors.Is(err, gemm.ErrShape) {
		t.Errorf("buffer of B one byte too short: got %v, want ErrShape", err)
	}

	b, err := p.Strided(3, gemm.Batch{Stride: gemm.Strides{30, 48, 32}})
	if err != nil {
		t.Fatal(err)
	}
	if _, at := b.Product(2); at != [gemm.C + 1]int{30, 48, 256} {
		t.Errorf("product 2 starts at bytes %v, want [30 48 256]", at)
	}
	if _, err := p.Strided(3, gemm.Batch{Stride: gemm.Strides{31, 48, 32}}); !errors.Is(err, gemm.ErrShape) {
		t.Errorf("batch with an A every 31 elements: got %v, want ErrShape", err)
	}
	g, err := p.Grouped(2, 48)
	if err != nil {
		t.Fatal(err)
	}
	if _, at, _ := g.Group(1, 3, 4); at != [gemm.C + 1]int{9, 24, 96} {
		t.Errorf("group 1 starts at bytes %v, want [9 24 96]", at)
	}

	l, m := gemm.Layout{Type: i4, Rows: 2, Cols: 2, LD: 6}, make([]byte, 8)
	if gemm.Overlap(l, m, l, m[1:]) || !gemm.Overlap(l, m, l, m[3:]) {
		t.Error("Overlap: want parts side by side apart, and parts one row apart to overlap")
	}
}

// TestFourBitVectors checks the vectors and the padding that kernels use for a 4-bit type.
func TestFourBitVectors(t *testing.T) {
	i4 := fourBit(t)
	if got := kernel.VectorLen(gemm.Dense(i4, 4, 96), 64); got != 32 {
		t.Errorf("VectorLen: got %d elements, want the 32 of 16 bytes", got)
	}
	if got := gemm.Padded(gemm.Dense(i4, 4, 33)).LD; got != 64 {
		t.Errorf("Padded: got leading dimension %d, want 64", got)
	}
}

// TestFourBitFile writes a matrix of a 4-bit type without its padding and reads it back.
func TestFourBitFile(t *testing.T) {
	i4 := fourBit(t)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	m := &matio.Matrix{Layout: gemm.Layout{Type: i4, Rows: 3, Cols: 6, LD: 8}, Data: []byte("abc-def-ghi")}
	if err := matio.Write(t.Context(), path, m.Layout, m.Data, matio.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || !bytes.HasSuffix(content, []byte(" abcdefghi")) {
		t.Errorf("got file %q, error %v, want it to end in the 9 bytes of the rows", content, err)
	}
	back, err := matio.Read(t.Context(), path, matio.ReadOptions{})
	if err != nil || back.Layout != gemm.Dense(i4, 3, 6) || string(back.Data) != "abcdefghi" {
		t.Errorf("read back %+v, error %v", back, err)
	}
}
