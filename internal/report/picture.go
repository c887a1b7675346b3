package report

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The widths of drawings: for a page and for a phone.
const (
	wide   = 720
	narrow = 340
)

// margin is kept free around a picture of its own.
const margin = 16

// pngResolution is in dots an inch: a picture is 1,567 dots wide.
const pngResolution = 150

// picture is a chart's title and drawing on a canvas of its own. The size is known
// before the canvas is.
type picture struct {
	*Chart
	width vg.Length
}

func (p picture) size() (w, h vg.Length) {
	return p.width + 2*margin, p.Drawing.height(p.width) + lineHeight*1.6 + 2*margin
}

func (p picture) draw(on vg.CanvasSizer) []spot {
	c := draw.New(on)
	c.FillPolygon(paper, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	c = draw.Crop(c, margin, -margin, margin, -margin)
	title := style(ink, draw.XLeft, draw.YTop)
	title.Font.Size = typeSize * 1.3
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, p.Title)
	return p.Drawing.draw(draw.Crop(c, 0, 0, 0, -lineHeight*1.6))
}

// WritePNG writes the chart as a picture for slides and pages.
func (c *Chart) WritePNG(w io.Writer) error {
	p := picture{c, wide}
	width, height := p.size()
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngResolution))
	p.draw(canvas)
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return err
}

// WriteSVG writes the same as a drawing, which tells values to who points at them.
func (c *Chart) WriteSVG(w io.Writer) error {
	p := picture{c, wide}
	width, height := p.size()
	canvas := vgsvg.New(width, height)
	text, err := svgOf(canvas, p.draw(canvas))
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// inline is the drawing as an element of the page, in its colours.
func (c *Chart) inline(width vg.Length, class string) (string, error) {
	height := c.Drawing.height(width)
	canvas := vgsvg.New(width, height)
	text, err := svgOf(canvas, c.Drawing.draw(draw.New(canvas)))
	if err != nil {
		return "", err
	}
	_, text, _ = strings.Cut(text, "<svg")
	_, text, _ = strings.Cut(text, ">")
	text = fontFamily.ReplaceAllString(text, "")
	return fmt.Sprintf(`<svg class=%q viewBox="0 0 %.6g %.6g" role="img" aria-label=%q>`, class, width.Points(), height.Points(), html.EscapeString(c.Title)) + themed(text), nil
}

// fontFamily is what the page's style sheet says once.
var fontFamily = regexp.MustCompile(`font-family:[^;"]*;font-variant:normal;font-weight:normal;font-style:normal;`)

// svgOf is the drawing with its spots: transparent areas with a title, which a browser
// shows, and the page's script too.
func svgOf(c *vgsvg.Canvas, spots []spot) (string, error) {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, height := c.Size()
	text := strings.TrimSuffix(strings.TrimSpace(b.String()), "</svg>")
	var out strings.Builder
	out.WriteString(text)
	out.WriteString("<g fill=\"none\" pointer-events=\"all\">\n")
	for _, s := range spots {
		size := s.Size()
		fmt.Fprintf(&out, "<rect x=\"%.5g\" y=\"%.5g\" width=\"%.5g\" height=\"%.5g\"><title>%s</title></rect>\n",
			s.Min.X.Points(), (height - s.Max.Y).Points(), size.X.Points(), size.Y.Points(), html.EscapeString(s.text))
	}
	out.WriteString("</g>\n</svg>\n")
	return out.String(), nil
}
