package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/phrase"
)

// counts shows the memory accesses that the emulator counted.
func counts(s *study) ([]*Chart, string) {
	if len(s.counted) == 0 {
		return nil, "Nothing was counted in the emulator (bench --device emu)."
	}
	var all []*Chart
	for _, g := range groupBy(s.counted, func(r row) string {
		name := r.Types() + " for " + r.device()
		if r.Transposes() != "NN" {
			name += ", " + r.Transposes()
		}
		return s.label(name, r.source)
	}) {
		all = append(all, countChart(&Chart{ID: "counts-" + word(g.name), Title: "Memory accesses: " + g.name}, g.rows))
	}
	return all, ""
}

// countChart returns a chart that draws the largest product and has a table of all.
func countChart(c *Chart, rows []row) *Chart {
	rows = bySize(rows)
	work := strings.TrimSuffix(rows[0].unit(), "/s")
	c.Table.Columns = []Column{
		{"M×N×K", ""}, {"kernel", ""}, {"instructions", ""}, {work, ""}, {work + " with padding", ""}, {"loaded", "bytes"},
		{work + "/byte", ""}, {"sectors", ""}, {"ideal sectors", ""}, {"distinct sectors", ""},
		{"wavefronts", ""}, {"bank conflicts", ""}, {"compute capability 1.0: transactions per half-warp", ""},
		{"compute capability 1.0: bank conflicts", ""},
	}
	integer := func(n int64) Cell { return numberCell(phrase.Commas(n), float64(n)) }
	for _, r := range rows {
		n := r.Counts
		transactions, conflicts := textCell(""), textCell("")
		if per, known := n.Historic.PerHalfWarp(); known {
			transactions, conflicts = numberCell(digits(per), per), integer(n.Historic.Wavefronts-n.Historic.IdealWavefronts)
		}
		c.Table.add(textCell(shape(r.Record)), textCell(r.Subject), integer(n.Instructions), integer(n.Flops),
			integer(n.Issued), integer(n.LoadBytes), numberCell(digits(n.Intensity()), n.Intensity()),
			integer(n.Sectors), integer(n.IdealSectors), integer(n.DistinctSectors), integer(n.Wavefronts),
			integer(n.Conflicts()), transactions, conflicts)
	}
	rows = largestShape(rows)
	last := shape(rows[0].Record)
	bars := &Rows{X: Axis{Label: "sectors of 32 bytes at " + last,
		Text: func(v float64) string { return phrase.Commas(int64(v)) }}, Stacked: true, Legend: []Key{
		{Name: "ideal for the requested bytes", Mark: markBar, Color: palette[0]},
		{Name: "additional, because of uncoalesced accesses", Mark: markBar, Color: palette[1]},
	}}
	c.Drawing = bars
	var conflicts, historic []string
	for _, r := range rows {
		n := r.Counts
		value := func(key int, sectors int64, text string) Value {
			v := float64(sectors)
			return Value{Key: key, V: v, Low: v, High: v, Text: fmt.Sprintf("%s, %s\n%s sectors %s", r.Subject, last,
				phrase.Commas(sectors), text)}
		}
		end := digits(n.Intensity()) + " " + work + "/byte"
		bars.Rows = append(bars.Rows, Row{Name: r.Subject, End: end, Values: []Value{
			value(0, n.IdealSectors, "ideal for the requested bytes"), value(1, n.Sectors-n.IdealSectors, "additional"),
		}})
		if per, known := n.Historic.PerHalfWarp(); known {
			historic = append(historic, r.Subject+" "+digits(per))
		}
		if n.Conflicts() > 0 {
			conflicts = append(conflicts, fmt.Sprintf("%s (%s more wavefronts)", r.Subject,
				percent(float64(n.Conflicts())/float64(n.IdealWavefronts))))
		}
	}
	c.Answer = countAnswer(rows, last, work, conflicts)
	c.Notes = append(c.Notes, "Counts of an emulated GPU, not times.")
	if historic != nil {
		c.Notes = append(c.Notes, "A request of a warp transfers each sector that it touches once, and shared memory has "+
			"32 banks. GPUs of compute capability 1.0 served half-warps: "+
			"one transaction if thread k accessed word k of an aligned segment, and otherwise one per thread; shared memory "+
			"had 16 banks. "+
			"Transactions per half-warp by this rule: "+phrase.List(historic)+
			". tilework explain KERNEL shows each access by both rules.")
	}
	return c
}

// largestShape returns the rows of the last shape.
func largestShape(rows []row) []row {
	last := shape(rows[len(rows)-1].Record)
	return filter(rows, func(r row) bool { return shape(r.Record) == last })
}

func countAnswer(rows []row, at, work string, conflicts []string) string {
	byIntensity := func(a, b row) int { return cmp.Compare(a.Counts.Intensity(), b.Counts.Intensity()) }
	least, most := slices.MinFunc(rows, byIntensity), slices.MaxFunc(rows, byIntensity)
	text := fmt.Sprintf("At %s, %s does %s %s per byte loaded", at, least.Subject, digits(least.Counts.Intensity()), work)
	if most != least {
		text += fmt.Sprintf(", and %s does %s", most.Subject, digits(most.Counts.Intensity()))
	}
	if len(conflicts) > 0 {
		return text + "; bank conflicts: " + phrase.List(conflicts) + "."
	}
	return text + "; there are no bank conflicts."
}
