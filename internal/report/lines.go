package report

import (
	"cmp"
	"math"
	"slices"
)

// Lines holds series of points on two axes.
type Lines struct {
	X, Y   Axis
	Legend []Key
	Series []Series
	Marks  []Mark
}

// Series holds the points of one subject in the order of their X.
type Series struct {
	Name       string // text next to the line
	Keys       []int  // legend entries that show and hide it
	Color      *paint
	Label      *paint // the color of the name
	Marker     int
	Dash       []float64
	LineOnly   bool // a line without points, for a limit
	PointsOnly bool // points without a line
	Points     []Point
}

// Point is a measurement. Low and High bound its noise, or equal Y if there is none.
type Point struct {
	X, Y, Low, High float64
	Text            string // tooltip
	Skipped         bool   // the line skips it
}

// Mark is a notable position on the X axis.
type Mark struct {
	X    float64
	Text string
}

func (l *Lines) keys() []Key { return l.Legend }

// Sizes of the parts of a drawing.
const (
	tickGap   = 8.0  // between an axis and its labels
	labelGap  = 10.0 // between the end of a line and its name
	aboveData = 10.0 // between the texts at the top and the data
	bandShade = 0.16 // opacity of noise
	thin      = 1.0
)

func (l *Lines) draw(width float64) *canvas {
	c := &canvas{width: width}
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y, p.Low, p.High)
		}
	}
	for _, m := range l.Marks {
		xs = append(xs, m.X)
	}
	x, y := l.X.fit(xs), l.Y.fit(ys)
	top := lineHeight*float64(1+len(l.Marks)) + aboveData
	height := min(max(width*0.46, 240), 340)
	y.from, y.to = top+height, top
	c.height = y.from + 2*lineHeight + tickGap

	rows := y.ticks(int(height / 44))
	for _, v := range rows {
		x.from = max(x.from, textWidth(l.Y.Text(v), false)+tickGap)
	}
	names := l.names()
	room := namesRoom(names)
	if room > width*0.27 {
		names, room = slices.DeleteFunc(names, (*Series).namedAtEnd), 0
	}
	x.to = width - max(room, textWidth(l.X.Text(x.high), false)/2)
	l.drawAxes(c, x, y, rows)
	l.drawMarks(c, x, y)
	for _, s := range l.Series {
		s.drawBand(c, x, y)
	}
	for _, s := range l.Series {
		s.draw(c, x, y)
	}
	l.drawNames(c, x, y, names)
	return c
}

func (l *Lines) drawAxes(c *canvas, x, y scale, rows []float64) {
	c.on()
	c.add(label{at: point{0, lineHeight / 2}, text: l.Y.Label, color: faint})
	for _, v := range rows {
		c.hline(x.from, x.to, y.at(v), rule, thin)
		c.add(label{at: point{x.from - tickGap, y.at(v)}, text: l.Y.Text(v), color: faint, align: alignEnd})
	}
	ticks := x.ticks(x.maxTicks())
	labels := make([]label, len(ticks))
	for i, v := range ticks {
		c.vline(x.at(v), y.from, y.from+4, rule, thin)
		labels[i] = label{at: point{x.at(v), y.from + tickGap + lineHeight/2}, text: l.X.Text(v), color: faint,
			align: alignMiddle}
	}
	c.addApart(labels)
	c.hline(x.from, x.to, y.from, rule, thin)
	c.add(label{at: point{(x.from + x.to) / 2, c.height - lineHeight/2}, text: l.X.Label, color: faint,
		align: alignMiddle}.within(c.width))
}

// drawMarks draws a line for each mark. Each text has a row of its own above the data.
func (l *Lines) drawMarks(c *canvas, x, y scale) {
	for i, m := range l.Marks {
		at, row := x.at(m.X), lineHeight*(float64(i)+1.5)
		c.vline(at, row-lineHeight/2+3, y.from, ink, thin, 2, 3)
		t := label{at: point{at + 5, row}, text: m.Text, color: ink}
		if a := t.area(); a.x+a.w > c.width {
			t.at.x, t.align = at-5, alignEnd
		}
		c.addOpaque(t.within(c.width))
	}
}

// drawBand shades the noise of a series.
func (s *Series) drawBand(c *canvas, x, y scale) {
	var upper, lower []point
	for _, p := range s.Points {
		if p.Skipped {
			continue
		}
		upper = append(upper, point{x.at(p.X), y.at(p.High)})
		lower = append(lower, point{x.at(p.X), y.at(p.Low)})
	}
	if s.LineOnly || s.PointsOnly || len(upper) < 2 {
		return
	}
	slices.Reverse(lower)
	c.on(s.Keys...)
	c.add(fill{append(upper, lower...), s.Color, bandShade})
}

func (s *Series) draw(c *canvas, x, y scale) {
	c.on(s.Keys...)
	if line := s.line(x, y); !s.PointsOnly && len(line) > 1 {
		width := 2.0
		if s.LineOnly {
			width = 1.2
		}
		c.add(stroke{line, s.Color, width, s.Dash})
	}
	const reach = 6
	for _, p := range s.Points {
		at := point{x.at(p.X), y.at(p.Y)}
		if !s.LineOnly {
			c.marker(s.Marker, at, s.Color, false)
		}
		c.add(spot{box{at.x - reach, at.y - reach, 2 * reach, 2 * reach}, p.Text})
	}
}

// line returns the points through which the line passes.
func (s *Series) line(x, y scale) []point {
	var all []point
	for _, p := range s.Points {
		if !p.Skipped {
			all = append(all, point{x.at(p.X), y.at(p.Y)})
		}
	}
	return all
}

// names returns the labeled series, one for each name.
func (l *Lines) names() []*Series {
	var all []*Series
	seen := map[string]bool{}
	for i := range slices.Backward(l.Series) { // the last is drawn on top
		s := &l.Series[i]
		if len(s.Points) > 0 && s.Name != "" && !seen[s.Name] {
			seen[s.Name] = true
			all = append(all, s)
		}
	}
	return all
}

// namedAtEnd reports whether the name may be at the right of the drawing, next to the line's end.
func (s *Series) namedAtEnd() bool { return !s.LineOnly && !s.PointsOnly }

// namesRoom returns the width for the names at the right.
func namesRoom(names []*Series) float64 {
	room := 0.0
	for _, s := range names {
		if s.namedAtEnd() {
			room = max(room, textWidth(s.Name, false)+labelGap)
		}
	}
	return room
}

// drawNames writes names next to the right ends of their lines, moved apart so that they do not
// overlap. Names of other series are written near their last points if there is free space.
func (l *Lines) drawNames(c *canvas, x, y scale, names []*Series) {
	var taken []box
	type name struct {
		*Series
		end point
		y   float64
	}
	var right []name
	var inside []*Series
	for _, s := range names {
		last := s.Points[len(s.Points)-1]
		if end := (point{x.at(last.X), y.at(last.Y)}); s.namedAtEnd() && x.to-end.x < 0.1*(x.to-x.from) {
			right = append(right, name{s, end, end.y})
		} else {
			inside = append(inside, s)
		}
	}
	slices.SortStableFunc(right, func(a, b name) int { return cmp.Compare(a.end.y, b.end.y) })
	var wanted []float64
	for _, n := range right {
		wanted = append(wanted, n.end.y)
	}
	for i, at := range spread(wanted, textSize+2, y.to, y.from) {
		n := right[i]
		c.on(n.Keys...)
		if math.Abs(at-n.end.y) > 4 || x.to-n.end.x > 4 {
			c.add(stroke{[]point{{n.end.x + 5, n.end.y}, {x.to + labelGap - 3, at}}, n.Color, 0.7, nil})
		}
		t := label{at: point{x.to + labelGap, at}, text: n.Name, color: n.Label}
		taken = append(taken, t.area())
		c.add(t)
	}
	for _, s := range inside {
		last := s.Points[len(s.Points)-1]
		at := point{x.at(last.X), y.at(last.Y)}
		for _, t := range []label{
			{at: point{at.x + labelGap, at.y}}, {at: point{at.x, at.y - 13}, align: alignEnd}, {at: point{at.x, at.y - 13}},
			{at: point{at.x, at.y + 14}, align: alignEnd}, {at: point{at.x + labelGap, at.y + 12}},
			{at: point{at.x - labelGap, at.y}, align: alignEnd},
			{at: point{at.x, at.y - 13}, align: alignMiddle}, {at: point{at.x, at.y + 14}, align: alignMiddle},
			{at: point{at.x, at.y - 28}, align: alignMiddle}, {at: point{at.x, at.y - 28}, align: alignEnd},
		} {
			t.text, t.color, t.halo = s.Name, s.Label, true
			if a := t.area(); l.free(a, taken, x, y) {
				taken = append(taken, a)
				c.on(s.Keys...)
				c.add(t)
				break
			}
		}
	}
}

// free reports whether a name fits at a: inside the drawing, below the texts at the top, and
// without covering another name, a point or a line.
func (l *Lines) free(a box, taken []box, x, y scale) bool {
	if a.x < x.from || a.x+a.w > x.to || a.y < y.to-aboveData || a.y+a.h > y.from {
		return false
	}
	if slices.ContainsFunc(taken, a.overlaps) {
		return false
	}
	for _, m := range l.Marks {
		if at := x.at(m.X); a.x < at && at < a.x+a.w {
			return false
		}
	}
	for i := range l.Series {
		s := &l.Series[i]
		for _, p := range s.Points {
			if at := (point{x.at(p.X), y.at(p.Y)}); !s.LineOnly &&
				a.overlaps(box{at.x - markerRadius, at.y - markerRadius, 2 * markerRadius, 2 * markerRadius}) {
				return false
			}
		}
		line := s.line(x, y)
		for i := 1; i < len(line) && !s.PointsOnly; i++ {
			if a.crosses(line[i-1], line[i]) {
				return false
			}
		}
	}
	return true
}

// crosses reports whether a line from p to q touches the box.
func (b box) crosses(p, q point) bool {
	const steps = 64
	for i := range steps + 1 {
		part := float64(i) / steps
		x, y := p.x+(q.x-p.x)*part, p.y+(q.y-p.y)*part
		if x >= b.x && x <= b.x+b.w && y >= b.y && y <= b.y+b.h {
			return true
		}
	}
	return false
}

// spread returns positions that are as near as possible to the sorted wanted positions, at least
// gap apart and, if they fit, between low and high.
func spread(wanted []float64, gap, low, high float64) []float64 {
	all := slices.Clone(wanted)
	for range 200 {
		moved := false
		for i := 1; i < len(all); i++ {
			if need := gap - (all[i] - all[i-1]); need > 0.01 {
				all[i-1], all[i], moved = all[i-1]-need/2, all[i]+need/2, true
			}
		}
		if n := len(all); n > 0 {
			all[0] = max(all[0], low)
			all[n-1] = max(min(all[n-1], high), all[0])
		}
		if !moved {
			break
		}
	}
	return all
}
