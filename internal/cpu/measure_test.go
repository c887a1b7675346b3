package cpu

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/gemm"
)

var (
	measuredSeed  = flag.Uint64("measure", 0, "the seed of the random products that TestMeasure measures")
	measuredCount = flag.Int("count", 100, "the number of products that TestMeasure measures for each type")
	measuredTypes = flag.String("types", "float32,float64", "their element types")
	measuredAgain = flag.String("products", "", "a file of times whose products TestMeasure measures instead")
	measuredFile  = flag.String("save", "", "the file to which TestMeasure appends the times")
)

// TestMeasure measures every method on products of the random suite, or on those of a file, on one
// thread, in the form of testdata/times.
func TestMeasure(t *testing.T) {
	if *measuredSeed == 0 && *measuredAgain == "" || *measuredFile == "" {
		t.Skip("no -measure or -products, or no -save")
	}
	f, err := os.OpenFile(*measuredFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for _, x := range productsToMeasure(t) {
		x.measure(t)
		x.write(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func productsToMeasure(t *testing.T) (all []*timed) {
	t.Helper()
	if *measuredAgain != "" {
		text, err := os.ReadFile(*measuredAgain)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			product, _, _ := strings.Cut(strings.TrimSpace(line), ": ")
			x, err := parseTimed(product)
			if err != nil {
				t.Fatalf("%s: %q: %v", *measuredAgain, product, err)
			}
			all = append(all, x)
		}
		return all
	}
	samples, err := bench.Suite(bench.RandomSuite, bench.Draw{Seed: *measuredSeed, Count: *measuredCount, CPU: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		for name := range strings.SplitSeq(*measuredTypes, ",") {
			typ, err := dtype.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Problem(typ, typ)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, newTimed(p))
		}
	}
	return all
}

// measure measures every method in alternating rounds. It gives up those that take three times as
// long as the fastest one.
func (x *timed) measure(t *testing.T) {
	const (
		rounds = 7
		short  = 30 * time.Microsecond // of a timing, at least
		slow   = 2.5
	)
	c, err := chooseCached("", x.problem.In())
	if err != nil {
		t.Fatal(err)
	}
	p := &x.problem
	b := gemm.Buffers{gemm.A: randomBytes(p.Layouts[gemm.A]), gemm.B: randomBytes(p.Layouts[gemm.B]),
		gemm.C: randomBytes(*p.C())}
	list := c.kernel.tiles(p.Accum()).methods(p)
	times := make([][]time.Duration, len(list))
	repeats := make([]int, len(list))
	best := time.Duration(math.MaxInt64)
	for round := range rounds {
		for i, w := range list {
			if round > 3 && slices.Min(times[i]) > time.Duration(slow*float64(best)) {
				continue
			}
			pl, err := NewPlan(p, backend.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			pl.method = w
			if round == 0 {
				repeats[i] = 1
			}
			run := func() {
				if err := pl.Run(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}
			run() // fills the caches as repeated products do
			start := time.Now()
			for range repeats[i] {
				run()
			}
			took := time.Since(start)
			if round == 0 { // also warms up
				repeats[i] = int(short/max(took, 1)) + 1
				continue
			}
			took /= time.Duration(repeats[i])
			times[i] = append(times[i], took)
			best = min(best, took)
		}
	}
	for i, w := range list {
		x.add(w.String(), slices.Min(times[i]).Seconds()*1e6) // other programs only make it longer
	}
}

func randomBytes(l gemm.Layout) []byte {
	b := allocAligned(l.Bytes())
	for i := range l.Len() {
		l.Type.Set(b, i, 2*rand.Float64()-1)
	}
	return b
}

// write writes the product and the times of its methods in a line.
func (x *timed) write(w *bufio.Writer) {
	fmt.Fprint(w, x, ":")
	for _, name := range slices.SortedFunc(maps.Keys(x.micros), func(a, b string) int {
		return cmp.Compare(x.micros[a], x.micros[b])
	}) {
		fmt.Fprintf(w, " %s=%.4g", name, x.micros[name])
	}
	fmt.Fprintln(w)
}
