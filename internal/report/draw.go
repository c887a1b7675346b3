package report

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Drawing is a chart's drawing: [Lines], [Heat] or [Bars].
type Drawing interface {
	// height is what the drawing needs at a width.
	height(width vg.Length) vg.Length
	// draw fills the canvas, and says where what can be read off.
	draw(draw.Canvas) []spot
}

// spot is a place of a drawing that tells something to who points at it.
type spot struct {
	vg.Rectangle
	text string
}

// around is a spot of some size with its middle at a point.
func around(p vg.Point, text string) spot {
	const r = 5
	return spot{vg.Rectangle{Min: vg.Point{X: p.X - r, Y: p.Y - r}, Max: vg.Point{X: p.X + r, Y: p.Y + r}}, text}
}

// The sizes of type and lines, in points, at which a drawing is shown in the page.
const (
	typeSize   = 11
	lineHeight = 17
	thumbWidth = 22
)

// sans is what drawings are written in.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func style(c color.Color, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{
		Color: c, XAlign: x, YAlign: y,
		Font:    font.From(sans, typeSize),
		Handler: plot.DefaultTextHandler,
	}
}

// newPlot is a plot without data, in the report's own style.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // the page's
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = rule, rule
		a.Padding, a.Tick.Length = 0, 4
		for _, s := range []*text.Style{&a.Label.TextStyle, &a.Tick.Label} {
			s.Color, s.Font = faint, font.From(sans, typeSize)
		}
	}
	p.X.Label.Padding = 3
	p.Y.Width, p.Y.Tick.Width = 0, 0
	return p
}

// nameRows writes the names of rows left of the canvas that the rows have, with their
// middles at y.
func nameRows(c draw.Canvas, names []string, y func(row int) vg.Length) {
	s := style(ink, draw.XRight, draw.YCenter)
	for i, name := range names {
		c.FillText(s, vg.Point{X: c.Min.X - nameGap, Y: y(i)}, name)
	}
}

// nameGap is between the names of rows and the rows.
const nameGap = 8

// widest is the width of the widest of names.
func widest(names []string) vg.Length {
	s := style(ink, draw.XLeft, draw.YCenter)
	w := vg.Length(0)
	for _, name := range names {
		w = max(w, s.Width(name))
	}
	return w
}

// entry is a line of a legend.
type entry struct {
	name  string
	thumb []plot.Thumbnailer
}

// legend is entries in as many columns as fit a width, each column as wide as the
// widest.
type legend []entry

// columns is how many there are, and their width.
func (l legend) columns(width vg.Length) (n int, each vg.Length) {
	for _, e := range l {
		each = max(each, widest([]string{e.name})+thumbWidth+18)
	}
	return max(1, min(len(l), int(width/max(each, 1)))), each
}

func (l legend) height(width vg.Length) vg.Length {
	if len(l) == 0 {
		return 0
	}
	n, _ := l.columns(width)
	return vg.Length((len(l)+n-1)/n)*lineHeight + 6
}

// draw puts the legend on top of the canvas and returns what is left of it.
func (l legend) draw(c draw.Canvas) draw.Canvas {
	n, each := l.columns(c.Size().X)
	for i, e := range l {
		one := plot.NewLegend()
		one.Left, one.Top = true, true
		one.TextStyle, one.ThumbnailWidth = style(ink, draw.XLeft, draw.YBottom), thumbWidth
		one.Add(e.name, e.thumb...)
		at := c
		at.Min.X += vg.Length(i%n) * each
		at.Max.Y -= vg.Length(i/n) * lineHeight
		one.Draw(at)
	}
	return draw.Crop(c, 0, 0, 0, -l.height(c.Size().X))
}
