package report

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Widths of the layouts of a drawing, for screens and for phones.
const (
	wide   = 720.0
	narrow = 320.0
)

// figureSVG returns the drawing in both layouts. The style sheet shows one of them.
func (c *Chart) figureSVG() string {
	text := html.EscapeString(c.Title + ". " + c.Answer)
	var b strings.Builder
	for _, size := range []struct {
		class string
		width float64
	}{{"wide", wide}, {"narrow", narrow}} {
		b.WriteString(c.Drawing.draw(size.width).svg(fmt.Sprintf(`class="%s" role="img" aria-label="%s"`, size.class, text),
			""))
	}
	return b.String()
}

// sampleSVG returns the sample of a legend entry.
func (k Key) sampleSVG() string {
	c := &canvas{width: sampleWidth, height: lineHeight}
	k.draw(c, 0, lineHeight/2)
	return c.svg(fmt.Sprintf(`width="%g" height="%g" aria-hidden="true"`, sampleWidth, lineHeight), "")
}

const sampleWidth = 28.0

// draw draws the sample. The middle of its left side is at x, y.
func (k Key) draw(c *canvas, x, y float64) {
	if k.Mark == markBar {
		c.rect(box{x + 6, y - 6, 16, 12}, k.Color, 1)
		return
	}
	if k.Mark != markPoint {
		c.hline(x+1, x+sampleWidth-1, y, k.Color, 2, k.Dash...)
	}
	if k.Mark != markLineOnly {
		c.marker(k.Marker, point{x + sampleWidth/2, y}, k.Color, false)
	}
}

// picture returns the drawing with its title and legend, for use outside the page.
func (c *Chart) picture() *canvas {
	const margin, titleHeight = 20.0, 30.0
	drawing := c.Drawing.draw(wide)
	p := &canvas{width: wide + 2*margin}
	title := label{at: point{margin, margin + lineHeight/2}, text: c.Title, color: ink, bold: true}
	p.add(title.shortened(wide))
	x, y := margin, margin+titleHeight+lineHeight/2
	keys := c.Drawing.keys()
	for i, k := range keys {
		name := label{text: k.Name, color: ink}.shortened(wide - sampleWidth - 6)
		w := sampleWidth + 6 + textWidth(name.text, false)
		if x+w > p.width-margin && i > 0 {
			x, y = margin, y+lineHeight
		}
		k.draw(p, x, y)
		p.add(name.moved(x+sampleWidth+6, y))
		x += w + 18
	}
	top := y + lineHeight
	if len(keys) == 0 {
		top = margin + titleHeight
	}
	p.height = top + drawing.height + margin
	for _, l := range drawing.layers {
		p.on()
		for _, s := range l.elements {
			p.add(s.moved(margin, top))
		}
	}
	return p
}

// WriteSVG writes the drawing as an SVG file that follows the reader's light or dark mode.
func (c *Chart) WriteSVG(w io.Writer) error {
	p := c.picture()
	style := "<style>" + Theme() + classes() + "svg{background:var(--paper)}</style>\n"
	size := fmt.Sprintf(`width="%s" height="%s" role="img" aria-label="%s"`, num(p.width), num(p.height),
		html.EscapeString(c.Title+". "+c.Answer))
	_, err := io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+p.svg(size, style))
	return err
}
