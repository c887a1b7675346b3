// Package report turns records of package bench into a page to read.
//
// [New] puts the questions of one list to the records: each becomes a [Chart] with its
// answer in a sentence, a drawing, and a table of the figures, or with what is missing.
// [Report.WriteHTML] writes all of them as one page that needs nothing else,
// [Chart.WriteSVG] and [Chart.WritePNG] each drawing as a picture. Charts are drawn by
// gonum/plot, once in Go for the page, for SVG and for PNG.
//
// Of several sources that have measurements in common the first is what the others are
// compared with; others, of a CPU and of a GPU, are one study.
package report

import (
	"errors"
	"fmt"

	"tilework/internal/bench"
)

// Source is a file of records, or whatever they come from.
type Source struct {
	Name    string // short: it stands in legends
	Records []bench.Record
}

// Report is what records say.
type Report struct {
	Title   string
	Charts  []*Chart
	Notes   []string // what was left out, and why
	Origins []Origin // of each source
}

// charts is the one list of what is asked. A chart that there is one of for each
// device and element type is made by one function.
var charts = []func(*study) []*Chart{
	changes, timeSmall, timeLarge, ladder, rates, ratios, roofline, counts, transfers,
}

// New reads the records' answers. It is an error if there are no records.
func New(sources []Source) (*Report, error) {
	r := &Report{}
	total := 0
	for _, s := range sources {
		total += len(s.Records)
		r.Origins = append(r.Origins, originOf(s))
	}
	if total == 0 {
		return nil, errors.New("no records to report on")
	}
	s := newStudy(sources)
	r.Notes = s.notes
	r.Title = s.title()
	ids := map[string]int{}
	for _, questions := range charts {
		for _, c := range questions(s) {
			if ids[c.ID]++; ids[c.ID] > 1 { // two names that differ in signs only
				c.ID = fmt.Sprintf("%s-%d", c.ID, ids[c.ID])
			}
			r.Charts = append(r.Charts, c)
		}
	}
	return r, nil
}

// title names the devices that were measured.
func (s *study) title() string {
	var devices []string
	for _, g := range groupBy(s.rows, row.device) {
		devices = append(devices, g.name)
	}
	switch {
	case len(devices) == 0 && len(s.counted) > 0:
		return "Matrix multiplication, counted for " + emulated(s.counted[0])
	case len(devices) == 0:
		return "Matrix multiplication: nothing was timed"
	}
	return "Matrix multiplication on " + list(devices)
}
