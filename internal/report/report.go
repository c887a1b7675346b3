// Package report turns records of package bench into a page and SVG files.
//
// [New] answers a list of questions from the records. Each answer is a [Chart]: a sentence, a
// drawing and a table. [Report.WriteHTML] writes them as one file that needs no network, with the
// most important figures and one chart first. [Chart.WriteSVG] writes one
// drawing. All drawings are laid out once, as shapes on a canvas (canvas.go).
//
// If sources have measurements in common, the first is the baseline that the others are compared
// with. Otherwise, for example with one file of a CPU and one of a GPU, they form one study.
package report

import (
	"errors"
	"fmt"
	"slices"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// Source holds the records of a file.
type Source struct {
	Name    string // short, for legends
	Records []bench.Record
}

// Report holds the answers from the records of one or more sources.
type Report struct {
	Title    string
	Tiles    []Tile
	Lead     *Section // the most important question, with one chart if there are Sections
	Sections []*Section
	Missing  []string // why some questions have no answer
	Notes    []string // the records that were ignored, and why
	Origins  []Origin // one for each source
}

// question is an entry of the list of questions. answer returns charts, or the reason why the
// records do not answer it.
type question struct {
	id, title string
	text      func(*study) string
	answer    func(*study) (charts []*Chart, missing string)
}

func always(text string) func(*study) string { return func(*study) string { return text } }

// questions are in the order of the page.
var questions = []question{
	{"change", "What changed", always("What became faster or slower, and is that more than chance?"), changes},
	{"time", "Time", timeQuestion, timeCharts},
	{"textbook", "The textbook's charts", always("How do the CPU, the simple kernels and a library compare?"), textbook},
	{"ladder", "The ladder", always("What does each kernel gain over the previous one?"), ladders},
	{"sizes", "Time by size", always("How does the time of each kernel grow with the size?"), sizeCharts},
	{"rate", "Rate", always("How much of the device does each kernel use?"), rates},
	{"shapes", "Other shapes", always("How fast is each product that is not square?"), shapes},
	{"ratio", "Against the libraries", always("On which shapes is a library faster?"), ratios},
	{"roofline", "Roofline", always("Does memory or arithmetic limit the product, and how close is each kernel to the " +
		"limit?"), rooflines},
	{"counts", "Memory accesses", always("What does each kernel request from memory?"), counts},
	{"transfers", "Where the time goes", always("What do the copies to the GPU and back cost?"), transfers},
	{"scaling", "Several GPUs", always("How much faster are several GPUs than one?"), scalings},
	{"breakdown", "Computing, copying, waiting", always("What does each GPU do during a product?"), breakdowns},
}

// leads lists the questions that can be at the top of the page, the most important one first.
var leads = []string{"change", "scaling", "ladder", "ratio", "time", "counts", "rate", "shapes"}

// New answers the questions from the records. It returns an error if there are no records.
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
	r.Title, r.Notes, r.Tiles = s.title(), s.notes, s.tiles()
	ids := map[string]int{}
	for _, q := range questions {
		charts, missing := q.answer(s)
		if missing != "" {
			r.Missing = append(r.Missing, missing)
		}
		for _, c := range charts {
			if ids[c.ID]++; ids[c.ID] > 1 { // for names that differ in punctuation only
				c.ID = fmt.Sprintf("%s-%d", c.ID, ids[c.ID])
			}
		}
		if len(charts) > 0 {
			r.Sections = append(r.Sections, &Section{q.id, q.title, q.text(s), charts})
		}
	}
	r.takeLead()
	return r, nil
}

// takeLead moves the first chart of the most important section to the top of the page. A section
// without others moves there whole, so that its question is not repeated.
func (r *Report) takeLead() {
	if len(r.Sections) == 1 {
		r.Lead, r.Sections = r.Sections[0], nil
		return
	}
	for _, id := range leads {
		i := slices.IndexFunc(r.Sections, func(s *Section) bool { return s.ID == id })
		if i < 0 {
			continue
		}
		lead := *r.Sections[i]
		lead.Charts = lead.Charts[:1]
		r.Lead = &lead
		if r.Sections[i].Charts = r.Sections[i].Charts[1:]; len(r.Sections[i].Charts) == 0 {
			r.Sections = slices.Delete(r.Sections, i, i+1)
		}
		return
	}
}

// Charts returns all charts in the order of the page.
func (r *Report) Charts() []*Chart {
	var all []*Chart
	if r.Lead != nil {
		all = append(all, r.Lead.Charts...)
	}
	for _, s := range r.Sections {
		all = append(all, s.Charts...)
	}
	return all
}

// title names the measured devices.
func (s *study) title() string {
	switch {
	case len(s.rows) > 0:
		return "Matrix multiplication on " + phrase.List(devices(s.rows))
	case len(s.counted) > 0:
		return "Matrix multiplication, counted for " + phrase.List(devices(s.counted))
	}
	return "Matrix multiplication: no timed product"
}
