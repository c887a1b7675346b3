package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// Sizes in pixels of a drawing at its own width.
const (
	textSize   = 13.0
	lineHeight = 18.0
)

// point is a position on a canvas. Y grows downwards.
type point struct{ x, y float64 }

// box is a rectangle with sides parallel to the axes.
type box struct{ x, y, w, h float64 }

func (b box) overlaps(c box) bool {
	return b.x < c.x+c.w && c.x < b.x+b.w && b.y < c.y+c.h && c.y < b.y+b.h
}

// canvas collects the elements of a drawing, which are then written as SVG.
type canvas struct {
	width, height float64
	layers        []layer
}

// layer holds elements that the same legend entries show and hide.
type layer struct {
	keys     string // CSS classes, one per entry; empty if always visible
	elements []element
}

// element is one of stroke, fill, disc, label and spot.
type element interface {
	svg(b *strings.Builder)
	moved(dx, dy float64) element
}

type (
	// stroke is a line through points.
	stroke struct {
		points []point
		color  *paint
		width  float64
		dash   []float64
	}
	// fill is a filled polygon.
	fill struct {
		points  []point
		color   *paint
		opacity float64
	}
	// disc is a circle, filled or hollow.
	disc struct {
		at     point
		radius float64
		color  *paint
		hollow bool
	}
	// label is a line of text. at is at the middle of its height.
	label struct {
		at    point
		text  string
		color *paint
		align align
		bold  bool
		halo  bool // separates the text from lines below it
	}
	// spot is an area with a tooltip.
	spot struct {
		box
		text string
	}
)

// align is the position of a label relative to its point.
type align int

const (
	alignStart align = iota
	alignMiddle
	alignEnd
)

// on starts the layer of the legend entries with the given indices.
func (c *canvas) on(keys ...int) {
	var classes []string
	for _, k := range keys {
		classes = append(classes, "k"+strconv.Itoa(k))
	}
	c.layers = append(c.layers, layer{keys: strings.Join(classes, " ")})
}

func (c *canvas) add(elements ...element) {
	if len(c.layers) == 0 {
		c.on()
	}
	l := &c.layers[len(c.layers)-1]
	l.elements = append(l.elements, elements...)
}

// addApart adds labels that are side by side, from left to right. It leaves out those that would
// overlap the next one.
func (c *canvas) addApart(labels []label) {
	var apart []label
	next := math.Inf(1)
	for _, l := range slices.Backward(labels) {
		if a := l.area(); a.x+a.w <= next {
			apart, next = append(apart, l), a.x
		}
	}
	for _, l := range slices.Backward(apart) {
		c.add(l)
	}
}

// addOpaque adds a label that no line below it crosses.
func (c *canvas) addOpaque(l label) {
	c.rect(l.area(), paper, 1)
	c.add(l)
}

// hline adds a horizontal line.
func (c *canvas) hline(x1, x2, y float64, p *paint, width float64, dash ...float64) {
	c.add(stroke{[]point{{x1, y}, {x2, y}}, p, width, dash})
}

// vline adds a vertical line.
func (c *canvas) vline(x, y1, y2 float64, p *paint, width float64, dash ...float64) {
	c.add(stroke{[]point{{x, y1}, {x, y2}}, p, width, dash})
}

// rect adds a filled rectangle.
func (c *canvas) rect(b box, p *paint, opacity float64) {
	c.add(fill{[]point{{b.x, b.y}, {b.x + b.w, b.y}, {b.x + b.w, b.y + b.h}, {b.x, b.y + b.h}}, p, opacity})
}

// markers are the shapes of points, as polygons around the origin. The first is a disc.
var markers = [][]point{
	nil,
	{{-3.3, -3.3}, {3.3, -3.3}, {3.3, 3.3}, {-3.3, 3.3}},
	{{0, -4.6}, {4.2, 3}, {-4.2, 3}},
	{{0, -4.8}, {4.8, 0}, {0, 4.8}, {-4.8, 0}},
	{{-4.2, -3}, {4.2, -3}, {0, 4.6}},
}

const markerRadius = 3.6

// marker adds a point with the shape of the given number.
func (c *canvas) marker(form int, at point, p *paint, hollow bool) {
	form %= len(markers)
	if form == 0 || hollow {
		c.add(disc{at, markerRadius, p, hollow})
		return
	}
	c.add(fill{moved(markers[form], at.x, at.y), p, 1})
}

// svg returns the drawing as an SVG element with the given attributes.
func (c *canvas) svg(attributes, style string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" %s>`, num(c.width), num(c.height),
		attributes)
	b.WriteString(style)
	for _, l := range c.layers {
		if l.keys != "" {
			fmt.Fprintf(&b, `<g class="%s">`, l.keys)
		}
		for _, s := range l.elements {
			s.svg(&b)
			b.WriteByte('\n')
		}
		if l.keys != "" {
			b.WriteString("</g>\n")
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// num formats a coordinate with a precision of a tenth of a pixel.
func num(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

// path returns the data of a path element through points.
func path(points []point) string {
	var b strings.Builder
	for i, p := range points {
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(num(p.x) + " " + num(p.y))
	}
	return b.String()
}

func (s stroke) svg(b *strings.Builder) {
	fmt.Fprintf(b, `<path class="s-%s" d="%s" stroke-width="%s"`, s.color.name, path(s.points), num(s.width))
	if len(s.dash) > 0 {
		b.WriteString(` stroke-dasharray="`)
		for i, d := range s.dash {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(num(d))
		}
		b.WriteByte('"')
	}
	b.WriteString("/>")
}

func (f fill) svg(b *strings.Builder) {
	fmt.Fprintf(b, `<path class="f-%s" d="%sZ"`, f.color.name, path(f.points))
	if f.opacity < 1 {
		fmt.Fprintf(b, ` fill-opacity="%g"`, f.opacity)
	}
	b.WriteString("/>")
}

func (d disc) svg(b *strings.Builder) {
	class := "f-" + d.color.name
	if d.hollow {
		class = "s-" + d.color.name
	}
	fmt.Fprintf(b, `<circle class="%s" cx="%s" cy="%s" r="%s"`, class, num(d.at.x), num(d.at.y), num(d.radius))
	if d.hollow {
		b.WriteString(` style="fill:var(--paper)" stroke-width="1.6"`)
	}
	b.WriteString("/>")
}

func (l label) svg(b *strings.Builder) {
	class := "f-" + l.color.name + [...]string{"", " m", " e"}[l.align]
	if l.bold {
		class += " b"
	}
	if l.halo {
		class += " halo"
	}
	fmt.Fprintf(b, `<text class="%s" x="%s" y="%s">%s</text>`, class, num(l.at.x), num(l.at.y+0.35*textSize),
		html.EscapeString(l.text))
}

func (s spot) svg(b *strings.Builder) {
	fmt.Fprintf(b, `<rect class="spot" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`, num(s.x), num(s.y),
		num(s.w), num(s.h), html.EscapeString(s.text))
}

func (p point) plus(dx, dy float64) point { return point{p.x + dx, p.y + dy} }

func moved(points []point, dx, dy float64) []point {
	all := make([]point, len(points))
	for i, p := range points {
		all[i] = p.plus(dx, dy)
	}
	return all
}

func (s stroke) moved(dx, dy float64) element { s.points = moved(s.points, dx, dy); return s }
func (f fill) moved(dx, dy float64) element   { f.points = moved(f.points, dx, dy); return f }
func (d disc) moved(dx, dy float64) element   { d.at = d.at.plus(dx, dy); return d }
func (l label) moved(dx, dy float64) element  { l.at = l.at.plus(dx, dy); return l }
func (s spot) moved(dx, dy float64) element   { s.x, s.y = s.x+dx, s.y+dy; return s }

// within moves a label left or right so that it is inside the given width.
func (l label) within(width float64) label {
	a := l.area()
	l.at.x += max(0, -a.x) - max(0, a.x+a.w-width)
	return l
}

// shortened truncates the text to a width.
func (l label) shortened(width float64) label {
	const ellipsis = "…"
	short := []rune(l.text)
	for textWidth(l.text, l.bold) > width && len(short) > 0 {
		short = short[:len(short)-1]
		l.text = string(short) + ellipsis
	}
	return l
}

// area returns the bounding box of the label.
func (l label) area() box {
	w := textWidth(l.text, l.bold)
	return box{l.at.x - w*float64(l.align)/2, l.at.y - 0.5*textSize, w, textSize}
}

// regular and bold are the fonts for measuring text. Browsers use fontStack, whose fonts are not
// wider.
var (
	regular = sync.OnceValue(func() *sfnt.Font { return parseFont(goregular.TTF) })
	bold    = sync.OnceValue(func() *sfnt.Font { return parseFont(gobold.TTF) })
)

func parseFont(data []byte) *sfnt.Font {
	f, err := sfnt.Parse(data)
	if err != nil {
		panic(err) // the data is part of the module
	}
	return f
}

func fontOf(isBold bool) *sfnt.Font {
	if isBold {
		return bold()
	}
	return regular()
}

// textWidth returns the width of a line of text.
func textWidth(s string, isBold bool) float64 {
	const precision = 64 // fractions of a pixel, for the sum of the advances
	var buffer sfnt.Buffer
	width := fixed.Int26_6(0)
	for _, c := range s {
		glyph, err := fontOf(isBold).GlyphIndex(&buffer, c)
		if err != nil {
			continue
		}
		if advance, err := fontOf(isBold).GlyphAdvance(&buffer, glyph, fixed.I(textSize*precision),
			font.HintingNone); err == nil {
			width += advance
		}
	}
	return float64(width) / 64 / precision
}
