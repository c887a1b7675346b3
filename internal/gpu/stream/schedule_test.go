package stream

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/ptx"
)

// h200 is a device that is asked what it is, and nothing else.
type h200 struct{ device.Device }

func (h200) Info() *device.Info {
	return &device.Info{
		Name: "NVIDIA H200", Target: ptx.Target{SM: 90, Suffix: "a"}, SMs: 132, Memory: 141 << 30, MaxThreads: 1024,
		Staging: device.Staging{Threads: 6, BufferBytes: 24 << 20},
	}
}

// planned is the plan of a product on an H200.
func planned(t *testing.T, in, out dtype.Type, m, n, k int, alpha, beta float64) *Plan {
	t.Helper()
	p, _, err := gemm.New(alpha, gemm.Dense(in, m, k), gemm.Dense(in, k, n), beta, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := New(h200{}).Plan(&p, exec.Options{Kernel: "blocked", Shape: "64x64x8/8x4/4"})
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// TestSchedules: each term of each element of C is added once, in the order of K; what is
// read has come in, and nothing twice without need; each element goes out once.
func TestSchedules(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		m, n, k := 1+rng.IntN(60), 1+rng.IntN(60), 1+rng.IntN(60)
		pl := planned(t, dtype.F32, dtype.F32, m, n, k, 1, float64(rng.IntN(2)))
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
		summed, left := make([]int, m*n), make([]bool, m*n)
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
						t.Fatalf("step %d of %s does not begin with operand %d, which is not there", i, s.words, x)
					}
					holds[at] = &holding{tile, map[[2]int]bool{}}
				} else if st.begins[x] {
					t.Fatalf("step %d of %s begins with operand %d, which is there", i, s.words, x)
				}
				there := holds[at].there
				for e := range st.load[x].elements() {
					if !tile.has(e) || there[e] {
						t.Fatalf("step %d of %s: element %v of operand %d comes in, which is there or not of the tile", i, s.words, e, x)
					}
					there[e] = true
				}
				for e := range st.parts()[x].elements() {
					if x != gemm.C && (x != gemm.Residual || st.store) && !there[e] || !tile.has(e) {
						t.Fatalf("step %d of %s: element %v of operand %d is not there", i, s.words, e, x)
					}
				}
			}
			if got := !st.load[gemm.C].empty(); got != (pl.host.Beta != 0 && st.depth.from == 0) {
				t.Fatalf("step %d of %s: C comes in: %v", i, s.words, got)
			}
			for r := st.rows.from; r < st.rows.to; r++ {
				for c := st.cols.from; c < st.cols.to; c++ {
					if e := r*n + c; summed[e] != st.depth.from || left[e] {
						t.Fatalf("step %d of %s: (%d,%d) has %d terms, and adds those from %d", i, s.words, r, c, summed[e], st.depth.from)
					} else {
						summed[e], left[e] = st.depth.to, st.store
					}
				}
			}
		}
		for e := range summed {
			if summed[e] != k || !left[e] {
				t.Fatalf("%s: element %d has %d terms of %d, and has gone out: %v", s.words, e, summed[e], k, left[e])
			}
		}
	}
}

// holding is a buffer's tile, and which of its elements have come in.
type holding struct {
	tile  part
	there map[[2]int]bool
}

// elements ranges over a part's.
func (p part) elements() iter.Seq[[2]int] {
	return func(yield func([2]int) bool) {
		for r := p.rows.from; r < p.rows.to; r++ {
			for c := p.cols.from; c < p.cols.to; c++ {
				if !yield([2]int{r, c}) {
					return
				}
			}
		}
	}
}

func (p part) has(e [2]int) bool {
	return p.rows.from <= e[0] && e[0] < p.rows.to && p.cols.from <= e[1] && e[1] < p.cols.to
}

// TestFastest: what is chosen for some products on an H200, for a person to read.
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
		{planned(t, dtype.F64, dtype.F64, 8192, 8192, 8192, -2, 0), "slices of K"},
		{planned(t, dtype.I8, dtype.I32, 8192, 8192, 8192, 3, 0), "slices of K"},
		{planned(t, dtype.F16, dtype.F32, 512, 16384, 4096, 1, 0.5), "panels of rows"},
		{planned(t, dtype.F32, dtype.F32, 200_000, 200_000, 200_000, 1, 0), "streamed"},
	} {
		s := c.pl.Schedule()
		kind := ""
		switch first := s.steps[0]; {
		case strings.Contains(s.words, "streamed"):
			kind = "streamed"
		case first.depth.to < c.pl.host.K:
			kind = "slices of K"
		case first.rows.n() < c.pl.host.M:
			kind = "panels of rows"
		case first.cols.n() < c.pl.host.N:
			kind = "panels of columns"
		}
		t.Logf("%v, alpha %v, beta %v: %d steps, %d MiB: %s", c.pl.host, c.pl.host.Alpha, c.pl.host.Beta, len(s.steps), s.Memory()>>20, c.pl.Detail())
		if kind != c.want {
			t.Errorf("%v: %s: %q, want %q", c.pl.host, s.words, kind, c.want)
		}
		again := c.pl.host
		if pl, err := New(h200{}).Plan(again, exec.Options{Kernel: "blocked", Shape: "64x64x8/8x4/4"}); err != nil || fmt.Sprint(pl.Schedule()) != fmt.Sprint(s) {
			t.Errorf("%v: planned again: %v, otherwise", c.pl.host, err)
		}
		if most := int(c.pl.Backend().Device.Info().Memory); kind == "streamed" && s.Memory() > most {
			t.Errorf("%v: %d bytes of %d", c.pl.host, s.Memory(), most)
		}
	}
}

// TestForetell: a schedule's time is at least that of each of its parts, and at most
// that of all of them and their steps one after the other.
func TestForetell(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		pl := planned(t, dtype.F32, dtype.F32, 1+rng.IntN(5000), 1+rng.IntN(5000), 1+rng.IntN(5000), 1, float64(rng.IntN(2)))
		r := pl.rates()
		for _, s := range []*schedule{pl.wholly(), randomPanels(rng, pl)} {
			e := pl.predict(s, r)
			most := e.in + e.compute + e.out + r.startup
			for range len(s.steps) + 1 {
				most += r.step
			}
			if least := max(e.in, e.compute, e.out); e.total < least || e.total > most {
				t.Errorf("%v, %s: %+v", pl.host, s.words, e)
			}
		}
		s, e := pl.fastest(r)
		if whole := pl.predict(pl.wholly(), r); e.total > whole.total {
			t.Errorf("%v: %s takes %v, one step %v", pl.host, s.words, e.total, whole.total)
		}
	}
}

func randomPanels(rng *rand.Rand, pl *Plan) *schedule {
	o := randomOrder(rng, pl)
	return pl.overlapped(o, pl.panels(o, []int{1, 3, 9, -4}[rng.IntN(4)]))
}
