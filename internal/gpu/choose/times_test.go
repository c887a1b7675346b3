package choose

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/ptx"
)

var (
	recordFiles = flag.String("records", "", "compare the predictions with the records of bench --choice in these files")
	saved       = flag.String("save", "", "write the times of -records to this file in the form of testdata/times")
	onlyKernel  = flag.String("only", "", "judge only the candidates of this kernel")
)

// recordedMHz is the clock rate of the coefficients.
const recordedMHz = 1980.0

// recorded is a product with the measured times of its candidates.
type recorded struct {
	problem gemm.Problem
	gpu     *device.Info
	micros  map[string]float64 // by the candidate's Spec, at the clock rate of the coefficients
	least   float64
	layer   bool // of a network
}

// String returns the product without its times.
func (x *recorded) String() string { return strings.TrimSuffix(timesText(&x.problem, nil), ":") }

// add adds the measured time of a candidate, unless -only names another kernel.
func (x *recorded) add(spec string, micros float64) {
	if name, _, _ := strings.Cut(spec, ":"); *onlyKernel != "" && name != *onlyKernel {
		return
	}
	x.micros[spec] = micros
	x.least = min(x.least, micros)
}

// line returns the product with the times of candidates that take at most twice as long as the
// fastest one, as [Timed.String] does.
func (x *recorded) line() string {
	near := maps.Clone(x.micros)
	maps.DeleteFunc(near, func(_ string, us float64) bool { return us > 2*x.least })
	return timesText(&x.problem, near)
}

// newRecorded returns the product of a bench record, without times.
func newRecorded(r *bench.Record) (*recorded, error) {
	in, err := dtype.Parse(r.In)
	if err != nil {
		return nil, err
	}
	out, err := dtype.Parse(r.Out)
	if err != nil {
		return nil, err
	}
	s := bench.Sample{Shape: bench.Shape{M: r.M, N: r.N, K: r.K}, TransA: r.TransA, TransB: r.TransB}
	p, err := s.Problem(in, out)
	if err != nil {
		return nil, err
	}
	p.Layouts[gemm.A].LD, p.Layouts[gemm.B].LD, p.Layouts[gemm.C].LD = r.LDA, r.LDB, r.LDC
	if r.Precision != "" {
		precision, err := gemm.ParsePrecision(r.Precision)
		if err == nil {
			p, err = p.WithPrecision(precision)
		}
		if err != nil {
			return nil, err
		}
	}
	gpu := &device.Info{Name: r.Environment.GPU, SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10,
		Target: ptx.Target{SM: 90, Suffix: "a"}}
	return &recorded{problem: p, gpu: gpu, micros: map[string]float64{}, least: math.Inf(1)}, nil
}

// timesFile returns the path of a file of testdata/times.
func timesFile(name string) string { return filepath.Join("testdata", "times", name+".txt") }

// hasTimes reports whether testdata/times has a file.
func hasTimes(name string) bool {
	_, err := os.Stat(timesFile(name))
	return err == nil
}

// readTimes reads a file of testdata/times, whose lines are those of [recorded.line]: "h100" and
// "h200" have random products, and "h200-models" has layers of networks.
func readTimes(t *testing.T, file string) (all []*recorded) {
	t.Helper()
	text, err := os.ReadFile(timesFile(file))
	if err != nil {
		t.Fatal(err)
	}
	gpu, _, layers := strings.Cut(file, "-")
	for line := range strings.Lines(string(text)) {
		r := bench.Record{Environment: bench.Environment{GPU: "NVIDIA " + strings.ToUpper(gpu)}}
		product, times, _ := strings.Cut(strings.TrimSpace(line), ": ")
		types, rest, _ := strings.Cut(product, " ")
		r.In, r.Out, _ = strings.Cut(types, "->")
		var letters string
		_, err := fmt.Sscanf(rest, "%s %s %dx%dx%d %d,%d,%d", &r.Precision, &letters, &r.M, &r.N, &r.K,
			&r.LDA, &r.LDB, &r.LDC)
		if err != nil || len(letters) != 2 {
			t.Fatalf("%s: %q: %v", gpu, product, err)
		}
		r.TransA, r.TransB = letters[0] == 'T', letters[1] == 'T'
		x, err := newRecorded(&r)
		if err != nil {
			t.Fatalf("%s: %q: %v", gpu, product, err)
		}
		x.layer = layers
		for _, field := range strings.Fields(times) {
			spec, number, _ := strings.Cut(field, "=")
			micros, err := strconv.ParseFloat(number, 64)
			if err != nil {
				t.Fatalf("%s: %q: %v", gpu, product, err)
			}
			x.add(spec, micros)
		}
		all = append(all, x)
	}
	return all
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
	swapAB := x.problem.Precision == gemm.TF32 || x.has(func(s kernel.Tile) bool { return s.SwapAB })
	isLater := func(s kernel.Tile) bool { return s.SwapAB && s.K >= 64 && (s.N%16 != 0 || s.M == 192) }
	later, narrowed := x.has(isLater), x.has(sm90.IsNarrowed)
	streamed := x.has(func(s kernel.Tile) bool { return s.StreamK })
	isNew := func(c *Candidate) bool { // a tile of a kind that was added after the record
		s := c.Config.Tile
		return c.Kernel == sm90.WGMMA && (s.SwapAB && !swapAB || isLater(s) && !later ||
			sm90.IsNarrowed(s) && !narrowed || s.StreamK && !streamed)
	}
	for i := range all {
		c := &all[i]
		if c.Rejected != nil || *onlyKernel != "" && c.Kernel.Name != *onlyKernel || isNew(c) {
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

// has reports whether a tile of wgmma was measured for which is returns true.
func (x *recorded) has(is func(kernel.Tile) bool) bool {
	for spec := range x.micros {
		shape, ok := strings.CutPrefix(spec, sm90.WGMMA.Name+":")
		if !ok {
			continue
		}
		if s, err := sm90.WGMMA.ParseTile(shape); err == nil && is(s) {
			return true
		}
	}
	return false
}

// readRecords reads the products of -records.
func readRecords(t *testing.T) []*recorded {
	t.Helper()
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
		products := map[string]*recorded{}
		for i := range records {
			r := &records[i]
			if r.Peer || !r.Timed() || r.Predicted == 0 {
				continue
			}
			x, err := newRecorded(r)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if known := products[x.String()]; known != nil {
				x = known
			} else {
				products[x.String()], all = x, append(all, x)
			}
			clock := recordedMHz
			if r.Load != nil {
				clock = r.Load.SMClock.Median
			}
			x.add(r.Detail, r.Seconds.Median*1e6*clock/recordedMHz)
		}
	}
	return all
}

// allRecorded returns the products of -records, or else those of files of testdata/times.
func allRecorded(t *testing.T, files ...string) []*recorded {
	t.Helper()
	var all []*recorded
	if *recordFiles != "" {
		all = readRecords(t)
	} else {
		for _, file := range files {
			all = append(all, readTimes(t, file)...)
		}
	}
	return slices.DeleteFunc(all, func(x *recorded) bool { return len(x.micros) == 0 })
}

// lossBounds bound the loss of the choice: its mean, the part of the products that lose at most 5 %
// that is wanted, and the part that may lose more than 15 %.
type lossBounds struct{ mean, many, few float64 }

// save writes the products in the form of testdata/times.
func save(t *testing.T, path string, all []*recorded) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for _, x := range all {
		fmt.Fprintln(w, x.line())
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestTimes compares the predictions with the times in testdata/times, which were measured with
// cold caches. It bounds the loss of the choice, and the deviation of each kernel's predictions. It
// reports both, the deviation also for the candidates that take at most 1.5 times as long as the
// fastest. Layers of networks lose more than random products, to which the costs were fitted.
func TestTimes(t *testing.T) {
	if *recordFiles != "" {
		all := allRecorded(t)
		if *saved != "" {
			save(t, *saved, all)
		}
		compareTimes(t, all, nil)
		return
	}
	t.Run("random", func(t *testing.T) {
		compareTimes(t, allRecorded(t, "h100", "h200"), &lossBounds{mean: 0.03, many: 0.8, few: 0.05})
	})
	t.Run("layers", func(t *testing.T) {
		compareTimes(t, allRecorded(t, "h200-models"), &lossBounds{mean: 0.025, many: 0.8, few: 0.03})
	})
}

// TestTrials bounds the loss of repeated calls on a GPU that was not measured: the loss of the
// fastest candidate that they try on an H200 with the coefficients of an A100.
func TestTrials(t *testing.T) {
	const most = 0.03
	all := readTimes(t, "h200-models")
	before, after := 0., 0.
	for _, x := range all {
		wrong := *x.gpu
		wrong.Name = "NVIDIA A100"
		measured := func(c Candidate) bool { return c.Rejected == nil && x.micros[c.Spec()] > 0 }
		loss := func(c *Candidate) float64 { return x.micros[c.Spec()]/x.least - 1 }
		best := Fastest(slices.DeleteFunc(Candidates(&x.problem, kernel.Align{}, &wrong), not(measured)))
		least := loss(best)
		before += least
		if o, ok := best.Kernel.Order(&x.problem, best.Config.Tile, wrong.Target.SM); ok {
			k := best.Kernel
			if o == (kernel.Order{}) || x.problem.In().Bits() == 16 { // see exec.Plan.SameBits
				k = nil
			}
			same := InOrder(k, o, &x.problem, kernel.Align{}, &wrong)
			choice := best.choice("")
			for _, c := range Trials(&choice, slices.DeleteFunc(same, not(measured))) {
				least = min(least, loss(&c))
			}
		}
		after += least
	}
	n := float64(len(all))
	t.Logf("%d layers lose %.1f %% in the mean, and %.1f %% after trials", len(all), 100*before/n, 100*after/n)
	if after > most*n || before < 1.5*after {
		t.Errorf("want a mean loss of at most %.0f %% after trials, and much less than before", 100*most)
	}
}

func not[T any](f func(T) bool) func(T) bool { return func(x T) bool { return !f(x) } }

// compareTimes compares the predictions with the times of products, with bounds unless they are nil
// or the candidates those of one kernel.
func compareTimes(t *testing.T, all []*recorded, bounds *lossBounds) {
	const (
		small    = 0.05 // loss
		far      = 0.15
		deviates = 0.22
	)
	n := float64(len(all))
	results := make([]judged, len(all))
	logs, near := map[string][]float64{}, map[string][]float64{}
	sum, close, lost, unmeasured := 0.0, 0, 0, 0
	order := make([]int, len(all))
	for i, x := range all {
		results[i], order[i] = x.judge(), i
		sum += results[i].loss
		if results[i].loss <= small {
			close++
		}
		if results[i].loss > far || results[i].unmeasured {
			lost++
		}
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
	t.Logf("%d products: mean loss %.1f %%, at most %.0f %% for %d, more than %.0f %% or not known for %d; for %d of "+
		"them another candidate, which was not measured, is predicted to be faster", len(all), 100*sum/n, 100*small,
		close, 100*far, lost, unmeasured)
	bounded := bounds != nil && *onlyKernel == ""
	if b := bounds; bounded && (sum > b.mean*n || float64(close) < b.many*n || float64(lost) > b.few*n) {
		t.Errorf("want a mean loss of at most %.1f %%, at most %.0f %% for %.0f %% of the products, and more than %.0f %% "+
			"or not known for at most %.1f %%", 100*b.mean, 100*small, 100*b.many, 100*far, 100*b.few)
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		l := logs[name]
		slices.Sort(l)
		at := func(q float64) float64 { return math.Exp(l[int(q*float64(len(l)-1))]) }
		t.Logf("%-8s %4d candidates: predicted / measured %.2f, from %.2f to %.2f in 80 %%, deviation %.0f %%; "+
			"near the best %.0f %%", name, len(l), at(0.5), at(0.1), at(0.9), 100*deviation(l), 100*deviation(near[name]))
		if bounded && deviation(l) > deviates {
			t.Errorf("%s: the predictions deviate by %.0f %%, want at most %.0f %%", name, 100*deviation(l), 100*deviates)
		}
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
