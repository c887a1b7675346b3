package choose

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
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
)

var (
	recordFiles = flag.String("records", "", "judge the predictions by the records of bench --choice in these files")
	onlyKernel  = flag.String("only", "", "judge only the candidates of this kernel")
	fitted      = flag.String("fit", "", "kernels whose coefficients TestFit fits to -records, such as skinny,blocked")
)

// recordedMHz is the clock rate of the coefficients.
const recordedMHz = 1980.0

// recorded is a product with the measured times of its candidates.
type recorded struct {
	problem gemm.Problem
	gpu     *device.Info
	micros  map[string]float64 // by the candidate's Spec, at the clock rate of the coefficients
	least   float64
}

func (x *recorded) String() string {
	p := &x.problem
	return fmt.Sprintf("%v A %d, B %d, C %d", p, p.A().LD, p.B().LD, p.C().LD)
}

// readRecorded reads the products of -records.
func readRecorded(t *testing.T) []*recorded {
	t.Helper()
	if *recordFiles == "" {
		t.Skip("no -records")
	}
	paths, err := filepath.Glob(*recordFiles)
	if err != nil || len(paths) == 0 {
		t.Fatalf("-records %s: no file, %v", *recordFiles, err)
	}
	var all []*recorded
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		records, err := bench.ReadRecords(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		byProduct := map[string]*recorded{}
		for i := range records {
			r := &records[i]
			if r.Peer || !r.Timed() || r.Predicted == 0 {
				continue
			}
			key := fmt.Sprint(r.In, r.Out, r.Precision, r.M, r.N, r.K, r.TransA, r.TransB, r.LDA, r.LDB, r.LDC)
			x := byProduct[key]
			if x == nil {
				x = newRecorded(t, r)
				byProduct[key], all = x, append(all, x)
			}
			clock := recordedMHz
			if r.Load != nil {
				clock = r.Load.SMClock.Median
			}
			us := r.Seconds.Median * 1e6 * clock / recordedMHz
			if name, _, _ := strings.Cut(r.Detail, ":"); *onlyKernel != "" && name != *onlyKernel {
				continue
			}
			x.micros[r.Detail] = us
			x.least = min(x.least, us)
		}
	}
	return slices.DeleteFunc(all, func(x *recorded) bool { return len(x.micros) == 0 })
}

func newRecorded(t *testing.T, r *bench.Record) *recorded {
	t.Helper()
	in, err := dtype.Parse(r.In)
	if err != nil {
		t.Fatal(err)
	}
	out, err := dtype.Parse(r.Out)
	if err != nil {
		t.Fatal(err)
	}
	s := bench.Sample{Shape: bench.Shape{M: r.M, N: r.N, K: r.K}, TransA: r.TransA, TransB: r.TransB}
	p, err := s.Problem(in, out)
	if err != nil {
		t.Fatal(err)
	}
	p.Layouts[gemm.A].LD, p.Layouts[gemm.B].LD, p.Layouts[gemm.C].LD = r.LDA, r.LDB, r.LDC
	if precision, err := gemm.ParsePrecision(r.Precision); err == nil && r.Precision != "" {
		if p, err = p.WithPrecision(precision); err != nil {
			t.Fatal(err)
		}
	}
	gpu := &device.Info{Name: r.Environment.GPU, SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10,
		Target: ptx.Target{SM: 90, Suffix: "a"}}
	return &recorded{problem: p, gpu: gpu, micros: map[string]float64{}, least: math.Inf(1)}
}

// judged is the comparison of predictions with records.
type judged struct {
	loss       float64 // of the candidate that is predicted to be the fastest among the measured ones
	chosen     string
	unmeasured bool // another candidate is predicted to be faster
	logs       map[string]float64
}

func (x *recorded) judge() judged {
	all := Candidates(&x.problem, kernel.Align{}, x.gpu)
	first, measured := math.Inf(1), math.Inf(1)
	y := judged{logs: map[string]float64{}}
	for i := range all {
		c := &all[i]
		if c.Rejected != nil || *onlyKernel != "" && c.Kernel.Name != *onlyKernel {
			continue
		}
		first = min(first, c.Cycles)
		us, ok := x.micros[c.Spec()]
		if !ok {
			continue
		}
		y.logs[c.Spec()] = math.Log(c.Cycles / recordedMHz / us)
		if c.Cycles < measured {
			measured, y.loss, y.chosen = c.Cycles, us/x.least-1, c.Spec()
		}
	}
	y.unmeasured = first < measured
	return y
}

// TestRecorded reports the loss of the choice in the records of -records, and the errors of the
// predictions of each kernel, of all candidates and of those that take at most 1.5 times as long as
// the fastest.
func TestRecorded(t *testing.T) {
	all := readRecorded(t)
	results := make([]judged, len(all))
	logs, near := map[string][]float64{}, map[string][]float64{}
	sum, unmeasured := 0.0, 0
	order := make([]int, len(all))
	for i, x := range all {
		results[i], order[i] = x.judge(), i
		sum += results[i].loss
		if results[i].unmeasured {
			unmeasured++
		}
		for spec, l := range results[i].logs {
			name, _, _ := strings.Cut(spec, ":")
			logs[name] = append(logs[name], l)
			if x.micros[spec] <= 1.5*x.least {
				near[name] = append(near[name], l)
			}
		}
	}
	t.Logf("%d products: mean loss %.1f%%; for %d another candidate, which was not measured, is predicted to be faster",
		len(all), 100*sum/float64(len(all)), unmeasured)
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		l := logs[name]
		slices.Sort(l)
		at := func(q float64) float64 { return math.Exp(l[int(q*float64(len(l)-1))]) }
		t.Logf("%-8s %4d candidates: predicted / measured %.2f, from %.2f to %.2f in 80 %%, deviation %.0f %%; "+
			"near the best %.0f %%", name, len(l), at(0.5), at(0.1), at(0.9), 100*deviation(l), 100*deviation(near[name]))
	}
	slices.SortFunc(order, func(i, k int) int { return cmp.Compare(results[k].loss, results[i].loss) })
	for _, i := range order[:min(len(order), 25)] {
		x, y := all[i], &results[i]
		var best string
		for spec, us := range x.micros {
			if us == x.least {
				best = spec
			}
		}
		ratio := func(spec string) string {
			return fmt.Sprintf("%s %.2f µs, predicted %.2f", spec, x.micros[spec], x.micros[spec]*math.Exp(y.logs[spec]))
		}
		t.Logf("%5.1f%% %v: %s; best %s", 100*y.loss, x, ratio(y.chosen), ratio(best))
	}
}

// deviation returns the root mean square of logarithms of ratios, as a ratio minus 1.
func deviation(logs []float64) float64 {
	sum := 0.0
	for _, l := range logs {
		sum += l * l
	}
	return math.Exp(math.Sqrt(sum/float64(max(len(logs), 1)))) - 1
}

// TestFit fits the coefficients of the kernels of -fit to the records of -records, and prints those
// that changed. It changes one coefficient at a time, as long as that improves the fit.
func TestFit(t *testing.T) {
	if *fitted == "" {
		t.Skip("no -fit")
	}
	all := readRecorded(t)
	costs := coefficientsOf(all[0].gpu)
	var fields []coefficient
	for _, name := range strings.Split(*fitted, ",") {
		v := reflect.ValueOf(costs).Elem().FieldByName(name)
		if !v.IsValid() {
			t.Fatalf("-fit %s: no such kernel", name)
		}
		fields = appendFields(fields, name, v)
	}
	cost := func() float64 {
		sum := 0.0
		for _, x := range all {
			y := x.judge()
			square := 0.0
			for _, l := range y.logs {
				square += l * l
			}
			sum += square/float64(len(y.logs)) + min(y.loss, 1)
		}
		return sum / float64(len(all))
	}
	best := cost()
	t.Logf("%d coefficients, cost %.4f", len(fields), best)
	for improved := true; improved; {
		improved = false
		for _, f := range fields {
			for _, factor := range []float64{0.7, 0.9, 0.97, 1.03, 1.1, 1.4} {
				before := *f.value
				*f.value *= factor
				if c := cost(); c < best-1e-5 {
					best, improved = c, true
				} else {
					*f.value = before
				}
			}
		}
		t.Logf("cost %.4f", best)
	}
	for _, f := range fields {
		if *f.value != f.before {
			t.Logf("%s: %.4g, was %.4g", f.name, *f.value, f.before)
		}
	}
}

// coefficient is a number that TestFit changes.
type coefficient struct {
	name   string
	value  *float64
	before float64
}

// appendFields appends the numbers in v that are not 0.
func appendFields(list []coefficient, name string, v reflect.Value) []coefficient {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			list = appendFields(list, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			list = appendFields(list, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.Float64:
		if p := (*float64)(v.Addr().UnsafePointer()); *p != 0 {
			list = append(list, coefficient{name, p, *p})
		}
	}
	return list
}
