package report

import (
	_ "embed"
	"html/template"
	"io"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/page.js
var pageJS string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"draw": drawings, "number": isNumber, "tie": ties.Replace,
}).Parse(pageHTML))

// WriteHTML writes the report as one page, which asks no network for anything.
func (r *Report) WriteHTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Report
		Style  template.CSS
		Script template.JS
	}{r, variables() + "\n" + template.CSS(pageCSS), template.JS(pageJS)})
}

// drawings is a chart's drawing at two widths, of which the style sheet shows one.
func drawings(c *Chart) (template.HTML, error) {
	var b strings.Builder
	for _, size := range []struct {
		class string
		width vg.Length
	}{{"wide", wide}, {"narrow", narrow}} {
		text, err := c.inline(size.width, size.class)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return template.HTML(b.String()), nil
}

// ties keeps what belongs together on one line.
var ties = strings.NewReplacer(" %", "\u00a0%", " = ", "\u00a0=\u00a0", " ≈ ", "\u00a0≈\u00a0", " GFLOP", "\u00a0GFLOP", " TFLOP", "\u00a0TFLOP", " GOP", "\u00a0GOP", " TOP", "\u00a0TOP")

var numeric = regexp.MustCompile(`^[-+]?[0-9]`)

// isNumber reports whether a table's cell is aligned as numbers are.
func isNumber(cell string) bool { return cell == "" || numeric.MatchString(cell) }
