package resident

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/internal/verify"
)

// gathers is a product that gathers B in panels, and C at the other GPUs.
func gathers(seed uint64) *bitsCase {
	c := &bitsCase{in: dtype.F32, out: dtype.F32, m: 70, n: 90, k: 20, beta: 1, seed: seed, kernel: "naive",
		epilogue: gemm.Epilogue{Bias: gemm.BiasCol}}
	c.splits[gemm.C] = split.OnEach
	return c
}

// asA makes a device divide products as A is, if A is divided by rows.
func asA(d *GPUs) { d.pick = func([]split.Division) int { return 0 } }

// TestDividedFaults makes each device call of a product fail in turn, on each GPU. The error must
// name the GPU, and nothing may be left on any GPU. The next product must succeed.
func TestDividedFaults(t *testing.T) {
	t.Run("product", func(t *testing.T) { failEachCall(t, gathers(1).run) })
	// A is gathered from the GPUs with its parts, and C at the GPU that stores all of it.
	batch := &batchCase{in: dtype.F32, out: dtype.F32, m: 9, n: 7, k: 5, count: 7, beta: 1, seed: 1, kernel: "naive"}
	batch.arranged[gemm.A], batch.arranged[gemm.C] = shared, apart
	batch.splits[gemm.C] = split.OnEach
	t.Run("batch", func(t *testing.T) { failEachCall(t, batch.run) })
}

// failEachCall makes each device call of a product fail in turn, on each of three GPUs.
func failEachCall(t *testing.T, run func(context.Context, *GPUs) ([]byte, error)) {
	one, _ := openSeveral(t, emu.Options{}, "h200")
	want, err := run(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []error{device.ErrOutOfMemory, device.ErrLaunch, device.ErrLost} {
		for victim := range 3 {
			t.Run(fmt.Sprintf("%v on %d", kind, victim), func(t *testing.T) {
				failures := 0
				for at := 1; ; at++ {
					if at > 12 && !testkit.Full() {
						at += at / 4
					}
					failed := ""
					t.Run(fmt.Sprint(at), func(t *testing.T) {
						d, all := openSeveral(t, emu.Options{Seed: uint64(at)}, several(3)...)
						asA(d)
						all.faulty[victim].Fail(at, kind)
						got, err := run(t.Context(), d)
						failed = all.faulty[victim].FailedCall()
						if all.lost = kind == device.ErrLost && failed != ""; !all.lost {
							all.faulty[victim].Fail(0, nil)
						}
						name := d.members[victim].name.String()
						switch {
						case failed == "" && (err != nil || !slices.Equal(got, want)):
							t.Errorf("no call failed: error %v, right bits: %v", err, slices.Equal(got, want))
						case failed == "":
						case kind == device.ErrOutOfMemory && err == nil: // in smaller panels
							if !slices.Equal(got, want) {
								t.Errorf("after %s: wrong bits", failed)
							}
						case !errors.Is(err, kind) || !strings.Contains(err.Error(), name+":") ||
							!strings.Contains(err.Error(), failed):
							t.Errorf("%s: error %v, want %v with %s", failed, err, kind, name)
						}
						if all.lost {
							return
						}
						if again, err := run(t.Context(), d); err != nil || !slices.Equal(again, want) {
							t.Errorf("the product after a failure of %q: error %v", failed, err)
						}
					})
					if failed == "" {
						break
					}
					failures++
				}
				if failures < 15 {
					t.Errorf("%d calls failed, want at least 15", failures)
				}
			})
		}
	}
}

// TestDividedHangs makes each GPU hang in the calls of a verified product that wait, and cancels
// the product. It must end, and nothing may be left on any GPU. After the hang the next product
// must succeed.
func TestDividedHangs(t *testing.T) {
	c := gathers(1)
	c.verify = true
	one, _ := openSeveral(t, emu.Options{}, "h200")
	want, err := c.run(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	for victim := range 3 {
		for at, failed := 1, "yes"; failed != ""; at++ {
			if !testkit.Full() {
				at += at / 3
			}
			t.Run(fmt.Sprintf("wait %d of %d", at, victim), func(t *testing.T) {
				d, all := openSeveral(t, emu.Options{Seed: uint64(at)}, several(3)...)
				asA(d)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				all.faulty[victim].Hang(at, cancel)
				got, err := c.run(ctx, d)
				failed = all.faulty[victim].FailedCall()
				all.faulty[victim].Fail(0, nil)
				switch {
				case failed == "" && (err != nil || !slices.Equal(got, want)):
					t.Errorf("no call hung: error %v, right bits: %v", err, slices.Equal(got, want))
				case failed != "" && !errors.Is(err, context.Canceled):
					t.Errorf("%s hung: error %v, want %v", failed, err, context.Canceled)
				}
				if again, err := c.run(t.Context(), d); err != nil || !slices.Equal(again, want) {
					t.Errorf("the product after a hang of %q: error %v", failed, err)
				}
			})
		}
	}
}

// TestDividedCancel cancels products before they start and at any time later. Nothing may be left,
// and the next product must succeed.
func TestDividedCancel(t *testing.T) {
	d, _ := openSeveral(t, emu.Options{}, several(3)...)
	asA(d)
	cancelled := 0
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		if i == 0 {
			cancel()
		} else {
			time.AfterFunc(time.Duration(i)*200*time.Microsecond, cancel)
		}
		if _, err := gathers(uint64(i)).run(ctx, d); errors.Is(err, context.Canceled) {
			cancelled++
		} else if err != nil {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
		cancel()
	}
	if cancelled == 0 {
		t.Error("no product was cancelled")
	}
	one, _ := openSeveral(t, emu.Options{}, "h200")
	c := gathers(7)
	want, errWant := c.run(t.Context(), one)
	if got, err := c.run(t.Context(), d); err != nil || errWant != nil || !slices.Equal(got, want) {
		t.Errorf("after all: errors %v and %v, right bits: %v", err, errWant, slices.Equal(got, want))
	}
}

// TestDividedCloseDuringProducts closes a device while several goroutines multiply on it.
func TestDividedCloseDuringProducts(t *testing.T) {
	for seed := range uint64(4) {
		d, _ := openSeveral(t, emu.Options{Seed: seed}, several(2)...)
		asA(d)
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				for n := range uint64(100) {
					_, err := gathers(n).run(t.Context(), d)
					if errors.Is(err, sentinel.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("caller %d: %v", i, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(seed+1) * 3 * time.Millisecond)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

// inOne makes a device divide products among all GPUs and gather all operands before one launch.
func inOne(d *GPUs) {
	d.pick = func(all []split.Division) int {
		return slices.IndexFunc(all, func(x split.Division) bool {
			return !slices.ContainsFunc(x.Shares, func(s split.Share) bool { return len(s.Panels) != 1 })
		})
	}
}

// TestDividedMemory runs products with less and less memory. They use smaller panels, and in the
// end return ErrOutOfMemory with the name of a GPU.
func TestDividedMemory(t *testing.T) {
	t.Run("panels", func(t *testing.T) { shrinkMemory(t, asA) })
	t.Run("gathered first", func(t *testing.T) { shrinkMemory(t, inOne) })
}

// shrinkMemory runs products with less and less memory, on devices that divide picks plans for.
func shrinkMemory(t *testing.T, divide func(*GPUs)) {
	t.Helper()
	const m, n, k = 64, 400, 64
	one, _ := openSeveral(t, emu.Options{}, "h200")
	c := &bitsCase{in: dtype.F32, out: dtype.F32, m: m, n: n, k: k, beta: 1, seed: 3, kernel: "naive"}
	want, err := c.run(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	operands := 4 * (m*k + k*n + m*n)
	right, short := 0, 0
	for free := 4 * k * n * 3; free > 0; free -= 6000 {
		d, _ := openSeveral(t, emu.Options{Memory: int64(operands/2 + 2000 + free)}, several(2)...)
		divide(d)
		d.panelBytes = usualPanelBytes
		got, err := c.run(t.Context(), d)
		switch {
		case err == nil && slices.Equal(got, want):
			right++
		case errors.Is(err, sentinel.ErrOutOfMemory) && strings.Contains(err.Error(), "panels of operands") &&
			strings.Contains(err.Error(), "emu:h200"):
			short++
		default:
			t.Errorf("%d bytes besides the operands: error %v, right bits: %v", free, err, slices.Equal(got, want))
		}
	}
	if right < 5 || short < 1 {
		t.Errorf("%d products ran and %d had too little memory, want at least 5 and 1", right, short)
	}
}

// TestDividedOrder overwrites and frees operands right after products that read them, and reads
// results that the next product overwrites. The GPUs execute their streams in many orders.
func TestDividedOrder(t *testing.T) {
	ctx := t.Context()
	const n = 48
	l := gemm.Dense(dtype.F32, n, n)
	one := make([]byte, l.Bytes())
	for i := range n * n {
		dtype.F32.Set(one, i, 1)
	}
	scaled := func(x float64) []byte {
		b := make([]byte, l.Bytes())
		for i := range n {
			dtype.F32.Set(b, i*n+i, x)
		}
		return b
	}
	rng := testrand.New(t)
	for order := range testkit.Cases(6, 24) {
		d, _ := openSeveral(t, emu.Options{Seed: rng.Uint64()}, several(2+order%3)...)
		pickAny(d)
		fresh := func(data []byte) Matrix {
			m, err := New(d, l, split.By(rng.IntN(3)))
			if err == nil {
				err = m.CopyIn(ctx, data, l)
			}
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a, b, want := fresh(one), fresh(scaled(2)), 1.
		for range 5 {
			c := fresh(scaled(0))
			if err := compute(ctx, product(1, 0, []Matrix{a, b, c})); err != nil {
				t.Fatal(err)
			}
			want *= 2
			// C = 2·A. B and A are overwritten and freed before any GPU needs to have read them.
			if err := b.CopyIn(ctx, scaled(3), l); err != nil {
				t.Fatal(err)
			}
			if err := compute(ctx, product(1, 0, []Matrix{c, b, a})); err != nil { // A = 3·C
				t.Fatal(err)
			}
			want *= 3
			for _, m := range []Matrix{c, b} {
				if err := m.Memory.Close(); err != nil {
					t.Fatal(err)
				}
			}
			b = fresh(scaled(2))
		}
		got := make([]byte, l.Bytes())
		if err := a.CopyOut(ctx, got, l); err != nil {
			t.Fatal(err)
		}
		for i := range n * n {
			if x := dtype.F32.At(got, i); x != want {
				t.Fatalf("order %d: element %d is %v, want %v", order, i, x, want)
			}
		}
	}
}

// TestDividedTraffic compares the bytes that the GPUs copy with the closed form: each of m GPUs
// receives the (m-1)/m of B that it lacks, and copies its own part to a panel.
func TestDividedTraffic(t *testing.T) {
	const n = 96
	for _, members := range []int{2, 3, 4, 8} {
		d, all := openSeveral(t, emu.Options{}, several(members)...)
		asA(d)
		c := &bitsCase{in: dtype.F32, out: dtype.F32, m: n, n: n, k: n, kernel: "naive"}
		if _, err := c.run(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		for to := range members {
			for from := range members {
				if want := int64(4 * n * n / members); all.emulated[to].Copied(all.emulated[from]) != want {
					t.Errorf("%d GPUs: %d copied %d bytes from %d, want %d", members, to,
						all.emulated[to].Copied(all.emulated[from]), from, want)
				}
			}
		}
	}
}

// TestDividedModels multiplies on GPUs of different models. The faster one has more rows. A kernel
// that one of them cannot run is refused, with its name.
func TestDividedModels(t *testing.T) {
	d, _ := openSeveral(t, emu.Options{}, "h200", "t4")
	asA(d)
	one, _ := openSeveral(t, emu.Options{}, "h200")
	for _, kernel := range []string{"naive", "blocked"} {
		c := gathers(5)
		c.kernel = kernel
		want, err := c.run(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.run(t.Context(), d); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: error %v, right bits: %v", kernel, err, slices.Equal(got, want))
		}
	}
	m, err := New(d, gemm.Dense(dtype.F32, 1000, 8), split.Rows)
	if err != nil {
		t.Fatal(err)
	}
	if ends := m.Memory.whole.Ends; ends[0] < 700 || ends[1] != 1000 {
		t.Errorf("an H200 and a T4 have rows up to %v", ends)
	}
	c := &bitsCase{in: dtype.BF16, out: dtype.BF16, m: 256, n: 256, k: 64, kernel: "wgmma"}
	if _, err := c.run(t.Context(), d); !errors.Is(err, gemm.ErrUnsupported) ||
		!strings.Contains(err.Error(), "emu:t4#1") {
		t.Errorf("wgmma: error %v, want ErrUnsupported with emu:t4#1", err)
	}
}

// TestDividedVerify verifies products, right and wrong.
func TestDividedVerify(t *testing.T) {
	d, _ := openSeveral(t, emu.Options{}, several(3)...)
	one, _ := openSeveral(t, emu.Options{}, "h200")
	pickAny(d)
	for seed := range uint64(6) {
		c := gathers(seed)
		c.kernel = ""
		want, err := c.run(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		c.verify = true
		if got, err := c.run(t.Context(), d); err != nil || !slices.Equal(got, want) {
			t.Errorf("error %v, right bits: %v", err, slices.Equal(got, want))
		}
	}
}

// TestDividedVerifyMemory checks that a verified product reserves the memory for its launches once:
// it allocates no more than a product that is not verified, and the vectors of the check.
func TestDividedVerifyMemory(t *testing.T) {
	const m, n, k, gpus = 192, 192, 2048, 2
	d, all := openSeveral(t, emu.Options{}, several(gpus)...)
	d.unit, d.panelBytes = 16, 1<<20
	asA(d)
	c := &bitsCase{in: dtype.F32, out: dtype.F32, m: m, n: n, k: k, kernel: "blocked"}
	c.splits[gemm.B] = split.OnEach
	var most [2][gpus]int
	for i := range most {
		for _, below := range all.faulty {
			below.Fail(0, nil)
		}
		c.verify = i == 1
		if _, err := c.run(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		for j, below := range all.faulty {
			most[i][j] = below.MostBytes()
		}
	}
	const check = (2*m + 2*n + 2*k) * 8 * (verify.NumVectors + 1) // vectors and weights, in float64
	for _, v := range d.divisions.All() {
		for i := range gpus {
			scratch := v.launches[i][0].plan.ScratchBytes()
			if scratch <= check {
				t.Fatalf("the launches take %d bytes: want more than the %d of the check", scratch, check)
			}
			if n := most[1][i] - most[0][i]; n > check {
				t.Errorf("GPU %d allocates %d bytes more for a verified product, want at most %d", i, n, check)
			}
		}
	}
}
