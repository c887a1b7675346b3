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
	"tilework/internal/ref"
	"tilework/internal/testkit"
)

// fakeXt replaces the library. It computes products in float64 by the definition of a column-major
// GEMM, independently of this package's types.
type fakeXt struct {
	t       *testing.T
	failAt  int
	calls   int
	handles int
	devices []int32
	texts   cStrings
}

// pinningGPU is an emulated device that passes for a GPU, and counts pinned memory.
type pinningGPU struct {
	fakeGPU
	pinned *int
	fail   bool
}

func (pinningGPU) Index() int { return 3 }

func (g pinningGPU) Pin(m []byte) (func() error, error) {
	if g.fail {
		return nil, errors.New("cannot pin")
	}
	*g.pinned += len(m)
	return func() error { *g.pinned -= len(m); return nil }, nil
}

func newFakeXt(t *testing.T) (*fakeXt, *CuBLASXt) {
	t.Helper()
	gpu, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeXt{t: t}
	l := &CuBLASXt{gpu: pinningGPU{fakeGPU: fakeGPU{gpu}, pinned: new(int)}, all: []int32{3, 1},
		procs: map[string]uintptr{}, run: f.run}
	for i, name := range cublasXtProcs {
		l.procs[name] = uintptr(i + 1)
	}
	return f, l
}

func (f *fakeXt) run(proc uintptr, a ...uintptr) uintptr {
	name := cublasXtProcs[proc-1]
	if name == blasStatus {
		return f.texts.add(fmt.Sprintf("status %d", a[0]))
	}
	if f.calls++; f.calls == f.failAt {
		if name == xtDestroy {
			f.handles--
		}
		return 13
	}
	switch name {
	case xtCreate:
		f.handles++
		*pointTo[uintptr](a[0]) = 0x1234
	case xtDestroy:
		f.handles--
	case xtDeviceSelect:
		f.devices = append([]int32(nil), unsafe.Slice(pointTo[int32](a[2]), a[1])...)
	case xtSgemm:
		columnMajor[float32](a)
	case xtDgemm:
		columnMajor[float64](a)
	}
	return 0
}

// columnMajor computes C ← α·op(A)·op(B) + β·C of column-major matrices, with the arguments of
// cublasXtSgemm or cublasXtDgemm.
func columnMajor[T float32 | float64](a []uintptr) {
	transA, transB, m, n, k := a[1] == 1, a[2] == 1, int(a[3]), int(a[4]), int(a[5])
	alpha, beta := *pointTo[T](a[6]), *pointTo[T](a[11])
	at := func(base, ld uintptr, i, j int, trans bool) *T {
		if trans {
			i, j = j, i
		}
		return pointTo[T](base + uintptr(i+j*int(ld))*unsafe.Sizeof(T(0)))
	}
	for i := range m {
		for j := range n {
			var sum T
			for q := range k {
				sum += *at(a[7], a[8], i, q, transA) * *at(a[9], a[10], q, j, transB)
			}
			c := at(a[12], a[13], i, j, false)
			if beta == 0 {
				*c = alpha * sum
			} else {
				*c = alpha*sum + beta**c
			}
		}
	}
}

// TestXtProducts compares products with the reference.
func TestXtProducts(t *testing.T) {
	f, l := newFakeXt(t)
	if err := l.init(); err != nil || !slices.Equal(f.devices, []int32{3, 1}) {
		t.Fatalf("devices %d, error %v", f.devices, err)
	}
	for _, elem := range []dtype.Type{dtype.F32, dtype.F64} {
		for _, trans := range []int{0, 1, 2, 3} {
			a, b, c := gemm.Dense(elem, 3, 4), gemm.Dense(elem, 4, 5), gemm.Dense(elem, 3, 5)
			if trans&1 != 0 {
				a = gemm.Dense(elem, 4, 3).T()
			}
			if trans&2 != 0 {
				b = gemm.Dense(elem, 5, 4).T()
			}
			a.LD, b.LD, c.LD = a.LD+2, b.LD+1, c.LD+3
			p, _, err := gemm.New(2, a, b, 0.5, c, gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			m := gemm.Buffers{make([]byte, a.Bytes()), make([]byte, b.Bytes()), make([]byte, c.Bytes())}
			for o := range m[:3] {
				for i := range elem.Elements(len(m[o])) {
					elem.Set(m[o], i, float64((i*7+o)%11-5))
				}
			}
			want := ref.Gemm(&p, m)
			run, err := l.Prepare(t.Context(), &p)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(run(&m), want.Exactly(m[gemm.C])); err != nil {
				t.Errorf("%v: %v", &p, err)
			}
			if err := run(&gemm.Buffers{m[0], m[1], m[2][:8]}); !errors.Is(err, gemm.ErrShape) {
				t.Errorf("%v with a short C: error %v", &p, err)
			}
		}
	}
	if _, err := l.Prepare(t.Context(), testkit.Product(t, dtype.BF16, dtype.BF16, 2, 2, 2)); !errors.Is(err,
		gemm.ErrUnsupported) {
		t.Errorf("bfloat16: error %v, want ErrUnsupported", err)
	}
	if err := l.Close(); err != nil || f.handles != 0 {
		t.Errorf("Close: %v, %d handles left", err, f.handles)
	}
}

// TestXtFaults fails each call of the library in turn, and pinning.
func TestXtFaults(t *testing.T) {
	p := testkit.Product(t, dtype.F32, dtype.F32, 2, 3, 4)
	m := gemm.Buffers{make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes()), make([]byte, p.C().Bytes())}
	for failAt := 1; ; failAt++ {
		f, l := newFakeXt(t)
		f.failAt = failAt
		err := l.init()
		if err == nil {
			var run func(*gemm.Buffers) error
			if run, err = l.Prepare(t.Context(), p); err == nil {
				err = errors.Join(l.Pin(m), l.Pin(m), run(&m))
			}
			if pinned := *l.gpu.(pinningGPU).pinned; pinned != 4*(2*4+4*3+2*3) {
				t.Errorf("%d bytes are pinned", pinned)
			}
			err = errors.Join(err, l.Close())
		}
		if f.handles != 0 || *l.gpu.(pinningGPU).pinned != 0 {
			t.Errorf("call %d failed: %d handles and %d pinned bytes left", failAt, f.handles, *l.gpu.(pinningGPU).pinned)
		}
		if f.calls < failAt {
			if err != nil {
				t.Errorf("no call failed: %v", err)
			}
			break
		}
		if err == nil || !strings.Contains(err.Error(), "status 13 (13)") {
			t.Errorf("call %d failed: error %v", failAt, err)
		}
	}
	_, l := newFakeXt(t)
	if err := l.init(); err != nil {
		t.Fatal(err)
	}
	l.gpu = pinningGPU{fakeGPU: l.gpu.(pinningGPU).fakeGPU, fail: true}
	if err := l.Pin(m); err == nil || err.Error() != "cublasxt: cannot pin" {
		t.Errorf("pinning failed: error %v", err)
	}
	if _, err := OpenCuBLASXt(l.gpu.(pinningGPU).Device, nil, ""); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("an emulated GPU: error %v, want ErrUnsupported", err)
	}
}
