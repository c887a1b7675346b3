package report

import (
	"math"
	"slices"
)

// Rows is a chart with a row for each kernel, shape or size and values along the X axis. The values
// are bars from zero, side by side or stacked, or points with their noise.
type Rows struct {
	X       Axis
	Legend  []Key
	Rows    []Row
	Refs    []Ref
	Stacked bool // bars are stacked
	Dots    bool // points instead of bars
}

// Row holds the values of one name.
type Row struct {
	Name   string
	Values []Value
	End    string // text at the right
}

// Value is a bar or a point. Low and High bound its noise, or equal V if there is none.
type Value struct {
	Key          int // the entry of the legend
	V, Low, High float64
	Hollow       bool   // a point that is uncertain
	Label        string // V at the right of the row, marked if it is uncertain
	Text         string // tooltip
}

// Ref is a line for comparison. It is drawn without a label if its name is empty.
type Ref struct {
	X    float64
	Name string
	Keys []int
}

func (r *Rows) keys() []Key { return r.Legend }

const (
	barHeight = 18.0
	dotHeight = 20.0
	rowGap    = 8.0
)

// layout holds the geometry of a drawing of Rows.
type layout struct {
	x      scale
	above  bool // names are above the rows instead of at the left
	top    float64
	row    float64 // the height of a row
	bars   float64 // the height of its values
	bottom float64
}

func (r *Rows) layout(width float64) layout {
	var names, ends float64
	values := []float64{}
	for _, row := range r.Rows {
		names, ends = max(names, textWidth(row.Name, false)), max(ends, textWidth(row.End, false))
		sum := 0.0
		for _, v := range row.Values {
			values = append(values, v.V, v.Low, v.High)
			sum += v.V
		}
		if r.Stacked {
			values = append(values, sum)
		}
	}
	for _, ref := range r.Refs {
		values = append(values, ref.X)
	}
	l := layout{x: r.X.fit(values)}
	if ends > 0 {
		ends += labelGap
	}
	l.x.to = width - max(ends, 14)
	l.x.from = tickGap
	if l.above = names+tickGap > width*0.48; !l.above {
		l.x.from = names + labelGap
	}
	for _, ref := range r.Refs {
		if ref.Name != "" {
			l.top += lineHeight
		}
	}
	l.bars = barHeight
	switch {
	case r.Dots:
		l.bars = dotHeight
	case !r.Stacked:
		for _, row := range r.Rows {
			l.bars = max(l.bars, barHeight*float64(len(row.Values)))
		}
	}
	l.row = l.bars
	if l.above {
		l.row += lineHeight
	}
	if !r.Dots {
		l.row += rowGap
	}
	l.bottom = l.top + l.row*float64(len(r.Rows)) + 4
	return l
}

func (r *Rows) draw(width float64) *canvas {
	l := r.layout(width)
	c := &canvas{width: width, height: l.bottom + 2*lineHeight + tickGap}
	ticks := l.x.ticks(l.x.maxTicks())
	labels := make([]label, len(ticks))
	for i, v := range ticks {
		at := l.x.at(v)
		c.vline(at, l.top, l.bottom, rule, thin)
		labels[i] = label{at: point{at, l.bottom + tickGap + lineHeight/2}, text: r.X.Text(v), color: faint,
			align: alignMiddle}.within(width)
	}
	c.addApart(labels)
	c.hline(l.x.from, l.x.to, l.bottom, rule, thin)
	axis := label{at: point{(l.x.from + l.x.to) / 2, c.height - lineHeight/2}, text: r.X.Label, color: faint,
		align: alignMiddle}
	c.add(axis.within(width))
	if r.Dots {
		r.drawRefs(c, l)
	}
	for i, row := range r.Rows {
		y := l.top + l.row*float64(i) + 2
		name := label{at: point{l.x.from - labelGap, y + l.row/2}, text: row.Name, color: ink, align: alignEnd}
		if l.above {
			name = label{at: point{0, y + lineHeight/2}, text: row.Name, color: ink}.shortened(width)
			y += lineHeight
		}
		c.on()
		if l.above {
			c.addOpaque(name)
		} else {
			c.add(name)
		}
		if !l.above {
			y += (l.row - l.bars) / 2
		}
		r.drawRow(c, l, row, y)
		c.on()
		c.add(label{at: point{l.x.to + labelGap, y + l.bars/2}, text: row.End, color: faint})
	}
	if !r.Dots {
		r.drawRefs(c, l)
	}
	return c
}

// drawRow draws the values of a row whose top is y.
func (r *Rows) drawRow(c *canvas, l layout, row Row, y float64) {
	from := l.x.from
	for i, v := range row.Values {
		c.on(v.Key)
		color := r.Legend[v.Key].Color
		at, middle := l.x.at(v.V), y+l.bars/2
		switch {
		case r.Dots:
			low, high := l.x.at(v.Low), l.x.at(v.High)
			c.add(stroke{[]point{{low, middle}, {high, middle}}, color, 1.6, nil})
			c.marker(r.Legend[v.Key].Marker, point{at, middle}, color, v.Hollow)
			c.add(spot{box{min(low, at-6), middle - 8, max(high-low, 12), 16}, v.Text})
		case r.Stacked:
			at = from + at - l.x.from
			part := box{from, y, max(at-from, 0), barHeight}
			c.rect(box{part.x, part.y, max(part.w-1, 0), part.h}, color, 1)
			c.add(spot{part, v.Text})
			from = at
		default:
			bar := box{from, y + barHeight*float64(i), at - from, barHeight - 2}
			c.rect(bar, color, 1)
			r.drawNoise(c, l, v, bar)
			c.add(spot{bar, v.Text})
		}
	}
}

// drawNoise draws an error bar at the end of a bar.
func (r *Rows) drawNoise(c *canvas, l layout, v Value, bar box) {
	low, high, middle := l.x.at(v.Low), l.x.at(v.High), bar.y+bar.h/2
	if high-low < 2 {
		return
	}
	c.hline(low, high, middle, ink, 1.2)
	c.vline(low, middle-3, middle+3, ink, 1.2)
	c.vline(high, middle-3, middle+3, ink, 1.2)
}

// drawRefs draws the lines for comparison. Each name has a row of its own.
func (r *Rows) drawRefs(c *canvas, l layout) {
	row := 0.0
	refs := slices.Clone(r.Refs)
	slices.SortStableFunc(refs, func(a, b Ref) int { return int(math.Copysign(1, b.X-a.X)) })
	for _, ref := range refs {
		c.on(ref.Keys...)
		at := l.x.at(ref.X)
		if ref.Name == "" {
			c.vline(at, l.top, l.bottom, peer, 1.2)
			continue
		}
		c.vline(at, row*lineHeight+4, l.bottom, peer, 1.6, refDash...)
		t := label{at: point{at - 6, (row + 0.5) * lineHeight}, text: ref.Name, color: ink, align: alignEnd}
		c.add(t.shortened(c.width).within(c.width))
		row++
	}
}
