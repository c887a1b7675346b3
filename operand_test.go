package tilework

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"tilework/dtype"
)

// TestMixedOperands checks that Gemm and PlanGemm return an error that names the operands, if these
// cannot be combined in one product.
func TestMixedOperands(t *testing.T) {
	ctx := t.Context()
	d, other := on(t, "emu"), on(t, "emu:t4")
	m := New[float32](2, 2)
	dm, far, batch := upload(t, d, m), upload(t, other, m), Batch[float32]{m, New[float32](2, 2)}
	db := dm.Batch(1, 4)
	packed, err := Pack(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	ends := upload(t, d, GroupEnds(1, 1))
	results := Batch[float32]{New[float32](2, 2), New[float32](2, 2)}
	for _, test := range []struct {
		name    string
		a, b, c Operand[float32]
		opts    []Option
		want    error
		text    string
	}{
		{"A on a device", dm, m, m, nil, ErrUnsupported, "A on device emu and C on the host: download A or upload C"},
		{"B on the host", dm, m, dm, nil, ErrUnsupported, "B on the host and C on device emu: upload B or download C"},
		{"C on the host", dm, dm, m, nil, ErrUnsupported, "A on device emu and C on the host"},
		{"two devices", dm, far, dm, nil, ErrUnsupported, "B is on device emu:t4 and C on emu"},
		{"packed B, C on a device", dm, packed, dm, nil, ErrUnsupported, "B on the host and C on device emu"},
		{"packed A", packed, m, m, nil, ErrUnsupported, "A as a packed matrix in a product, want a matrix"},
		{"packed C", m, m, packed, nil, ErrUnsupported, "C as a packed matrix in a product, want a matrix"},
		{"batch for A", batch, m, m, nil, ErrUnsupported, "A as a batch in a product, want a matrix"},
		{"matrix for B", batch, m, results, nil, ErrUnsupported, "B as a matrix in a batch of products, want a batch"},
		{"device batch for B", dm, db, dm, nil, ErrUnsupported, "B as a batch in a product, want a matrix"},
		{"counts", batch, batch[:1], results, nil, ErrShape, "a batch of 2 A, 1 B and 2 C"},
		{"groups without a batch", m, m, m, []Option{WithGroups(GroupEnds(2))}, ErrUnsupported,
			"B as a matrix in a product of groups of rows, want a batch"},
		{"groups of batches", batch, batch, results, []Option{WithGroups(GroupEnds(1, 1))}, ErrUnsupported,
			"A as a batch in a product of groups"},
		{"group ends on a device", m, batch, results[0], []Option{WithGroups(ends)}, ErrUnsupported,
			"the group ends on device emu and C on the host"},
		{"fewer groups than matrices in B", m, batch, results[0], []Option{WithGroups(GroupEnds(2))}, ErrShape,
			"groups of rows: 1, matrices of B: 2"},
		{"groups with too many rows", m, batch, results[0], []Option{WithGroups(GroupEnds(1, 2))}, ErrShape,
			"group 1 ends before row 3, want 1 to 2, the rows of A"},
		{"decreasing ends", m, batch, results[0], []Option{WithGroups(Vector[int32](2, 1))}, ErrShape,
			"group 1 ends before row 1, want 2 to 2"},
		{"ends in two columns", m, batch, results[0], []Option{WithGroups(New[int32](2, 2))}, ErrShape,
			"the group ends of 2×2, want one row or one column"},
		{"bias on a device", m, m, results[0], []Option{WithColBias(dm.Sub(0, 0, 1, 2))}, ErrUnsupported,
			"the bias on device emu and C on the host"},
		{"batch for a bias", m, m, results[0], []Option{WithColBias(batch)}, ErrUnsupported,
			"the bias as a batch in a product, want a matrix"},
		{"nil for A", nil, m, results[0], nil, ErrShape, "nil for A"},
		{"nil for a bias", m, m, results[0], []Option{WithColBias[float32](nil)}, ErrShape, "nil for the bias"},
		{"invalid matrix", m.Sub(1, 1, 2, 2), m, results[0], nil, ErrShape, "a 2×2 part from (1, 1)"},
		{"invalid matrix in a batch", Batch[float32]{m, m.Sub(1, 1, 2, 2)}, batch, results, nil, ErrShape, "matrix 1 of A: "},
		{"invalid option", m, m, results[0], []Option{WithThreads(-1)}, ErrUnsupported, "threads"},
		{"negative limit", m, m, results[0], []Option{WithVerifyLimit(-0.1)}, ErrUnsupported, "want a positive number"},
		{"NaN as a limit", m, m, results[0], []Option{WithVerifyLimit(math.NaN())}, ErrUnsupported,
			"want a positive number"},
	} {
		_, planErr := PlanGemm(t.Context(), test.a, test.b, test.c, test.opts...)
		for what, err := range map[string]error{"Gemm": Gemm(ctx, 1, test.a, test.b, 0, test.c, test.opts...),
			"PlanGemm": planErr} {
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v, want %v with %q in one line", test.name, what, err, test.want, test.text)
			}
		}
	}
	for name, err := range map[string]error{
		"a packed B": second(TuneGemm(ctx, m, packed, results[0], time.Millisecond, WithDevice("cpu"))),
		"a batch":    second(TuneGemm(ctx, batch, batch, results, time.Millisecond, WithDevice("cpu"))),
		"emulated":   second(TuneGemm(ctx, dm, dm, upload(t, d, m), time.Millisecond)),
	} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("tuning of %s: %v, want ErrUnsupported", name, err)
		}
	}
}

// TestMulKinds checks that Mul returns an operand of the same kind as A.
func TestMulKinds(t *testing.T) {
	ctx, d := t.Context(), on(t, "emu")
	a, b, want := FromSlice(1, 2, []float32{1, 2}), FromSlice(2, 1, []float32{3, 4}), []float32{11}
	packed, err := Pack(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	for name, operand := range map[string]Operand[float32]{"a matrix": b, "a packed matrix": packed} {
		if c, err := Mul(ctx, a, operand); err != nil || !slices.Equal(c.Data(), want) {
			t.Errorf("Mul with %s: got %v, error %v", name, c, err)
		}
	}
	batch, err := Mul(ctx, Batch[float32]{a, New[float32](3, 2)}, Batch[float32]{b, New[float32](2, 4)})
	if err != nil || len(batch) != 2 || batch[0].At(0, 0) != 11 || batch[1].Rows() != 3 || batch[1].Cols() != 4 {
		t.Errorf("Mul of a batch: got %v, error %v", batch, err)
	}
	da, err := Upload(ctx, d, Batch[float32]{a, a})
	if err != nil {
		t.Fatal(err)
	}
	db, err := Mul(ctx, da, upload(t, d, b).Batch(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := db.Download(ctx); err != nil || got[0].At(0, 0) != 11 || got[1].At(0, 0) != 11 {
		t.Errorf("Mul of a batch on a device: got %v, error %v", got, err)
	}
	grouped, err := Mul(ctx, a, Batch[float32]{b, New[float32](2, 1)}, WithGroups(GroupEnds(1, 0)))
	if err != nil || !slices.Equal(grouped.Data(), want) {
		t.Errorf("Mul of groups: got %v, error %v", grouped, err)
	}
}

// TestCopy checks copies between all pairs of operand kinds, and the errors of invalid copies.
func TestCopy(t *testing.T) {
	ctx, d := t.Context(), on(t, "emu")
	values := []float32{1, 2, 3, 4, 5, 6}
	src := FromSlice(2, 3, values)
	matrices := func() map[string]Operand[float32] {
		return map[string]Operand[float32]{
			"Matrix": New[float32](2, 3), "a transpose": New[float32](3, 2).T(),
			"DeviceMatrix": upload(t, d, New[float32](2, 3)), "a transpose on a device": upload(t, d, New[float32](3, 2)).T(),
		}
	}
	for from, x := range matrices() {
		if err := Copy(ctx, x, src); err != nil {
			t.Fatal(from, err)
		}
		for to, y := range matrices() {
			got := New[float32](2, 3)
			if err := errors.Join(Copy(ctx, y, x), Copy(ctx, got, y)); err != nil || !slices.Equal(got.Data(), values) {
				t.Errorf("%s to %s: got %v, error %v", from, to, got.Data(), err)
			}
		}
	}
	batches := func() map[string]Operand[float32] {
		on, err := NewDeviceBatch[float32](d, 2, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]Operand[float32]{"Batch": Batch[float32]{New[float32](2, 3), New[float32](2, 3)}, "DeviceBatch": on}
	}
	for from, x := range batches() {
		if err := Copy(ctx, x, Batch[float32]{src, src}); err != nil {
			t.Fatal(from, err)
		}
		for to, y := range batches() {
			got := Batch[float32]{New[float32](2, 3), New[float32](2, 3)}
			if err := errors.Join(Copy(ctx, y, x), Copy(ctx, got, y)); err != nil || !slices.Equal(got[1].Data(), values) {
				t.Errorf("%s to %s: got %v, error %v", from, to, got, err)
			}
		}
	}
	packed, err := Pack(ctx, src)
	if err != nil {
		t.Fatal(err)
	}
	x, y := src.clone(), src.clone()
	for name, test := range map[string]struct{ err, want error }{
		"another size":        {Copy(ctx, New[float32](3, 2), src), ErrShape},
		"shared memory":       {Copy(ctx, src.Sub(0, 0, 1, 2), src.Sub(0, 1, 1, 2)), ErrOverlap},
		"another's memory":    {Copy(ctx, Batch[float32]{x, y}, Batch[float32]{y, x}), ErrOverlap},
		"one matrix twice":    {Copy(ctx, Batch[float32]{x, x}, Batch[float32]{src, src}), ErrOverlap},
		"a packed matrix":     {Copy(ctx, New[float32](2, 3), packed), ErrUnsupported},
		"a batch to a matrix": {Copy(ctx, New[float32](2, 3), Batch[float32]{src}), ErrUnsupported},
		"another count":       {Copy(ctx, Batch[float32]{New[float32](2, 3)}, Batch[float32]{src, src}), ErrShape},
		"nil":                 {Copy(ctx, New[float32](2, 3), nil), ErrUnsupported},
		"an invalid matrix":   {Copy(ctx, New[float32](2, 3), src.Sub(0, 0, 9, 9)), ErrShape},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", name, test.err, test.want)
		}
	}
}

// TestCopyOverlap checks that Copy refuses matrices on a device that share memory, although it
// copies them through the host's memory.
func TestCopyOverlap(t *testing.T) {
	ctx, d := t.Context(), on(t, "emu")
	square, none := upload(t, d, New[float32](4, 4)), upload(t, d, New[float32](0, 4))
	top, left, right := square.Sub(0, 0, 2, 4), square.Sub(0, 0, 2, 2), square.Sub(0, 2, 2, 2)
	two := Batch[float32]{New[float32](2, 4), New[float32](2, 4)}
	for name, test := range map[string]struct{ err, want error }{
		"parts":                     {Copy(ctx, square.Sub(0, 0, 3, 3), square.Sub(1, 1, 3, 3)), ErrOverlap},
		"a transpose":               {Copy(ctx, square, square.T()), ErrOverlap},
		"matrices at one place":     {Copy(ctx, top.Batch(2, 0), two), ErrOverlap},
		"matrices half apart":       {Copy(ctx, top.Batch(2, 4), two), ErrOverlap},
		"a batch and its source":    {Copy(ctx, top.Batch(2, 8), top.Batch(2, 4)), ErrOverlap},
		"parts side by side":        {Copy(ctx, left, right), nil},
		"batches side by side":      {Copy(ctx, left.Batch(2, 8), right.Batch(2, 8)), nil},
		"a source at one place":     {Copy(ctx, two, top.Batch(2, 0)), nil},
		"matrices without elements": {Copy(ctx, none.Batch(2, 0), none.Batch(2, 0)), nil},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", name, test.err, test.want)
		}
	}
}

// TestDownloadOfHugeBatch checks that a download of more matrices than the host's memory can list
// is an error. A batch of one matrix, many times, takes no memory on a device.
func TestDownloadOfHugeBatch(t *testing.T) {
	m := upload(t, on(t, "emu"), New[float32](1, 1))
	for count, want := range map[int]error{
		math.MaxInt / int(unsafe.Sizeof(New[float32](0, 0))): ErrOutOfMemory,
		math.MaxInt: ErrShape,
	} {
		if _, err := m.Batch(count, 0).Download(t.Context()); !errors.Is(err, want) {
			t.Errorf("%d matrices: %v, want %v", count, err, want)
		}
	}
}

// factor is the constraint that the type of alpha and beta would have with complex elements.
type factor interface {
	int | float32 | float64 | complex64 | complex128
}

func complexGemm[T, R dtype.Element, S factor](alpha S, _, _ Operand[T], beta S, _ Operand[R]) string {
	return fmt.Sprintf("%T", alpha+beta)
}

// TestComplexFactors checks that the compiler would infer a type parameter for alpha and beta in
// calls with the current syntax.
func TestComplexFactors(t *testing.T) {
	a, c, alpha := New[float32](1, 1), New[dtype.BFloat16](1, 1), 0.5
	for want, got := range map[string]string{
		"int":        complexGemm(1, a, a, 0, c),
		"float64":    complexGemm(alpha, a, a, 1, c),
		"complex128": complexGemm(2i, a, a, 1, c),
		"float32":    complexGemm(float32(alpha), a, a, 1, c),
	} {
		if got != want {
			t.Errorf("alpha and beta have type %s, want %s", got, want)
		}
	}
}
