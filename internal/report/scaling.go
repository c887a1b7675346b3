package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/internal/phrase"
)

// onGPUs returns the kernel of a row, the division of B if it is not the usual one, and the number
// of GPUs. The subject of several GPUs ends in their list and the division:
// "wgmma@gpu:0,1/columns". A peer uses all GPUs of its device.
func onGPUs(r row) (kernel, division string, gpus int) {
	if r.Peer {
		return r.Subject, "", gpusOfDevice(r)
	}
	kernel, list, several := strings.Cut(r.Subject, "@gpu:")
	if !several {
		return kernel, "", 1
	}
	list, division, _ = strings.Cut(list, "/")
	return kernel, division, 1 + strings.Count(list, ",")
}

func gpus(r row) int {
	_, _, n := onGPUs(r)
	return n
}

// gpusOfDevice returns the number of GPUs that a row was measured on or beside.
func gpusOfDevice(r row) int { return 1 + strings.Count(r.Device, ",") }

// several reports whether a row is one of several GPUs, which the peak of one does not limit.
func several(r row) bool { return gpus(r) > 1 }

// scalings shows the products of several GPUs beside those of one.
func scalings(s *study) ([]*Chart, string) {
	rows := filter(s.rows, of(onGPU), not(isPeer))
	if !slices.ContainsFunc(rows, several) {
		return nil, "No product was timed on several GPUs (bench --device gpu:0,1)."
	}
	var all []*Chart
	for _, g := range byPlace(s, rows) {
		for _, c := range []*Chart{s.strongScaling(g), s.weakScaling(g)} {
			if c != nil {
				all = append(all, c)
			}
		}
	}
	return all, ""
}

// speedup holds the rows of a kernel on several GPUs, after the fastest row of the same product on
// one GPU.
type speedup struct {
	product, kernel string
	rows            []row // in ascending order of the number of GPUs
}

// of returns how many times as fast as on one GPU a row is.
func (x *speedup) of(r row) float64 { return x.rows[0].Seconds.Median / r.Seconds.Median }

// text returns the speedup of a row, marked if it is uncertain.
func (x *speedup) text(r row) string { return gain(x.rows[0], r) }

// speedups returns the products that ran on one GPU and on several, one for each kernel.
func (s *study) speedups(rows []row) (all []speedup) {
	for _, product := range groupBy(rows, s.productName(rows)) {
		one := byGPUs(product.rows)[0]
		if several(one) {
			continue
		}
		for _, k := range groupBy(filter(product.rows, several), func(r row) string {
			kernel, division, _ := onGPUs(r)
			return strings.TrimSuffix(kernel+"/"+division, "/")
		}) {
			all = append(all, speedup{product.name, k.name, append([]row{one}, byGPUs(k.rows)...)})
		}
	}
	return all
}

// productName returns a function that names the product of a row: its shape and the attributes that
// differ among rows, except the kernel and the GPUs.
func (s *study) productName(rows []row) func(row) string {
	names := s.naming(rows, "subject", "gpus")
	return func(r row) string { return names.of(r, shape(r.Record)) }
}

// strongScaling shows the speedup of each product over one GPU, or returns nil if none ran on one
// GPU and on several.
func (s *study) strongScaling(g group) *Chart {
	all := s.speedups(g.rows)
	if len(all) == 0 {
		return nil
	}
	l := &Lines{X: gpuAxis(), Y: Axis{Label: "speedup over one GPU", Log: true, Binary: true, Text: tick}}
	c := &Chart{ID: "scaling-" + word(g.name), Title: "Speedup: " + g.name, Drawing: l}
	c.Table.Columns = []Column{{"product", ""}, {"kernel", ""}, {"GPUs", ""}, {"time", "s"}, {"speedup", "×"},
		{"efficiency", "%"}}
	var one row // the last base in the table, which several kernels share
	for _, x := range all {
		rows := x.rows
		if rows[0] == one {
			rows = rows[1:]
		}
		one = x.rows[0]
		for _, r := range rows {
			efficiency := x.of(r) / float64(gpus(r))
			c.Table.add(textCell(x.product), textCell(r.Subject), sizeCell(gpus(r)), timeCell(r),
				numberCell(x.text(r), x.of(r)), numberCell(percent(efficiency), 100*efficiency))
		}
	}
	drawn := largest(all, maxCurves, func(x speedup) float64 { return x.rows[0].Flops() })
	most := 1
	for _, x := range drawn {
		name, base := x.product+", "+x.kernel, x.rows[0].Seconds.Median
		series := l.colored(name)
		for _, r := range x.rows {
			most = max(most, gpus(r))
			series.Points = append(series.Points, Point{X: float64(gpus(r)), Y: x.of(r), Low: base / r.Seconds.P90,
				High: base / r.Seconds.P10, Text: fmt.Sprintf("%s on %s: %s, %s", name, phrase.Count(gpus(r), "GPU"),
					r.time(), x.text(r))})
		}
		l.Series = append(l.Series, series)
	}
	l.limit("ideal", "as many times as fast as GPUs", Point{X: 1, Y: 1}, Point{X: float64(most), Y: float64(most)})
	c.Answer = speedupAnswer(all)
	c.Notes = append(c.Notes, "Each product is compared with the fastest kernel on one GPU.")
	if len(drawn) < len(all) {
		c.Notes = append(c.Notes, fmt.Sprintf("The chart has %d of %d series: those of the largest products. The table has "+
			"all.", len(drawn), len(all)))
	}
	return c
}

// bestSpeedup returns the best speedup of the largest product on the most GPUs, and its row there.
func bestSpeedup(all []speedup) (best speedup, on row) {
	best = slices.MaxFunc(all, func(a, b speedup) int {
		x, y := a.rows[len(a.rows)-1], b.rows[len(b.rows)-1]
		return cmp.Or(cmp.Compare(gpus(x), gpus(y)), cmp.Compare(x.Flops(), y.Flops()), cmp.Compare(a.of(x), b.of(y)))
	})
	return best, best.rows[len(best.rows)-1]
}

// speedupAnswer states the best speedup.
func speedupAnswer(all []speedup) string {
	best, r := bestSpeedup(all)
	return fmt.Sprintf("%s takes %s on %s, %s as fast as on one: an efficiency of %s.", best.product, r.time(),
		phrase.Count(gpus(r), "GPU"), best.text(r), percent(best.of(r)/float64(gpus(r))))
}

// weakScaling shows the rate of each GPU for products whose operations grow with the number of
// GPUs, or returns nil if there are no such products.
func (s *study) weakScaling(g group) *Chart {
	unit, factor := rateUnit(g.rows)
	l := &Lines{X: gpuAxis(), Y: Axis{Label: unit + " of each GPU", Text: tick}}
	c := &Chart{ID: "weak-scaling-" + word(g.name), Title: "Work that grows with the GPUs: " + g.name, Drawing: l}
	c.Table.Columns = []Column{{"kernel", ""}, {"product", ""}, {"GPUs", ""}, {"rate of each GPU", unit},
		{"efficiency", "%"}}
	work := func(r row) float64 { // of each GPU, in steps of 2 %
		return math.Round(math.Log(r.Flops()/float64(gpus(r))) / 0.02)
	}
	names := s.naming(g.rows, "subject", "gpus")
	kernelName := func(r row) string {
		kernel, _, _ := onGPUs(r)
		return names.of(r, kernel)
	}
	for _, load := range groupBy(g.rows, func(r row) string { return fmt.Sprint(kernelName(r), " ", work(r)) }) {
		kernel := kernelName(load.rows[0])
		points := byGPUs(load.rows)
		if len(points) < 2 {
			continue
		}
		base := points[0]
		first := gpus(base)
		name := kernel + ", from " + shape(base.Record)
		series := l.colored(name)
		for _, r := range points {
			n := gpus(r)
			each := r.GFLOPS / float64(n)
			efficiency := each / (base.GFLOPS / float64(first))
			series.Points = append(series.Points, Point{X: float64(n), Y: each * factor, Low: r.slowRate() / float64(n) * factor,
				High: r.fastRate() / float64(n) * factor,
				Text: fmt.Sprintf("%s, %s on %s: %s %s each", kernel, shape(r.Record), phrase.Count(n, "GPU"),
					digits(each*factor), unit)})
			c.Table.add(textCell(r.Subject), textCell(shape(r.Record)), numberCell(fmt.Sprint(n), float64(n)),
				numberCell(digits(each*factor), each*factor), numberCell(percent(efficiency), 100*efficiency))
			c.Answer = fmt.Sprintf("With %s and %s, each GPU has %s of the rate of %s.", phrase.Count(n, "GPU"), shape(r.Record),
				percent(efficiency), shape(base.Record))
		}
		l.Series = append(l.Series, series)
	}
	if len(l.Series) == 0 {
		return nil
	}
	return c
}

// colored returns an empty series in the next color, and adds it to the legend.
func (l *Lines) colored(name string) Series {
	i := len(l.Legend)
	color := palette[i%len(palette)]
	l.Legend = append(l.Legend, Key{Name: name, Color: color, Marker: i})
	return Series{Name: name, Keys: []int{i}, Color: color, Label: color, Marker: i}
}

func gpuAxis() Axis { return Axis{Label: "GPUs", Log: true, Binary: true, Text: tick} }

// byGPUs returns the fastest row of each number of GPUs, in ascending order of the numbers.
func byGPUs(rows []row) (all []row) {
	for _, r := range rows {
		i, found := slices.BinarySearchFunc(all, gpus(r), func(x row, n int) int { return gpus(x) - n })
		switch {
		case !found:
			all = slices.Insert(all, i, r)
		case r.Seconds.Median < all[i].Seconds.Median:
			all[i] = r
		}
	}
	return all
}
