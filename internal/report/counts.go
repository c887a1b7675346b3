package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// emulated is the GPU that an emulator counted for.
func emulated(r row) string {
	return strings.TrimSuffix(cmp.Or(r.Environment.GPU, r.Device), ", emulated")
}

// counts shows what kernels ask of memory, as the emulator counted it.
func counts(s *study) []*Chart {
	const title, question = "What the emulator counted", "What does a kernel ask of memory?"
	if len(s.counted) == 0 {
		return []*Chart{{ID: "counts", Title: title, Question: question, Notes: []string{"Nothing was counted (bench --device emu)."}}}
	}
	var all []*Chart
	for _, g := range groupBy(s.counted, func(r row) string {
		name := r.Types() + " for " + emulated(r)
		if r.Transposes() != "NN" {
			name += ", " + r.Transposes()
		}
		if len(s.sources) > 1 {
			name += " (" + s.sources[r.source] + ")"
		}
		return name
	}) {
		all = append(all, countChart(&Chart{ID: "counts-" + word(g.name), Title: title + ": " + g.name, Question: question}, g.rows))
	}
	return all
}

// countChart draws the largest product, and lists all.
func countChart(c *Chart, rows []row) *Chart {
	rows = bySize(rows)
	work := strings.TrimSuffix(rows[0].unit(), "/s")
	c.Table.Columns = []string{"M×N×K", "kernel", "instructions", work, "loaded", work + "/byte", "sectors", "of these needed", "different ones", "wavefronts", "bank conflicts", "then: transactions a half-warp", "then: bank conflicts"}
	for _, r := range rows {
		n := r.Counts
		transactions, conflicts := "", ""
		if per, known := n.Then.PerHalfWarp(); known {
			transactions, conflicts = digits(per), number(n.Then.Wavefronts-n.Then.IdealWavefronts)
		}
		c.Table.Rows = append(c.Table.Rows, []string{
			shape(r.Record), r.Subject, number(n.Instructions), number(n.Flops), number(n.LoadBytes), digits(n.Intensity()),
			number(n.Sectors), number(n.IdealSectors), number(n.DistinctSectors), number(n.Wavefronts), number(n.Conflicts()), transactions, conflicts,
		})
	}
	last := shape(rows[len(rows)-1].Record)
	rows = filter(rows, func(r row) bool { return shape(r.Record) == last })
	bars := &Bars{Label: "sectors of 32 bytes, as a part of the most", Parts: []string{"that the bytes need", "more, as they are scattered"}}
	c.Drawing = bars
	most := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.Counts.Sectors, b.Counts.Sectors) }).Counts.Sectors
	var intensities, conflicts, then []string
	for _, r := range rows {
		n := r.Counts
		part := func(sectors int64) float64 { return float64(sectors) / float64(max(most, 1)) }
		bars.Rows = append(bars.Rows, r.Subject)
		bars.Share = append(bars.Share, []float64{part(n.IdealSectors), part(n.Sectors - n.IdealSectors)})
		bars.Text = append(bars.Text, []string{
			fmt.Sprintf("%s, %s\n%s sectors would hold the bytes of each access", r.Subject, last, number(n.IdealSectors)),
			fmt.Sprintf("%s, %s\n%s sectors in all", r.Subject, last, number(n.Sectors)),
		})
		bars.Ends = append(bars.Ends, digits(n.Intensity())+" "+work+"/byte")
		intensities = append(intensities, r.Subject+" "+digits(n.Intensity()))
		if per, known := n.Then.PerHalfWarp(); known {
			then = append(then, r.Subject+" "+digits(per))
		}
		if n.Conflicts() > 0 {
			conflicts = append(conflicts, fmt.Sprintf("%s (%s more wavefronts)", r.Subject, percent(float64(n.Conflicts())/float64(n.IdealWavefronts))))
		}
	}
	c.Headline = fmt.Sprintf("At %s, operations for each byte that threads load: %s.", last, strings.Join(intensities, " → "))
	if len(conflicts) > 0 {
		c.Headline += " Bank conflicts: " + list(conflicts) + "."
	} else {
		c.Headline += " No bank conflicts."
	}
	c.Notes = append(c.Notes, "These are counts, not times: "+count(len(c.Table.Rows), "product")+" on an emulated GPU.")
	if then != nil {
		c.Notes = append(c.Notes, "Now a warp's request moves each sector that it touches, once, and 32 banks serve it. The first GPUs served half-warps: "+
			"one transaction where thread k accessed word k of an aligned segment, and else one for each thread; shared memory had 16 banks. "+
			"Of transactions a half-warp they would have taken: "+list(then)+". tilework explain KERNEL shows each access by both rules.")
	}
	return c
}

// number is a count, its thousands apart.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
