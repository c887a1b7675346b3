package resident

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/split"
	"tilework/internal/testkit/testrand"
)

// openIdle opens n H200s that execute nothing as one device. wrap may replace each of them.
func openIdle(t testing.TB, n int, wrap func(device.Device) device.Device) *GPUs {
	t.Helper()
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
		d := devicetest.NewNull()
		d.Device.Name, d.Device.Target.Suffix, d.Device.SMs, d.Device.MaxShared = "NVIDIA H200", "a", 132, 227<<10
		return wrap(d), nil
	})
	name := backend.DeviceName{Kind: backend.Emulator, Model: "h200"}
	if n > 1 {
		name = backend.DeviceName{Kind: backend.Emulator, List: strings.Join(several(n), ",")}
	}
	d, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	d.KeepPlans() // so that all calls of a product are alike
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), restore()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// openCounted is openIdle with GPUs that count the calls.
func openCounted(t testing.TB, n int) (*GPUs, *[]*faulty.Device) {
	var all []*faulty.Device
	d := openIdle(t, n, func(inner device.Device) device.Device {
		all = append(all, faulty.New(inner))
		return all[len(all)-1]
	})
	return d, &all
}

// plain returns the product of an m×k and a k×n matrix with undefined elements. B is divided in the
// given way, and A and C by rows.
func plain(t testing.TB, d *GPUs, kind dtype.Type, m, n, k int, by split.By) *Job {
	t.Helper()
	p := product(1, 0, nil)
	for o, l := range []gemm.Layout{gemm.Dense(kind, m, k), gemm.Dense(kind, k, n), gemm.Dense(kind, m, n)} {
		ways := [...]split.By{split.Rows, by, split.Rows}
		var err error
		if p.Operands[o].On, err = New(d, l, ways[o]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.complete(); err != nil {
		t.Fatal(err)
	}
	return p
}

// counts returns the calls of a product that has run before, by GPU.
func counts(t *testing.T, all []*faulty.Device, p *Job) (counted []map[string]int) {
	t.Helper()
	for _, d := range all {
		d.Fail(0, nil)
	}
	if err := Gemm(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		counted = append(counted, d.Counts())
	}
	return counted
}

// TestDividedCalls counts the calls with which repeated products are enqueued. Those of small
// matrices are one launch, on the first GPU or on each.
func TestDividedCalls(t *testing.T) {
	for _, c := range []struct {
		gpus, n int
		by      split.By
		small   bool // whether small matrices are divided, too
		want    string
	}{
		{2, 512, split.Rows, false, "map[Launch:1] map[]"},
		{2, 2048, split.Columns, false, "map[Launch:1] map[]"},
		{4, 2048, split.Rows, false, "map[Launch:1] map[] map[] map[]"},
		{8, 1024, split.Rows, false, "map[Launch:1]" + strings.Repeat(" map[]", 7)},
		{2, 512, split.OnEach, true, "map[Launch:1] map[Launch:1]"},
		{2, 512, split.Rows, true, "map[CopyPeer:5 Event.Free:1 Launch:1 Record:1 Wait:2] " +
			"map[CopyPeer:1 Event.Free:2 Record:2 Wait:1]"},
		{2, 512, split.Columns, true, "map[CopyPeer:5 Event.Free:1 Launch:1 Record:1 Wait:2] " +
			"map[CopyPeer:1 Event.Free:2 Record:2 Wait:1]"},
		{4, 512, split.Rows, true, strings.Repeat(" map[CopyPeer:4 Event.Free:2 Launch:1 Record:2 Wait:6]", 4)[1:]},
	} {
		d, all := openCounted(t, c.gpus)
		if c.small {
			d.dividesAll = true
		}
		p := plain(t, d, dtype.BF16, c.n, c.n, c.n, c.by)
		if err := Gemm(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := counts(t, *all, p); fmt.Sprint(got) != "["+c.want+"]" {
			t.Errorf("%d³ on %d GPUs, B %v: calls %v, want %s", c.n, c.gpus, c.by, got, c.want)
		}
	}
}

// TestDividedCallsPredicted compares the calls of random products with those of their plans.
func TestDividedCallsPredicted(t *testing.T) {
	rng := testrand.New(t)
	for _, n := range []int{2, 3, 4, 8} {
		d, all := openCounted(t, n)
		d.unit, d.panelBytes, d.dividesAll = 16, 1<<14, true
		pickAny(d)
		moved := 0
		for range 40 {
			p := plain(t, d, dtype.F32, 1+rng.IntN(200), 1+rng.IntN(200), 1+rng.IntN(50), split.By(rng.IntN(3)))
			p.Kernel, p.Beta = "naive", complex(float64(rng.IntN(2)), 0)
			if rng.IntN(3) == 0 {
				p.Operands[gemm.C].On = plain(t, d, dtype.F32, p.c().Layout.Rows, p.c().Layout.Cols, 1, split.Rows).c()
			}
			if err := Gemm(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			got, want := []int{}, []int{}
			for _, calls := range counts(t, *all, p) {
				got = append(got, calls["Launch"]+calls["CopyPeer"]+calls["Record"]+calls["Wait"])
				if calls["Alloc"]+calls["Load"] > 0 {
					t.Errorf("calls %v, want no allocation", calls)
				}
			}
			if err := p.with(func(x planned) error {
				want = x.division.work.Calls()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v: calls %v, want %v", p.Operands[gemm.B].On.Layout, got, want)
			}
			if slices.Max(want) > 1 {
				moved++
			}
		}
		if moved == 0 {
			t.Errorf("no product on %d GPUs copies anything", n)
		}
	}
}

// TestDividedRepeated repeats products of matrices that move and factors that change, so that the
// launches of the last product do not fit the next one.
func TestDividedRepeated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3} {
		d, _ := openSeveral(t, emu.Options{}, several(n)...)
		pickAny(d)
		const side = 40
		l := gemm.Dense(dtype.F32, side, side)
		var all [6]Matrix
		var values [6]float64 // all elements of a matrix are equal
		for i := range all {
			m, err := New(d, l, split.Rows)
			if err != nil {
				t.Fatal(err)
			}
			all[i], values[i] = m, float64(rng.IntN(3))
			if err := m.CopyIn(t.Context(), filled(l, values[i]), l); err != nil {
				t.Fatal(err)
			}
		}
		for range 30 {
			at := rng.Perm(len(all))[:3]
			alpha, beta := float64(1+rng.IntN(3)), float64(rng.IntN(2))
			p := product(complex(alpha, 0), complex(beta, 0), []Matrix{all[at[0]], all[at[1]], all[at[2]]})
			if err := compute(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			want := alpha*side*values[at[0]]*values[at[1]] + beta*values[at[2]]
			got := make([]byte, l.Bytes())
			if err := all[at[2]].CopyOut(t.Context(), got, l); err != nil {
				t.Fatal(err)
			}
			for i := range side * side {
				if x := dtype.F32.At(got, i); x != want {
					t.Fatalf("element %d is %v, want %v", i, x, want)
				}
			}
			values[at[2]] = float64(rng.IntN(3))
			if err := all[at[2]].CopyIn(t.Context(), filled(l, values[at[2]]), l); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// filled returns a matrix of equal elements.
func filled(l gemm.Layout, x float64) []byte {
	b := make([]byte, l.Bytes())
	for i := range l.Rows * l.Cols {
		l.Type.Set(b, i, x)
	}
	return b
}

// BenchmarkGPUDividedIssue measures the host's time to enqueue a product on all GPUs of this
// machine, and counts the calls of the driver: of matrices on each GPU, and of divided ones, with
// one goroutine and with one per GPU. callSeconds and constants of package split predict the times.
func BenchmarkGPUDividedIssue(b *testing.B) {
	for _, c := range []struct {
		name       string
		by         split.By
		concurrent bool
	}{
		{"on each", split.OnEach, false},
		{"divided", split.Rows, false},
		{"divided, one goroutine per GPU", split.Rows, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := openGPU(b, backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs})
			d.dividesAll = true
			p := plain(b, d, dtype.BF16, 512, 512, 512, c.by)
			if c.by == split.OnEach {
				p.Operands[gemm.A] = p.Operands[gemm.B]
				p.Operands[gemm.C] = plain(b, d, dtype.BF16, 512, 512, 512, c.by).Operands[gemm.B]
			}
			calls := 0
			if err := p.with(func(x planned) error {
				x.division.Concurrent = c.concurrent
				x.division.work = x.division.Work(&x.division.Division)
				for _, n := range x.division.work.Calls() {
					calls += n
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				if i%16 == 0 { // the streams take a limited number of launches
					b.StopTimer()
					if err := d.Sync(b.Context()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				if err := Gemm(b.Context(), p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(calls), "calls")
			if err := d.Sync(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
