package cpu

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/fit"
	"tilework/internal/gemm"
)

var (
	timesFiles = flag.String("times", "testdata/times/*.txt", "the files of times to compare the predictions with, named "+
		"CPU-KERNEL.txt or CPU-KERNEL-NOTE.txt")
	fitted = flag.String("fit", "", "the costs that TestFit fits to them, such as zen4-avx512")
	tries  = flag.Int("tries", 20000, "number of random changes of several costs in TestFit")
)

// timed is a product with the measured times of the methods.
type timed struct {
	problem gemm.Problem
	kernel  *Kernel
	costs   *costs             // of the kernel on the CPU of the measurement
	micros  map[string]float64 // by the method's name
	least   float64
}

// newTimed returns a product without times.
func newTimed(p gemm.Problem) *timed {
	return &timed{problem: p, micros: map[string]float64{}, least: math.Inf(1)}
}

func (x *timed) add(name string, micros float64) {
	x.micros[name] = micros
	x.least = min(x.least, micros)
}

// String returns the product as testdata/times names it, such as
//
//	float32 NT 512x512x64 64,64,512
//
// with the leading dimensions of A, B and C at the end.
func (x *timed) String() string {
	p := &x.problem
	letter := map[bool]string{false: "N", true: "T"}
	return fmt.Sprintf("%v %s%s %dx%dx%d %d,%d,%d", p.In(), letter[p.A().Trans], letter[p.B().Trans], p.M, p.N, p.K,
		p.A().LD, p.B().LD, p.C().LD)
}

// readAllTimes reads the files of -times.
func readAllTimes(t *testing.T) (all []*timed) {
	t.Helper()
	if i, err := find("avx2"); err != nil || !kernels[i].Available() {
		t.Skip("the times are of x86 CPUs with AVX2, whose kernels widen elements")
	}
	paths, err := filepath.Glob(*timesFiles)
	if err != nil || len(paths) == 0 {
		t.Fatalf("-times %s: no file, %v", *timesFiles, err)
	}
	for _, path := range paths {
		all = append(all, readTimes(t, path)...)
	}
	return all
}

// readTimes reads a file of TestMeasure.
func readTimes(t *testing.T, path string) (all []*timed) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kernel, costs := costsOf(t, strings.TrimSuffix(filepath.Base(path), ".txt"))
	for line := range strings.Lines(string(text)) {
		product, times, _ := strings.Cut(strings.TrimSpace(line), ": ")
		x, err := parseTimed(product)
		if err != nil {
			t.Fatalf("%s: %q: %v", path, product, err)
		}
		x.kernel, x.costs = kernel, costs
		for _, field := range strings.Fields(times) {
			name, number, _ := strings.Cut(field, "=")
			micros, err := strconv.ParseFloat(number, 64)
			if err != nil {
				t.Fatalf("%s: %q: %v", path, product, err)
			}
			x.add(name, micros)
		}
		all = append(all, x)
	}
	return all
}

// parseTimed parses a product in the form of [timed.String].
func parseTimed(product string) (*timed, error) {
	var name, letters string
	var s bench.Sample
	var lda, ldb, ldc int
	_, err := fmt.Sscanf(product, "%s %s %dx%dx%d %d,%d,%d", &name, &letters, &s.M, &s.N, &s.K, &lda, &ldb, &ldc)
	if err != nil || len(letters) != 2 {
		return nil, fmt.Errorf("want a product: %v", err)
	}
	in, err := dtype.Parse(name)
	if err != nil {
		return nil, err
	}
	s.TransA, s.TransB = letters[0] == 'T', letters[1] == 'T'
	p, err := s.Problem(in, in)
	if err != nil {
		return nil, err
	}
	p.Layouts[gemm.A].LD, p.Layouts[gemm.B].LD, p.Layouts[gemm.C].LD = lda, ldb, ldc
	return newTimed(p), nil
}

// costsOf returns the kernel and the costs with a name such as zen4-avx512.
func costsOf(t *testing.T, name string) (*Kernel, *costs) {
	t.Helper()
	for _, m := range cpuModels {
		rest, ok := strings.CutPrefix(name, m.name+"-")
		if !ok {
			continue
		}
		kernel, _, _ := strings.Cut(rest, "-")
		costs := map[string]*costs{"avx2": m.avx2, "avx512": m.avx512, "avx512bf16": m.avx512bf16, "amx": m.amx}[kernel]
		if i, err := find(kernel); err == nil && costs != nil {
			return kernels[i], costs
		}
	}
	t.Fatalf("%s: want a CPU and a kernel with costs, such as zen4-avx512", name)
	return nil, nil
}

// predictions returns the predicted times of all methods in µs, by their names, and the name of the
// fastest. They are those of the CPU of the measurement.
func (x *timed) predictions() (micros map[string]float64, fastest string) {
	micros = map[string]float64{}
	if x.problem.Accum() == dtype.F64 {
		return micros, predictAll(x.kernel.f64, x, micros)
	}
	return micros, predictAll(x.kernel.f32, x, micros)
}

func predictAll[T scalar](mk *microKernel[T], x *timed, micros map[string]float64) (fastest string) {
	own := *mk
	own.costs = func() *costs { return x.costs }
	var l methodList
	own.list(&l, &x.problem)
	least := math.Inf(1)
	for _, w := range l.all() {
		us := own.predict(&x.problem, w) / 1000
		micros[w.String()] = us
		if us < least {
			least, fastest = us, w.String()
		}
	}
	return fastest
}

// TestTimes compares the predictions with the times in testdata/times. It bounds the loss of the
// choice for each file.
func TestTimes(t *testing.T) {
	const (
		mean      = 0.025 // loss
		far, few  = 0.15, 0.05
		shown     = 20
		tolerable = 0.05
	)
	type result struct {
		*timed
		chosen    string
		predicted map[string]float64
		loss      float64
	}
	var results []result
	logs := map[string][]float64{} // by algorithm
	for _, x := range readAllTimes(t) {
		predicted, chosen := x.predictions()
		us, ok := x.micros[chosen]
		if !ok {
			t.Errorf("%v: the time of %s is not known", x, chosen)
			continue
		}
		results = append(results, result{x, chosen, predicted, us/x.least - 1})
		for name, us := range x.micros {
			algorithm, _, _ := strings.Cut(name, "-")
			logs[algorithm] = append(logs[algorithm], math.Log(predicted[name]/us))
		}
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(b.loss, a.loss) })
	sum, lost, small := 0.0, 0, 0
	for _, r := range results {
		sum += r.loss
		if r.loss > far {
			lost++
		}
		if r.loss <= tolerable {
			small++
		}
	}
	n := float64(len(results))
	t.Logf("%d products: mean loss %.1f %%, at most %.0f %% for %d, more than %.0f %% for %d", len(results), 100*sum/n,
		100*tolerable, small, 100*far, lost)
	if sum > mean*n || float64(lost) > few*n {
		t.Errorf("want a mean loss of at most %.1f %%, and more than %.0f %% for at most %.0f %%", 100*mean, 100*far, 100*few)
	}
	for _, algorithm := range slices.Sorted(maps.Keys(logs)) {
		l := logs[algorithm]
		slices.Sort(l)
		at := func(q float64) float64 { return math.Exp(l[int(q*float64(len(l)-1))]) }
		t.Logf("%-8s %4d times: predicted / measured %.2f, from %.2f to %.2f in 80 %%", algorithm, len(l), at(0.5), at(0.1),
			at(0.9))
	}
	for _, r := range results[:min(shown, len(results))] {
		best := ""
		for name, us := range r.micros {
			if us == r.least {
				best = name
			}
		}
		t.Logf("%5.1f%% %s %v: %s %.2f µs, predicted %.2f; best %s %.2f, predicted %.2f", 100*r.loss, r.kernel.Name, r.timed,
			r.chosen, r.micros[r.chosen], r.predicted[r.chosen], best, r.least, r.predicted[best])
	}
}

// TestFit fits the costs of -fit to the times of -times, and prints those that changed. It
// minimises the errors of the predictions together with the loss of the choice.
func TestFit(t *testing.T) {
	if *fitted == "" {
		t.Skip("no -fit")
	}
	_, costs := costsOf(t, *fitted)
	numbers := slices.DeleteFunc(fit.Numbers("", reflect.ValueOf(costs).Elem()), func(n fit.Number) bool {
		return slices.Contains([]string{"l1", "l2", "cached"}, n.Name) // known
	})
	all := slices.DeleteFunc(readAllTimes(t), func(x *timed) bool { return x.costs != costs })
	err := fit.Minimize(t.Context(), numbers, func() float64 {
		sum := 0.0
		for _, x := range all {
			sum += x.weight() * x.cost()
		}
		return sum / float64(len(all))
	}, fit.Options{Tries: *tries, Progress: func(cost float64) { t.Logf("cost %.4f", cost) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		if n.Changed() {
			t.Logf("%s: %.4g, was %.4g", n.Name, n.Value(), n.Base)
		}
	}
}

// weight returns the weight of a product in the fit. There are fewer large products, and their
// times matter most.
func (x *timed) weight() float64 {
	const large, weightOfLarge = 1e8, 3 // operations
	if x.problem.Flops() >= large {
		return weightOfLarge
	}
	return 1
}

// cost returns the mean square error of the predictions, in logarithms, plus the loss of the
// choice, whose part above a tenth counts more.
func (x *timed) cost() float64 {
	predicted, fastest := x.predictions()
	square, n := 0.0, 0.0
	for name, us := range x.micros {
		l := math.Log(predicted[name] / us)
		square += min(l*l, 1)
		n++
	}
	loss := 0.0
	if us, ok := x.micros[fastest]; ok {
		loss = min(us/x.least-1, 1)
	}
	return square/n + 2*loss + 3*max(loss-0.1, 0)
}
