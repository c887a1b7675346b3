package peers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
)

// fakeLt replaces the library. It decodes arguments by the offsets in cublasLt.h, independently of
// this package's types.
type fakeLt struct {
	t       *testing.T
	failAt  int // number of the call that fails, counted from 1
	calls   int
	failed  string
	handles map[uintptr]string // kinds of the handles not destroyed yet
	next    uintptr
	trans   map[uintptr]int32 // matmul attributes such as transposes and the epilogue
	bias    uintptr
	scales  [2]uintptr // of the library's A and B
	layouts map[uintptr][4]uintptr
	batches map[uintptr][2]int64 // number of matrices and stride of each layout
	compute [2]uintptr
	found   int
	matmul  []uintptr

	reductions uint32 // mask of the allowed reductions
	texts      cStrings
}

// cStrings holds the C strings whose addresses a fake library has returned, so that the garbage
// collector does not reuse their memory.
type cStrings [][]byte

// add returns the address of a new C string.
func (s *cStrings) add(text string) uintptr {
	b := append([]byte(text), 0)
	*s = append(*s, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

func newFakeLt(t *testing.T) (*fakeLt, *CuBLASLt) {
	t.Helper()
	gpu, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeLt{t: t, handles: map[uintptr]string{}, trans: map[uintptr]int32{}, layouts: map[uintptr][4]uintptr{},
		batches: map[uintptr][2]int64{}, next: 0x1000, found: 3}
	l := &CuBLASLt{gpu: fakeGPU{gpu}, procs: map[string]uintptr{}, run: f.run}
	for i, name := range cublasLtProcs {
		l.procs[name] = uintptr(i + 1)
	}
	return f, l
}

func pointTo[T any](at uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&at))) }

func (f *fakeLt) create(kind string, to uintptr) uintptr {
	f.next += 0x10
	f.handles[f.next] = kind
	*pointTo[uintptr](to) = f.next
	return f.next
}

func (f *fakeLt) destroy(kind string, handle uintptr) {
	if f.handles[handle] != kind {
		f.t.Errorf("destroying %#x as %s: it is %q", handle, kind, f.handles[handle])
	}
	delete(f.handles, handle)
}

func (f *fakeLt) run(proc uintptr, a ...uintptr) uintptr {
	name := cublasLtProcs[proc-1]
	switch name {
	case ltGetVersion:
		return 130100
	case ltStatusString:
		return f.texts.add(fmt.Sprintf("status %d", a[0]))
	}
	if f.calls++; f.calls == f.failAt {
		f.failed = name
		if strings.Contains(name, "Destroy") {
			delete(f.handles, a[0]) // destroyed although the call fails
		}
		return 14 // CUBLAS_STATUS_INTERNAL_ERROR
	}
	switch name {
	case ltCreate:
		f.create("library", a[0])
	case ltDestroy:
		f.destroy("library", a[0])
	case ltDescCreate:
		f.create("description", a[0])
		f.compute = [2]uintptr{a[1], a[2]}
	case ltDescDestroy:
		f.destroy("description", a[0])
	case ltDescSet:
		switch {
		case a[1] == descBias && a[3] == 8:
			f.bias = *pointTo[uintptr](a[2])
		case (a[1] == 17 || a[1] == 18) && a[3] == 8:
			f.scales[a[1]-17] = *pointTo[uintptr](a[2])
		case a[1] != descBias && a[3] == 4:
			f.trans[a[1]] = *pointTo[int32](a[2])
		default:
			f.t.Errorf("matmul attribute %d has %d bytes", a[1], a[3])
		}
	case ltLayoutCreate:
		f.layouts[f.create("layout", a[0])] = [4]uintptr(a[1:])
	case ltLayoutDestroy:
		f.destroy("layout", a[0])
	case ltLayoutSet:
		b := f.batches[a[0]]
		switch {
		case a[1] == 5 && a[3] == 4:
			b[0] = int64(*pointTo[int32](a[2]))
		case a[1] == 6 && a[3] == 8:
			b[1] = *pointTo[int64](a[2])
		default:
			f.t.Errorf("layout attribute %d has %d bytes", a[1], a[3])
		}
		f.batches[a[0]] = b
	case ltPreferenceCreate:
		f.create("preference", a[0])
	case ltPreferenceDestroy:
		f.destroy("preference", a[0])
	case ltPreferenceSet:
		switch {
		case a[1] == 1 && a[3] == 8 && *pointTo[uint64](a[2]) == 256<<20:
		case a[1] == 3 && a[3] == 4:
			f.reductions = *pointTo[uint32](a[2])
		default:
			f.t.Errorf("preference %d has %d bytes", a[1], a[3])
		}
	case ltHeuristic:
		const size, workspace, status = 96, 64, 72
		for i := range f.found {
			at := a[8] + uintptr(i*size)
			*pointTo[uint64](at) = uint64(100 + i)
			*pointTo[uint64](at + workspace) = uint64(i) << 20
			if i == 1 {
				*pointTo[int32](at + status) = 15
			}
		}
		*pointTo[int32](a[9]) = int32(f.found)
	case ltAlgoGet:
		*pointTo[int32](a[2]) = int32(*pointTo[uint64](a[0])) + int32(a[1])
	case ltMatmul:
		f.matmul = slices.Clone(a)
	}
	return 0
}

func fakeProblem(t *testing.T, in dtype.Type, transA, transB bool) *gemm.Problem {
	t.Helper()
	a, b := gemm.Dense(in, 2, 3), gemm.Dense(in, 3, 5)
	if transA {
		a = gemm.Dense(in, 3, 2).T()
	}
	if transB {
		b = gemm.Dense(in, 5, 3).T()
	}
	a.LD, b.LD = a.LD+1, b.LD+2
	c := gemm.Dense(in.Info().Results[0], 2, 5)
	c.LD += 3
	p, _, err := gemm.New(2, a, b, 3, c, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestLtEpilogue checks the attributes of supported epilogues, and that others are rejected.
func TestLtEpilogue(t *testing.T) {
	f, l := newFakeLt(t)
	p := fakeProblem(t, dtype.BF16, false, false)
	p.Epilogue = gemm.Epilogue{Bias: gemm.BiasCol, Activation: gemm.ActGELUTanh}
	pl, err := l.Plan(p, Native)
	if err != nil {
		t.Fatal(err)
	}
	if err := pl.Enqueue(t.Context(), LtMemory{A: 0xa, B: 0xb, C: 0xc, Bias: 0xd, Residual: 0xe}); err != nil {
		t.Fatal(err)
	}
	if f.trans[descEpilogue] != 36 || f.bias != 0xd {
		t.Errorf("got epilogue %d with a bias at %#x, want 36 and 0xd", f.trans[descEpilogue], f.bias)
	}
	if err := pl.Close(); err != nil {
		t.Error(err)
	}
	p.Epilogue, p.Beta, p.Layouts[gemm.Residual] = gemm.Epilogue{Bias: gemm.BiasCol, Residual: true}, 0,
		gemm.Dense(dtype.BF16, 2, 5)
	if pl, err = l.Plan(p, Native); err != nil {
		t.Fatal(err)
	}
	if err := pl.Enqueue(t.Context(), LtMemory{A: 0xa, B: 0xb, C: 0xc, Bias: 0xd, Residual: 0xe}); err != nil {
		t.Fatal(err)
	}
	m := f.matmul
	if beta := p.Accum().At(unsafe.Slice(pointTo[byte](m[7]), 8), 0); m[8] != 0xe || m[10] != 0xc || beta != 1 ||
		f.layouts[m[9]] != [4]uintptr{14, 5, 2, 5} {
		t.Errorf("got source %#x times %v, layout %v, and C at %#x; want the residual 0xe times 1 and C at 0xc", m[8], beta,
			f.layouts[m[9]], m[10])
	}
	if err := pl.Close(); err != nil {
		t.Error(err)
	}
	p.Epilogue, p.Layouts[gemm.Residual] = gemm.Epilogue{Bias: gemm.BiasRow}, gemm.Layout{}
	if _, err := l.Plan(p, Native); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("row bias: got error %v, want ErrUnsupported", err)
	}
}

// TestLtScales checks the attributes of block scales, whose A is our B, and that unsupported
// layouts are rejected.
func TestLtScales(t *testing.T) {
	f, l := newFakeLt(t)
	const m, n, k = 6, 130, 600
	a, b := gemm.Dense(dtype.F8E4M3, m, k), gemm.Dense(dtype.F8E4M3, n, k).T()
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(dtype.BF16, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	rows := gemm.Dense(dtype.F32, 5, m)
	blocks := gemm.Dense(dtype.F32, 2, 5)
	q := p
	q.Layouts[gemm.ScaleA], q.Layouts[gemm.ScaleB] = rows, blocks.T()
	if _, err := q.Complete(); !errors.Is(err, gemm.ErrShape) {
		t.Errorf("transposed row scales: got error %v, want ErrShape", err)
	}
	q.Layouts[gemm.ScaleA] = rows.T()
	if _, err := q.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Plan(&q, Native); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("leading dimensions 6 and 5: got error %v, want ErrUnsupported", err)
	}
	rows.LD, blocks.LD = 8, 8
	q.Layouts[gemm.ScaleA], q.Layouts[gemm.ScaleB] = rows.T(), blocks.T()
	if _, err := q.Complete(); err != nil {
		t.Fatal(err)
	}
	pl, err := l.Plan(&q, Native)
	if err != nil {
		t.Fatal(err)
	}
	if err := pl.Enqueue(t.Context(), LtMemory{A: 0xa, B: 0xb, C: 0xc, ScaleA: 0x1a, ScaleB: 0x1b}); err != nil {
		t.Fatal(err)
	}
	if f.trans[31] != 5 || f.trans[32] != 4 || f.scales != [2]uintptr{0x1b, 0x1a} {
		t.Errorf("got modes %d and %d, scales at %#x; want 5, 4, 0x1b and 0x1a", f.trans[31], f.trans[32], f.scales)
	}
	if err := pl.Close(); err != nil {
		t.Error(err)
	}
}

// TestLtBatch checks the batch attributes of each layout, and that groups are rejected.
func TestLtBatch(t *testing.T) {
	f, l := newFakeLt(t)
	if err := l.init(); err != nil {
		t.Fatal(err)
	}
	single := fakeProblem(t, dtype.F32, false, false)
	p, err := single.Strided(7, gemm.Batch{Stride: gemm.Strides{gemm.A: 8, gemm.C: 100}})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := l.Plan(&p, Native)
	if err != nil {
		t.Fatal(err)
	}
	if err := pl.Enqueue(t.Context(), LtMemory{A: 0xa, B: 0xb, C: 0xc}); err != nil {
		t.Fatal(err)
	}
	for i, stride := range map[int]int64{6: 8, 4: 0, 9: 100, 11: 100} {
		if got, want := f.batches[f.matmul[i]], [2]int64{7, stride}; got != want {
			t.Errorf("argument %d: got count and stride %v, want %v", i, got, want)
		}
	}
	if err := errors.Join(pl.Close(), l.Close()); err != nil || len(f.handles) != 0 {
		t.Errorf("closing: error %v, handles left %v", err, f.handles)
	}
	grouped, err := single.Grouped(2, 15)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Plan(&grouped, Native); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("groups: got error %v, want ErrUnsupported", err)
	}
}

// TestLtArguments checks that all arguments describe the transposed product, with B before A.
func TestLtArguments(t *testing.T) {
	for _, c := range []struct {
		in             dtype.Type
		transA, transB bool
		arithmetic     Arithmetic
		compute        [2]uintptr
		a, b, c        [4]uintptr // type, rows, columns, leading dimension
	}{
		{dtype.F32, false, false, Native, [2]uintptr{68, 0}, [4]uintptr{0, 3, 2, 4}, [4]uintptr{0, 5, 3, 7},
			[4]uintptr{0, 5, 2, 8}},
		{dtype.F32, true, false, TF32, [2]uintptr{77, 0}, [4]uintptr{0, 2, 3, 3}, [4]uintptr{0, 5, 3, 7},
			[4]uintptr{0, 5, 2, 8}},
		{dtype.F64, false, true, Native, [2]uintptr{70, 1}, [4]uintptr{1, 3, 2, 4}, [4]uintptr{1, 3, 5, 5},
			[4]uintptr{1, 5, 2, 8}},
		{dtype.BF16, true, true, Native, [2]uintptr{68, 0}, [4]uintptr{14, 2, 3, 3}, [4]uintptr{14, 3, 5, 5},
			[4]uintptr{14, 5, 2, 8}},
		{dtype.I8, false, true, Native, [2]uintptr{72, 10}, [4]uintptr{3, 3, 2, 4}, [4]uintptr{3, 3, 5, 5},
			[4]uintptr{10, 5, 2, 8}},
		{dtype.F8E4M3, false, true, Native, [2]uintptr{68, 0}, [4]uintptr{28, 3, 2, 4}, [4]uintptr{28, 3, 5, 5},
			[4]uintptr{0, 5, 2, 8}},
	} {
		f, l := newFakeLt(t)
		if err := l.init(); err != nil {
			t.Fatal(err)
		}
		p := fakeProblem(t, c.in, c.transA, c.transB)
		pl, err := l.Plan(p, c.arithmetic)
		if err != nil {
			t.Fatal(err)
		}
		if f.compute != c.compute {
			t.Errorf("%v: got compute type %v, want %v", p, f.compute, c.compute)
		}
		if want := map[bool]uint32{true: 7, false: 2}[p.Out() == p.Accum()]; f.reductions != want {
			t.Errorf("%v: reductions %#x, want %#x", p, f.reductions, want)
		}
		number := map[bool]int32{true: 1}
		if f.trans[3] != number[c.transB] || f.trans[4] != number[c.transA] {
			t.Errorf("%v: got transposes %v", p, f.trans)
		}
		if pl.Algorithms() != 2 {
			t.Errorf("got %d algorithms, want the 2 valid ones of 3", pl.Algorithms())
		}
		pl.chosen = 1
		if err := pl.Enqueue(t.Context(), LtMemory{A: 0xa, B: 0xb, C: 0xc}); err != nil {
			t.Fatal(err)
		}
		m := f.matmul
		if m[3] != 0xb || m[5] != 0xa || m[8] != 0xc || m[10] != 0xc || m[13] != uintptr(l.workspace) || m[14] != 256<<20 {
			t.Errorf("%v: got arguments %#x", p, m)
		}
		for i, want := range map[int][4]uintptr{6: c.a, 4: c.b, 9: c.c, 11: c.c} {
			if f.layouts[m[i]] != want {
				t.Errorf("%v: argument %d: got layout %v, want %v", p, i, f.layouts[m[i]], want)
			}
		}
		sums := p.Accum()
		for i, want := range map[int]float64{2: 2, 7: 3} {
			if got := sums.At(unsafe.Slice(pointTo[byte](m[i]), 8), 0); got != want {
				t.Errorf("%v: argument %d: got value %v, want %v", p, i, got, want)
			}
		}
		if *pointTo[uint64](m[12]) != 102 {
			t.Errorf("got algorithm %d, want 102", *pointTo[uint64](m[12]))
		}
		want := "cuBLASLt 13.1.0"
		if c.arithmetic.Name != "" {
			want += " in tf32"
		}
		want += ", heuristic 2 of 2: algorithm 102, tile 103, stages 108, split 104, workspace 2 MiB"
		if pl.String() != want {
			t.Errorf("got %q, want %q", pl, want)
		}
		if err := errors.Join(pl.Close(), l.Close()); err != nil || len(f.handles) != 0 {
			t.Errorf("closing: error %v, handles left %v", err, f.handles)
		}
	}
}

// TestLtFaults fails each call in turn and checks that the error names it and that all handles and
// memory are freed.
func TestLtFaults(t *testing.T) {
	for failAt := 1; ; failAt++ {
		f, l := newFakeLt(t)
		f.failAt = failAt
		err := func() (err error) {
			if err := l.init(); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			pl, err := l.Plan(fakeProblem(t, dtype.F32, false, false), Native)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, pl.Close()) }()
			return pl.Choose(func(run LtEnqueue) (float64, error) { return 1, run(t.Context(), LtMemory{A: 1, B: 2, C: 3}) })
		}()
		if f.failed == "" {
			if err != nil {
				t.Errorf("no call failed: got error %v", err)
			}
			break
		}
		// A plan may skip one of its two algorithms.
		if f.failed != ltMatmul && (err == nil || !strings.Contains(err.Error(), f.failed+": status 14 (14)")) {
			t.Errorf("call %d, %s: got error %v", failAt, f.failed, err)
		}
		if len(f.handles) != 0 {
			t.Errorf("call %d, %s: handles left %v", failAt, f.failed, f.handles)
		}
		if used := l.gpu.(fakeGPU).Device.(interface{ Used() int64 }).Used(); used != 0 {
			t.Errorf("call %d, %s: %d bytes left on the device", failAt, f.failed, used)
		}
	}
	f, l := newFakeLt(t)
	f.found = 0
	if _, err := l.Plan(fakeProblem(t, dtype.F32, false, false), Native); !errors.Is(err, gemm.ErrUnsupported) ||
		len(f.handles) != 0 {
		t.Errorf("no algorithm: got error %v, handles left %v", err, f.handles)
	}
}
