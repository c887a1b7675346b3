package tilework

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"tilework/internal/testkit/testrand"
	"tilework/ptx/build"
)

// TestCallbackPanics checks that a panic of each function that a caller passes to a product reaches
// the caller with its value, on whichever goroutine it happens, that nothing runs afterwards, and
// that the next product is correct.
func TestCallbackPanics(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	const size = 300
	a, b := FromSlice(size, size, ones(size*size)), FromSlice(size, size, ones(size*size))
	var calls atomic.Int32
	var running atomic.Int32
	var others chan struct{}
	// fail panics in its second call. The first one waits for it, so that two goroutines are in it.
	fail := func() {
		defer running.Add(-1)
		running.Add(1)
		switch calls.Add(1) {
		case 1:
			<-others
		case 2:
			close(others)
			panic(t)
		}
	}
	tile := WithTileFunc(func(Matrix[float32], int, int) { fail() })
	for name, opts := range map[string][]Option{
		"tiles":            {tile},
		"tile, verified":   {WithTileFunc(func(Matrix[float32], int, int) { panic(t) }), WithVerify()},
		"tiles, gated":     {tile, WithGated(b)},
		"tiles, invariant": {tile, WithRowInvariance()},
		"tiles, portable":  {tile, WithKernel("portable")},
		"progress": {WithProgress(func(done, _ int64) {
			if done > 1 {
				panic(t)
			}
		})},
	} {
		for range 10 {
			calls.Store(0)
			others = make(chan struct{})
			c := New[float32](size, size)
			opts := append(opts[:len(opts):len(opts)], WithDevice("cpu"), WithThreads(4))
			if got := panicOf(func() { _ = Gemm(t.Context(), 1, a, b, 0, c, opts...) }); got != t {
				t.Fatalf("%s: panic %v, want that of the function", name, got)
			}
			if n := running.Load(); n != 0 {
				t.Fatalf("%s: %d calls of the function run after the product", name, n)
			}
			if err := Gemm(t.Context(), 1, a, b, 0, c, WithDevice("cpu")); err != nil || c.At(size-1, size-1) != size {
				t.Fatalf("%s: the next product: %v, error %v", name, c.At(size-1, size-1), err)
			}
		}
	}
}

func ones(n int) []float32 {
	all := make([]float32, n)
	for i := range all {
		all[i] = 1
	}
	return all
}

func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// TestDeviceFuncPanics checks that a panic of a DeviceFunc, which writes code when a product
// compiles a kernel, reaches the caller with its value on one GPU and on several, which compile on
// goroutines of their own. It leaves no goroutine, and the next product is correct.
func TestDeviceFuncPanics(t *testing.T) {
	var broken atomic.Bool
	added := testrand.New(t).IntN(1 << 20) // no earlier run has compiled the kernel
	f, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg {
		if broken.Load() {
			panic(t)
		}
		return k.Add(k.Mul(e.Value, e.Value), added)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	for i, device := range []string{"emu", "emu:h200,h200"} {
		a, b := FromSlice(64, 3+i, ones(64*(3+i))), FromSlice(3+i, 64, ones(64*(3+i)))
		opts := []Option{WithDevice(device), WithDeviceFunc[float32](f, nil), WithKernel("naive")}
		broken.Store(true)
		if got := panicOf(func() { _, _ = Mul(t.Context(), a, b, opts...) }); got != t {
			t.Errorf("%s: panic %v, want that of the function", device, got)
		}
		broken.Store(false)
		c, err := Mul(t.Context(), a, b, opts...)
		if want := float32((3+i)*(3+i) + added); err != nil || c.At(63, 63) != want {
			t.Errorf("%s: the next product: %v, error %v, want %v", device, c.At(63, 63), err, want)
		}
	}
	goleak.VerifyNone(t, before)
}

// TestServerSurvives checks that a server whose handlers multiply at the same time survives
// handlers that panic in a tile function.
func TestServerSurvives(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	const size = 200
	a := FromSlice(size, size, ones(size*size))
	handler := func(w http.ResponseWriter, r *http.Request) {
		c, err := Mul(context.WithoutCancel(r.Context()), a, a, WithDevice("cpu"),
			WithTileFunc(func(Matrix[float32], int, int) {
				if r.URL.Path == "/broken" {
					panic(http.ErrAbortHandler)
				}
			}))
		if err == nil {
			_, err = fmt.Fprint(w, c.At(0, size-1))
		}
		if err != nil {
			t.Error(err)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(handler))
	defer s.Close()
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() {
			path := []string{"/", "/broken"}[n%2]
			for range 5 {
				answer, err := s.Client().Get(s.URL + path)
				switch {
				case n%2 == 1 && err == nil:
					t.Error("a broken handler gives an answer")
				case n%2 == 0 && err != nil:
					t.Error(err)
				}
				if err == nil {
					_ = answer.Body.Close()
				}
			}
		})
	}
	clients.Wait()
}
