package choose

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/fit"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// Timed is a product with the measured times of some of its candidates.
type Timed struct {
	Problem gemm.Problem
	// Cycles holds times in clock cycles of an SM, by the candidate's Spec.
	Cycles map[string]float64
	// Weight is the weight of the product in the fit; 0 is 1.
	Weight float64
}

// Least returns the time of the fastest candidate.
func (t *Timed) Least() float64 {
	least := math.Inf(1)
	for _, c := range t.Cycles {
		least = min(least, c)
	}
	return least
}

// String returns the product and its times, the shortest first:
//
//	float32->float32 native NT 512x512x64 64,64,512: blocked:64x64x8/8x4/4=9730 tiled:32=15311
//
// with the leading dimensions of A, B and C after the size.
func (t *Timed) String() string { return timesText(&t.Problem, t.Cycles) }

func timesText(p *gemm.Problem, times map[string]float64) string {
	letter := map[bool]string{false: "N", true: "T"}
	text := fmt.Sprintf("%v->%v %v %s%s %dx%dx%d %d,%d,%d:", p.In(), p.Out(), p.Precision, letter[p.A().Trans],
		letter[p.B().Trans], p.M, p.N, p.K, p.A().LD, p.B().LD, p.C().LD)
	for _, spec := range slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[a], times[b]), cmp.Compare(a, b))
	}) {
		text += fmt.Sprintf(" %s=%.4g", spec, times[spec])
	}
	return text
}

// Quality describes how well the predictions of candidates agree with their times.
type Quality struct {
	Products int
	// Loss is the mean part by which the time of the choice exceeds that of the fastest candidate.
	Loss float64
	// Close is the number of products that lose at most 5 %.
	Close int
	// Deviation is the root mean square of the logarithms of predicted by measured times, as a ratio
	// minus 1.
	Deviation float64

	cost float64
}

// Change is a coefficient that a fit changed.
type Change struct {
	Name   string  `json:"coefficient"`
	Before float64 `json:"before"`
	After  float64 `json:"fitted"`
}

// Fitted holds coefficients that [Fit] has fitted.
type Fitted struct {
	// From is the file of the model whose coefficients the fit began with.
	From    string
	Changed []Change
	// Products is the number of products to which the coefficients were fitted. Before and After
	// judge others, with the coefficients of From and with the fitted ones.
	Products      int
	Before, After Quality
}

// Better reports whether the predictions for products that were not fitted are better than before,
// and not by chance.
func (f *Fitted) Better() bool {
	const most = 0.95 // of the errors and losses before
	return f.After.cost < most*f.Before.cost
}

// Penalty is the penalty of a changed coefficient. It suits fits to about a hundred products:
// docs/choosing.md.
const Penalty = 5e-4

// Fit fits coefficients of a device to the times of products. It begins with those of a model; see
// [Models]. It judges the fit on each third product, which it does not fit. When ctx ends, Fit
// returns its error.
func Fit(ctx context.Context, d *device.Info, from string, all []Timed, o fit.Options) (*Fitted, error) {
	const held = 3
	costs := *modelCoefficients(from)
	var train, test []*fittedProduct
	for i := range all {
		if p := newFitted(&all[i], d, &costs); i%held == held-1 {
			test = append(test, p)
		} else {
			train = append(train, p)
		}
	}
	if len(test) == 0 {
		return nil, fmt.Errorf("%d products were measured: want at least %d", len(all), held)
	}
	f := &Fitted{From: from, Products: len(train), Before: qualityOf(test)}
	numbers := numbersOf(&costs)
	if err := fit.Minimize(ctx, numbers, func() float64 { return costOf(train) }, o); err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if n.Changed() {
			f.Changed = append(f.Changed, Change{n.Name, n.Base, n.Value()})
		}
	}
	f.After = qualityOf(test)
	return f, nil
}

// numbersOf returns all coefficients.
func numbersOf(c *coefficients) []fit.Number { return fit.Numbers("", reflect.ValueOf(c).Elem()) }

// fittedProduct is a product with its measured candidates.
type fittedProduct struct {
	weight, least float64
	job           *job
	candidates    []Candidate
	rows          []*row    // of the candidates
	times         []float64 // of the candidates, as measured
}

func newFitted(t *Timed, d *device.Info, costs *coefficients) *fittedProduct {
	f := &fittedProduct{weight: cmp.Or(t.Weight, 1), least: t.Least(), job: newJob(&t.Problem, kernel.Align{}, d)}
	f.job.costs = costs
	const large, weightOfLarge = 2e11, 5 // few products are as large, and their times matter most
	if t.Problem.Flops() >= large {
		f.weight *= weightOfLarge
	}
	for _, r := range rows {
		for _, c := range CandidatesOf(r.Kernel, &t.Problem, kernel.Align{}, d) {
			if cycles, ok := t.Cycles[c.Spec()]; ok && c.Rejected == nil {
				f.candidates, f.rows, f.times = append(f.candidates, c), append(f.rows, r), append(f.times, cycles)
			}
		}
	}
	return f
}

// judge predicts all candidates. It returns the mean square error in logarithms, and the loss of
// the choice.
func (f *fittedProduct) judge() (square, loss float64) {
	first := math.Inf(1)
	for i := range f.candidates {
		c := &f.candidates[i]
		f.rows[i].estimate(c, f.job)
		l := math.Log(c.Cycles / f.times[i])
		square += l * l
		if c.Cycles < first {
			first, loss = c.Cycles, f.times[i]/f.least-1
		}
	}
	return square / float64(max(len(f.candidates), 1)), loss
}

// cost returns the number that a fit makes small: the error of the predictions plus the loss of the
// choice, whose part above a tenth counts four times.
func cost(square, loss float64) float64 { return square + loss + 3*max(loss-0.1, 0) }

// costOf returns the mean cost of products. It judges them on all cores.
func costOf(products []*fittedProduct) float64 {
	sum, weights := 0.0, 0.0
	for i, j := range judgeAll(products) {
		sum, weights = sum+products[i].weight*cost(j.square, j.loss), weights+products[i].weight
	}
	return sum / weights
}

func qualityOf(products []*fittedProduct) Quality {
	const close = 0.05
	q := Quality{Products: len(products)}
	square := 0.0
	for _, j := range judgeAll(products) {
		q.Loss += j.loss
		if j.loss <= close {
			q.Close++
		}
		square += j.square
		q.cost += cost(j.square, j.loss)
	}
	n := float64(max(len(products), 1))
	q.Loss, q.cost = q.Loss/n, q.cost/n
	q.Deviation = math.Exp(math.Sqrt(square/n)) - 1
	return q
}

type judgement struct{ square, loss float64 }

func judgeAll(products []*fittedProduct) []judgement {
	all := make([]judgement, len(products))
	workers := min(runtime.GOMAXPROCS(0), len(products))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(products); i += workers {
				all[i].square, all[i].loss = products[i].judge()
			}
		})
	}
	wg.Wait()
	return all
}

// Keep stores the coefficients in the cache, for later processes on GPUs of the same name. source
// describes their origin.
func (f *Fitted) Keep(c *cache.Cache, d *device.Info, source ...string) error {
	return c.Section(fittedSection).Put(fittedKey(d), f.file(source))
}

// Text returns the coefficients as a file of the folder models.
func (f *Fitted) Text(source ...string) ([]byte, error) {
	text, err := json.MarshalIndent(f.file(source), "", "\t")
	return append(text, '\n'), err
}

func (f *Fitted) file(source []string) modelFile {
	tree := map[string]any{}
	for _, n := range f.Changed {
		in, path := tree, strings.Split(n.Name, ".")
		last := len(path) - 1
		for _, name := range path[:last] {
			if in[name] == nil {
				in[name] = map[string]any{}
			}
			in = in[name].(map[string]any)
		}
		in[path[last]] = n.After
	}
	text, err := json.Marshal(tree)
	if err != nil {
		panic(err) // names and finite numbers
	}
	return modelFile{Source: source, Like: f.From, Coefficients: text}
}
