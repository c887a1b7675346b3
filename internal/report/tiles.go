package report

import (
	"cmp"
	"fmt"
	"slices"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// Tile is one of the large figures at the top of the page.
type Tile struct{ Value, Unit, Label string }

// maxTiles is the number of tiles on the page.
const maxTiles = 4

// tiles returns the most important figures.
func (s *study) tiles() []Tile {
	if s.compares() {
		return s.changeTiles()
	}
	var all []Tile
	rows := s.mainRows()
	for _, tile := range []func([]row) (Tile, bool){s.rateTile, s.speedupTile, s.ratioTile, s.crossoverTile,
		s.gainTile, s.countTile, s.intensityTile, s.conflictTile, s.timeTile, s.recordTile} {
		if t, ok := tile(rows); ok && len(all) < maxTiles {
			all = append(all, t)
		}
	}
	return all
}

// mainRows returns the rows that the tiles describe. If there are rows of several GPUs, it returns
// them, without copies if possible. Otherwise it returns those of the main facet.
func (s *study) mainRows() []row {
	many := filter(s.rows, hasRate, several)
	if len(filter(many, not(copies), not(isPeer))) > 0 {
		many = filter(many, not(copies))
	}
	if len(filter(many, not(isPeer))) > 0 {
		return many
	}
	main := s.mainFacet()
	return filter(s.rows, hasRate, not(copies), not(several), func(r row) bool { return facet(r) == main })
}

func (s *study) rateTile(rows []row) (Tile, bool) {
	r := fastestOurs(rows)
	if r.Record == nil {
		return Tile{}, false
	}
	unit, factor := rateUnit([]row{r})
	kernel, _, n := onGPUs(r)
	label := fmt.Sprintf("%s: %s at %s", r.Types(), kernel, shape(r.Record))
	if n > 1 {
		label += fmt.Sprintf(" on %d GPUs", n)
	}
	if copies(r) {
		label += ", copies included"
	}
	if p, known := r.PercentOfPeak(); known { // of one GPU
		label += fmt.Sprintf(", %.0f %% of the peak", p/float64(n))
	}
	return Tile{bench.Marked(digits(r.GFLOPS*factor), r.Uncertain()), unit, label}, true
}

// speedupTile states the speedup over one GPU of the largest product on the most GPUs.
func (s *study) speedupTile([]row) (Tile, bool) {
	for _, g := range byPlace(s, filter(s.rows, of(onGPU), not(isPeer))) {
		if all := s.speedups(g.rows); len(all) > 0 {
			x, r := bestSpeedup(all)
			return Tile{x.text(r), "", fmt.Sprintf("the speed of one GPU on %d, for %s: an efficiency of %s", gpus(r), x.product,
				percent(x.of(r)/float64(gpus(r))))}, true
		}
	}
	return Tile{}, false
}

func (s *study) ratioTile(rows []row) (Tile, bool) {
	comparisons := s.comparisons(filter(rows, not(isPeer)))
	if len(comparisons) == 0 {
		return Tile{}, false
	}
	x := &comparisons[strongest(comparisons)]
	return Tile{x.meanText(), "",
		fmt.Sprintf("the speed of %s %s", s.peerName(x), x.scope())}, true
}

func (s *study) crossoverTile(rows []row) (Tile, bool) {
	if len(rows) == 0 {
		return Tile{}, false
	}
	r := newTimeCurves(filter(s.timeRows(), func(r row) bool { return r.Types() == rows[0].Types() }))
	_, _, who, how := r.compared()
	x := r.crossing()
	if x.at <= 0 {
		return Tile{}, false
	}
	return Tile{x.size(), "", fmt.Sprintf("the size from which the GPU, %s, is faster than %s", how,
		who)}, true
}

func (s *study) gainTile(rows []row) (Tile, bool) {
	rows = filter(rows, isSquare, not(isPeer), not(several))
	if len(rows) == 0 {
		return Tile{}, false
	}
	n := commonSize(rows)
	rows = filter(rows, func(r row) bool { return r.N == n })
	threads := rows[0].Threads
	rows = filter(rows, func(r row) bool { return r.Threads == threads })
	byTime := func(a, b row) int { return cmp.Compare(a.Seconds.Median, b.Seconds.Median) }
	slow, fast := slices.MaxFunc(rows, byTime), slices.MinFunc(rows, byTime)
	if slow.Subject == fast.Subject {
		return Tile{}, false
	}
	return Tile{gain(slow, fast), "",
		fmt.Sprintf("%s relative to %s at %d³", fast.Subject, slow.Subject, n)}, true
}

func (s *study) countTile([]row) (Tile, bool) {
	if len(s.counted) == 0 {
		return Tile{}, false
	}
	rows := largestShape(bySize(s.counted))
	byBytes := func(a, b row) int { return cmp.Compare(a.Counts.LoadBytes, b.Counts.LoadBytes) }
	most, least := slices.MaxFunc(rows, byBytes), slices.MinFunc(rows, byBytes)
	if least.Counts.LoadBytes == 0 || most.Subject == least.Subject {
		return Tile{}, false
	}
	part := float64(most.Counts.LoadBytes) / float64(least.Counts.LoadBytes)
	return Tile{times(part), "", fmt.Sprintf("as many bytes loaded by %s as by %s at %s", most.Subject, least.Subject,
		shape(least.Record))}, true
}

func (s *study) intensityTile([]row) (Tile, bool) {
	if len(s.counted) == 0 {
		return Tile{}, false
	}
	r := slices.MaxFunc(largestShape(bySize(s.counted)),
		func(a, b row) int { return cmp.Compare(a.Counts.Intensity(), b.Counts.Intensity()) })
	return Tile{digits(r.Counts.Intensity()), "operations/byte", fmt.Sprintf("loaded by the threads of %s at %s",
		r.Subject, shape(r.Record))}, true
}

func (s *study) conflictTile([]row) (Tile, bool) {
	if len(s.counted) == 0 {
		return Tile{}, false
	}
	rows := largestShape(bySize(s.counted))
	with := filter(rows, func(r row) bool { return r.Counts.Conflicts() > 0 })
	return Tile{fmt.Sprintf("%d of %d", len(with), len(rows)), "", fmt.Sprintf("kernels with bank conflicts at %s",
		shape(rows[0].Record))}, true
}

func (s *study) timeTile(rows []row) (Tile, bool) {
	r := fastestOurs(rows)
	if r.Record == nil {
		return Tile{}, false
	}
	label := fmt.Sprintf("for %s by %s", shape(r.Record), r.Subject)
	if r.Reps > 1 {
		label += fmt.Sprintf(", ± %.1f %%", 50*r.Seconds.Spread)
	}
	return Tile{r.time(), "", label}, true
}

func (s *study) recordTile([]row) (Tile, bool) {
	n := len(s.rows) + len(s.counted)
	verified := len(filter(slices.Concat(s.rows, s.counted), func(r row) bool { return r.Verified }))
	if n == 0 {
		return Tile{}, false
	}
	return Tile{fmt.Sprintf("%d of %d", verified, n), "", "results checked against a float64 reference"}, true
}

// changeTiles summarizes a comparison of sources.
func (s *study) changeTiles() []Tile {
	var all []change
	for source := 1; source < len(s.sources); source++ {
		all = append(all, s.changesTo(source)...)
	}
	if len(all) == 0 {
		return nil
	}
	faster, slower := 0, 0
	for _, x := range all {
		if x.faster() {
			faster++
		}
		if x.slower() {
			slower++
		}
	}
	after := phrase.List(s.sources[1:])
	return []Tile{
		{times(meanSpeed(all)), "", fmt.Sprintf("speed of %s relative to %s: geometric mean of %s", after, s.sources[0],
			phrase.Count(len(all), "measurement"))},
		{fmt.Sprint(faster), "", "faster, by more than chance"},
		{fmt.Sprint(slower), "", "slower, by more than chance"},
		{fmt.Sprint(len(all) - faster - slower), "", "without a change beyond chance"},
	}
}
