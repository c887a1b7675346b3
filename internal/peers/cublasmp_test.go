package peers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/ref"
	"tilework/internal/testkit"
)

// mpProduct returns a product of small integers of the smallest sizes for a number of GPUs, and its
// matrices with padded rows.
func mpProduct(t *testing.T, ranks int, typ dtype.Type, transA, transB bool,
	beta complex128) (*gemm.Problem, *gemm.Buffers) {
	t.Helper()
	k := typ.Elements(mpVector)
	m, n := ranks*k, 2*ranks*k
	a, b, c := gemm.Dense(typ, m, k), gemm.Dense(typ, k, n), gemm.Dense(typ, m, n)
	if transA {
		a = gemm.Dense(typ, k, m).T()
	}
	if transB {
		b = gemm.Dense(typ, n, k).T()
	}
	a.LD, b.LD, c.LD = a.LD+2, b.LD+1, c.LD+3
	p, _, err := gemm.New(2, a, b, beta, c, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	buffers := gemm.Buffers{make([]byte, a.Bytes()), make([]byte, b.Bytes()), make([]byte, c.Bytes())}
	for o := range buffers[:3] {
		for i := range typ.Elements(len(buffers[o])) {
			typ.Set(buffers[o], i, float64((i*7+o)%5-2))
		}
	}
	return &p, &buffers
}

// useMp computes a product with the library twice.
func useMp(ctx context.Context, l *CuBLASMp, p *gemm.Problem, m *gemm.Buffers) (err error) {
	x, err := l.Prepare(ctx, p, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	want := ref.Gemm(p, *m)
	for range 2 {
		if err := x.CopyIn(ctx, m[gemm.C]); err != nil {
			return err
		}
		if took, err := x.Run(ctx, 1); err != nil || took <= 0 {
			return errors.Join(err, ctx.Err())
		}
		got := slices.Clone(m[gemm.C])
		if err := errors.Join(x.CopyOut(ctx, got), want.Exactly(got)); err != nil {
			return err
		}
	}
	return nil
}

// TestMpProducts compares products of all types and transposes with the reference.
func TestMpProducts(t *testing.T) {
	for _, ranks := range []int{2, 3, 4} {
		f, l := newFakeMp(t, ranks)
		if err := l.init(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.String(); got != "cuBLASMp 0.10.0, NCCL 2.30.7" {
			t.Errorf("the library is %q", got)
		}
		for _, typ := range mpTypes {
			for trans := range 4 {
				for _, beta := range []complex128{0, 0.5} {
					p, m := mpProduct(t, ranks, typ, trans&1 != 0, trans&2 != 0, beta)
					if err := useMp(t.Context(), l, p, m); err != nil {
						t.Errorf("%v on %d GPUs: %v", p, ranks, err)
					}
				}
			}
		}
		p, m := mpProduct(t, ranks, dtype.F32, false, false, 0)
		if _, err := l.Prepare(t.Context(), p, &gemm.Buffers{m[0], m[1], m[2][:8]}); !errors.Is(err, gemm.ErrShape) {
			t.Errorf("a short C: error %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if objects, bytes := f.left(); objects != 0 || bytes != 0 {
			t.Errorf("%d objects and %d bytes are left: %v", objects, bytes, f.live)
		}
	}
}

// TestMpUnsupported checks that products which the library cannot express, or may not finish, are
// refused before any call.
func TestMpUnsupported(t *testing.T) {
	f, l := newFakeMp(t, 2)
	for _, test := range []struct {
		in, out dtype.Type
		m, n, k int
		want    string
	}{
		{dtype.I8, dtype.I32, 32, 32, 16, "want one product of float matrices"},
		{dtype.BF16, dtype.BF16, 97, 61, 33, "33×61 bfloat16 on 2 GPUs: want M and N that are multiples of 16, and K of 8"},
		{dtype.BF16, dtype.BF16, 24, 16, 8, "multiples of 16"},
		{dtype.BF16, dtype.F32, 16, 24, 8, "multiples of 16"},
		{dtype.F16, dtype.F16, 16, 16, 12, "K of 8"},
		{dtype.F32, dtype.F32, 12, 16, 4, "multiples of 8, and K of 4"},
		{dtype.F64, dtype.F64, 4, 6, 2, "multiples of 4, and K of 2"},
	} {
		p := testkit.Product(t, test.in, test.out, test.m, test.n, test.k)
		_, err := l.Prepare(t.Context(), p, nil)
		if !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %s", p, err, test.want)
		}
	}
	if f.calls > 0 {
		t.Errorf("%d calls of the library", f.calls)
	}
}

// TestMpFaults fails each call of the libraries in turn. The error names the call. Other ranks that
// wait for the failed one end, and no communicator remains.
func TestMpFaults(t *testing.T) {
	p, m := mpProduct(t, 2, dtype.F32, false, false, 0)
	for failAt := 1; ; failAt++ {
		f, l := newFakeMp(t, 2)
		f.failAt = failAt
		err := l.init(t.Context())
		if err == nil {
			err = errors.Join(useMp(t.Context(), l, p, m), l.Close())
		}
		if f.calls < failAt {
			if err != nil {
				t.Errorf("no call failed: %v", err)
			}
			return
		}
		text := "status 4 (4)"
		if strings.HasPrefix(f.failed, "nccl") {
			text = "status 4: no cable (4)"
		}
		if err == nil || !strings.Contains(err.Error(), f.failed+": "+text) {
			t.Errorf("%s failed: error %v", f.failed, err)
		}
		for _, object := range f.live {
			if _, ok := object.(mpComm); ok {
				t.Errorf("%s failed: a communicator is left", f.failed)
			}
		}
		if objects, bytes := f.left(); l.failed == nil && (objects != 0 || bytes != 0) {
			t.Errorf("%s failed: %d objects and %d bytes are left", f.failed, objects, bytes)
		}
	}
}

// TestMpUnregistered checks that products are right, and described, if no workspace can be
// registered.
func TestMpUnregistered(t *testing.T) {
	f, l, x := preparedMp(t, func(f *fakeMp) { f.unregistrable = true })
	if got := x.String(); !strings.Contains(got, "gathers A before it multiplies: GPU ") {
		t.Errorf("the product is %q", got)
	}
	p, m := mpProduct(t, 2, dtype.F32, false, false, 0)
	if err := errors.Join(x.Close(), useMp(t.Context(), l, p, m), l.Close()); err != nil {
		t.Error(err)
	}
	if objects, bytes := f.left(); objects != 0 || bytes != 0 {
		t.Errorf("%d objects and %d bytes are left", objects, bytes)
	}
}

// preparedMp returns a prepared product on two GPUs of a library that change has changed.
func preparedMp(t *testing.T, change func(*fakeMp)) (*fakeMp, *CuBLASMp, *MpProduct) {
	t.Helper()
	f, l := newFakeMp(t, 2)
	change(f)
	p, m := mpProduct(t, 2, dtype.F32, false, false, 0)
	if err := l.init(t.Context()); err != nil {
		t.Fatal(err)
	}
	x, err := l.Prepare(t.Context(), p, m)
	if err != nil {
		t.Fatal(err)
	}
	return f, l, x
}

// TestMpInterrupted ends the context while a rank waits for another one, which has failed. Both
// errors are in one line. Later calls fail too.
func TestMpInterrupted(t *testing.T) {
	f, l, x := preparedMp(t, func(*fakeMp) {})
	f.failAt, l.patience = f.calls+1, time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := x.Run(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), mpMatmul) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want the deadline and the call that failed in one line", err)
	}
	if _, err := x.Run(t.Context(), 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a later product: error %v, want that of the first", err)
	}
	if err := errors.Join(x.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestMpStuck checks the errors of products that a rank does not finish: within the limit if the
// communicators end the call, and as ErrStuck if nothing does.
func TestMpStuck(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		f, l, x := preparedMp(t, func(*fakeMp) {})
		release := make(chan struct{})
		end := sync.OnceFunc(func() { close(release) })
		l.run = func(proc uintptr, a ...uintptr) uintptr {
			switch name := cublasMpProcs[proc-1]; {
			case name == mpMatmul && a[0] == l.ranks[0].handle:
				<-release
				return 6
			case name == ncclAbort && !deaf:
				end()
			}
			return f.run(proc, a...)
		}
		if !deaf {
			l.patience = time.Minute
		}
		l.limit = 20 * time.Millisecond
		_, err := x.Run(t.Context(), 1)
		if err == nil || !strings.Contains(err.Error(), "not all GPUs have finished within 20ms") ||
			errors.Is(err, ErrStuck) != deaf {
			t.Errorf("error %v", err)
		}
		if err := errors.Join(x.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		end()
	}
}

// TestMpErrors checks versions that do not fit, and devices and files that are wrong.
func TestMpErrors(t *testing.T) {
	for _, test := range []struct {
		version, comms int32
		want           string
	}{
		{901, 23007, "libcublasmp.so.0 is version 0.9.1: want 0.10.0 or later"},
		{1000, 22809, "is NCCL 2.28.9: want 2.29.2 or later"},
	} {
		f, l := newFakeMp(t, 2)
		f.version, f.comms = test.version, test.comms
		if err := l.init(t.Context()); !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %s", err, test.want)
		}
	}
	f, _ := newFakeMp(t, 2)
	text := filepath.Join(t.TempDir(), "libcublasmp.so.0")
	if err := os.WriteFile(text, []byte("no library\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		device device.Device
		path   string
		kind   error
	}{
		{f.gpus[0].Device, "", gemm.ErrUnsupported},
		{f.gpus[0], filepath.Join(t.TempDir(), "none"), ErrNotFound},
		{f.gpus[0], text, nil},
	} {
		_, err := OpenCuBLASMp(t.Context(), []device.Device{test.device}, test.path)
		if err == nil || test.kind != nil && !errors.Is(err, test.kind) || !strings.HasPrefix(err.Error(), "cublasmp: ") {
			t.Errorf("%q: error %v, want %v", test.path, err, test.kind)
		}
	}
}
