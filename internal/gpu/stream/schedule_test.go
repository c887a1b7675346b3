package stream

import (
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/program"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// h200 is a device with the properties of an H200. Its only usable method is Info.
type h200 struct{ device.Device }

func (h200) Info() *device.Info {
	return &device.Info{
		Name: "NVIDIA H200", Target: ptx.Target{SM: 90, Suffix: "a"}, SMs: 132, Memory: 141 << 30, MaxThreads: 1024,
		Staging: device.Staging{Threads: 6, BufferBytes: 24 << 20},
	}
}

// planned returns the plan of an M×N×K product on an H200.
func planned(t *testing.T, in, out dtype.Type, m, n, k int, alpha, beta complex128) *Plan {
	t.Helper()
	p, _, err := gemm.New(alpha, gemm.Dense(in, m, k), gemm.Dense(in, k, n), beta, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := New(h200{}).Plan(&p, exec.Options{Kernel: "blocked", Tile: "64x64x8/8x4/4"})
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// TestSchedules checks random schedules. Every term of every element of C must be added once, in
// the order of K. Operands must be loaded before a step reads them, and no element twice while its
// buffer still holds it. Every element of C must be stored once.
func TestSchedules(t *testing.T) {
	rng := testrand.New(t)
	for range 300 {
		m, n, k := 1+rng.IntN(60), 1+rng.IntN(60), 1+rng.IntN(60)
		pl := planned(t, dtype.F32, dtype.F32, m, n, k, 1, complex(float64(rng.IntN(2)), 0))
		if rng.IntN(2) == 0 {
			more := *pl.host
			more.Epilogue.Residual, more.Layouts[gemm.Residual] = true, gemm.Dense(dtype.F32, m, n)
			pl.host = &more
		}
		if rng.IntN(2) == 0 && pl.host.Beta == 0 {
			more := *pl.host
			more.Epilogue.Gated, more.Layouts[gemm.Up] = true, more.Layouts[gemm.B]
			pl.host = &more
		}
		s := randomSchedule(rng, pl)
		summed, stored := make([]int, m*n), make([]bool, m*n)
		holds := map[[2]int]*holding{}
		for i := range s.steps {
			st := &s.steps[i]
			for x := range matrices {
				tile := st.tiles[x]
				if !pl.host.Uses(x) {
					continue
				}
				at := [2]int{int(x), st.buffers[x]}
				if h := holds[at]; h == nil || h.tile != tile {
					if !st.begins[x] {
						t.Fatalf("step %d of %s: operand %d is not in its buffer, and the step does not begin a new tile", i, s.words, x)
					}
					holds[at] = &holding{tile, map[[2]int]bool{}}
				} else if st.begins[x] {
					t.Fatalf("step %d of %s: begins a new tile of operand %d, which is already in its buffer", i, s.words, x)
				}
				loaded := holds[at].loaded
				for e := range elements(st.load[x]) {
					if !has(tile, e) || loaded[e] {
						t.Fatalf("step %d of %s: loads element %v of operand %d, which is already loaded or outside the tile",
							i, s.words, e, x)
					}
					loaded[e] = true
				}
				for e := range elements(st.parts()[x]) {
					if x != gemm.C && (x != gemm.Residual || st.store) && !loaded[e] || !has(tile, e) {
						t.Fatalf("step %d of %s: element %v of operand %d is not loaded or outside the tile", i, s.words, e, x)
					}
				}
			}
			if got := !st.load[gemm.C].Empty(); got != (pl.host.Beta != 0 && st.depth.From == 0) {
				t.Fatalf("step %d of %s: loads C: %v", i, s.words, got)
			}
			for r := st.rows.From; r < st.rows.To; r++ {
				for c := st.cols.From; c < st.cols.To; c++ {
					if e := r*n + c; summed[e] != st.depth.From || stored[e] {
						t.Fatalf("step %d of %s: C(%d,%d) has %d terms or is stored, and the step adds terms from %d",
							i, s.words, r, c, summed[e], st.depth.From)
					} else {
						summed[e], stored[e] = st.depth.To, st.store
					}
				}
			}
		}
		for e := range summed {
			if summed[e] != k || !stored[e] {
				t.Fatalf("%s: element %d of C has %d of %d terms, stored: %v", s.words, e, summed[e], k, stored[e])
			}
		}
	}
}

// holding is the tile that a buffer holds, and the elements of it that have been loaded.
type holding struct {
	tile   program.Rect
	loaded map[[2]int]bool
}

// elements returns an iterator over the (row, column) pairs of p.
func elements(p program.Rect) iter.Seq[[2]int] {
	return func(yield func([2]int) bool) {
		for r := p.Rows.From; r < p.Rows.To; r++ {
			for c := p.Cols.From; c < p.Cols.To; c++ {
				if !yield([2]int{r, c}) {
					return
				}
			}
		}
	}
}

// has reports whether p contains the element e, a row and a column.
func has(p program.Rect, e [2]int) bool {
	return p.Rows.From <= e[0] && e[0] < p.Rows.To && p.Cols.From <= e[1] && e[1] < p.Cols.To
}

// TestFastest checks the kind of schedule that is selected for products on an H200, logs its
// prediction, and checks that planning is deterministic.
func TestFastest(t *testing.T) {
	for _, c := range []struct {
		pl   *Plan
		want string
	}{
		{planned(t, dtype.F32, dtype.F32, 64, 64, 64, 1, 0), ""},
		{planned(t, dtype.F32, dtype.F32, 0, 10_000, 10_000, 1, 0), ""},
		{planned(t, dtype.F32, dtype.F32, 10_000, 0, 10_000, 1, 0), ""},
		{planned(t, dtype.F32, dtype.F32, 10_000, 10_000, 0, 1, 0), ""},
		{planned(t, dtype.F32, dtype.F32, 8192, 8192, 8192, 1, 0), "slices of K"},
		{planned(t, dtype.F32, dtype.F32, 8192, 8192, 8192, 1, 1), "panels of rows"},
		{planned(t, dtype.F32, dtype.F32, 8192, 8192, 8192, 1.5, 0), "panels of rows"},
		{planned(t, dtype.F16, dtype.F16, 8192, 8192, 8192, 1, 0), "panels of rows"},
		{planned(t, dtype.F64, dtype.F64, 8192, 8192, 8192, -0.5, 0), "slices of K"},
		{planned(t, dtype.F64, dtype.F64, 8192, 8192, 8192, -2, 0), "panels of rows"}, // a slice times -2 can overflow
		{planned(t, dtype.I8, dtype.I32, 8192, 8192, 8192, 3, 0), "slices of K"},
		{planned(t, dtype.F16, dtype.F32, 512, 16384, 4096, 1, 0.5), "panels of rows"},
		{planned(t, dtype.F32, dtype.F32, 200_000, 200_000, 200_000, 1, 0), "blocks"},
	} {
		s := c.pl.Schedule()
		kind := ""
		switch first := s.steps[0]; {
		case strings.Contains(s.words, "blocks"):
			kind = "blocks"
		case first.depth.To < c.pl.host.K:
			kind = "slices of K"
		case first.rows.Len() < c.pl.host.M:
			kind = "panels of rows"
		case first.cols.Len() < c.pl.host.N:
			kind = "panels of columns"
		}
		t.Logf("%v, alpha %v, beta %v: %d steps, %d MiB: %s", c.pl.host, real(c.pl.host.Alpha), real(c.pl.host.Beta),
			len(s.steps), s.Memory()>>20, c.pl.Detail())
		if kind != c.want {
			t.Errorf("%v: %s: schedule of kind %q, want %q", c.pl.host, s.words, kind, c.want)
		}
		again := c.pl.host
		if pl, err := New(h200{}).Plan(again, exec.Options{Kernel: "blocked", Tile: "64x64x8/8x4/4"}); err != nil ||
			!reflect.DeepEqual(pl.Schedule(), s) {
			t.Errorf("%v: the second plan differs from the first, or failed: %v", c.pl.host, err)
		}
		if most := int(c.pl.Backend().Device.Info().Memory); kind == "blocks" && s.Memory() > most {
			t.Errorf("%v: the schedule needs %d bytes, the device has %d", c.pl.host, s.Memory(), most)
		}
	}
}

// TestPredict checks the bounds of a predicted time. It is at least the longest of loading,
// computing and storing, and at most the sum of all three plus the costs of startup and of steps.
func TestPredict(t *testing.T) {
	rng := testrand.New(t)
	for range 200 {
		pl := planned(t, dtype.F32, dtype.F32, 1+rng.IntN(5000), 1+rng.IntN(5000), 1+rng.IntN(5000), 1,
			complex(float64(rng.IntN(2)), 0))
		r := pl.rates()
		for _, s := range []*schedule{pl.wholly(), randomPanels(rng, pl)} {
			e := pl.predict(s, r)
			times := alone(e)
			most := times[0] + times[1] + times[2] + r.startup
			for range len(s.steps) + 1 {
				most += r.step
			}
			if least := slices.Max(times); e.Total < least || e.Total > most {
				t.Errorf("%v, %s: predicted %+v, want a total of %v to %v", pl.host, s.words, e, least, most)
			}
		}
		s, e := pl.fastest(r)
		if whole := pl.predict(pl.wholly(), r); e.Total > whole.Total {
			t.Errorf("%v: fastest schedule, %s, is predicted to take %v, one step %v", pl.host, s.words, e.Total, whole.Total)
		}
	}
}

// randomPanels returns an overlapped schedule with a random order and random panels.
func randomPanels(rng *rand.Rand, pl *Plan) *schedule {
	o := randomOrder(rng, pl)
	return pl.overlapped(o, pl.panels(o, []int{1, 3, 9, -4}[rng.IntN(4)]))
}
