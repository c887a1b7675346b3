package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"tilework/internal/bench"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/page.js
var pageJS string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"svg":    func(c *Chart) template.HTML { return template.HTML(c.figureSVG()) },
	"sample": func(k Key) template.HTML { return template.HTML(k.sampleSVG()) },
	"csv": func(t *Table) (template.URL, error) {
		url, err := t.CSV()
		return template.URL(url), err
	},
	"tie":       ties.Replace,
	"uncertain": func() string { return bench.UncertainNote },
}).Parse(pageHTML))

// WriteHTML writes the report as one file that needs no network. It is complete without
// JavaScript; with it, tables can be sorted and drawings show values under the pointer.
func (r *Report) WriteHTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Report
		Style  template.CSS
		Script template.JS
	}{r, template.CSS(Theme() + classes() + r.toggles() + pageCSS), template.JS(pageJS)})
}

// toggles returns the rules that hide the shapes of a legend entry while its box is not checked.
func (r *Report) toggles() string {
	most := 0
	for _, c := range r.Charts() {
		most = max(most, len(c.Drawing.keys()))
	}
	var b strings.Builder
	for i := range most {
		fmt.Fprintf(&b, ".figure:has(.t%[1]d:not(:checked)) g.k%[1]d{display:none}", i)
	}
	return b.String() + "\n"
}

// ties keeps numbers and their units on one line.
var ties = strings.NewReplacer("± ", "±\u00a0", " %", "\u00a0%", " = ", "\u00a0=\u00a0", " ≈ ", "\u00a0≈\u00a0",
	" GFLOP", "\u00a0GFLOP", " TFLOP", "\u00a0TFLOP", " GOP", "\u00a0GOP", " TOP", "\u00a0TOP")
