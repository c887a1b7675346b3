package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}

// plotters are a series' line and points, as far as it has them.
func (s *Series) plotters() (line *plotter.Line, points *plotter.Scatter) {
	var xys, along plotter.XYs
	for _, p := range s.Points {
		xys = append(xys, plotter.XY{X: p.X, Y: p.Y})
		if !p.Aside {
			along = append(along, xys[len(xys)-1])
		}
	}
	shade := seriesShades[s.Colour%len(seriesShades)]
	if s.Bare {
		shade = faint
	}
	if !s.Loose {
		line = &plotter.Line{XYs: along, LineStyle: draw.LineStyle{Color: shade, Width: 1.8}}
		if s.Dashed {
			line.Dashes = []vg.Length{5, 3}
		}
		if s.Bare {
			line.Width = 1
		}
	}
	if !s.Bare {
		points = &plotter.Scatter{XYs: xys, GlyphStyle: draw.GlyphStyle{Color: shade, Radius: 3, Shape: glyphs[s.Glyph%len(glyphs)]}}
		if s.Hollow {
			points.Radius, points.Shape = 5, draw.RingGlyph{}
		}
	}
	return line, points
}

func (l *Lines) legend() legend {
	var all legend
	for i := range l.Series {
		line, points := l.Series[i].plotters()
		e := entry{name: l.Series[i].Name}
		if line != nil {
			e.thumb = append(e.thumb, line)
		}
		if points != nil {
			e.thumb = append(e.thumb, points)
		}
		all = append(all, e)
	}
	return all
}

// height keeps the part with the data at a pleasant height, whatever the legend takes.
func (l *Lines) height(width vg.Length) vg.Length {
	return l.legend().height(width) + lineHeight + max(230, min(width*0.46, 340))
}

func (l *Lines) draw(c draw.Canvas) []spot {
	c = l.legend().draw(c)
	c.FillText(style(faint, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y}, l.Y.Label)
	c = draw.Crop(c, 0, 0, 0, -lineHeight-2)

	p := newPlot()
	var xs, ys []float64
	for _, s := range l.Series {
		for _, point := range s.Points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	for _, m := range l.Marks {
		xs = append(xs, m.X)
	}
	l.X.fit(&p.X, xs, int(c.Size().X/58))
	l.Y.fit(&p.Y, ys, 7)
	p.X.Label.Text = l.X.Label
	if !l.Y.Log {
		p.X.Width = 0 // the grid's line at zero is the axis
	}
	grid := plotter.NewGrid()
	grid.Horizontal = draw.LineStyle{Color: rule, Width: 0.7}
	grid.Vertical.Color = nil
	p.Add(grid)
	for i := range l.Series {
		line, points := l.Series[i].plotters()
		if line != nil {
			p.Add(line)
		}
		if points != nil {
			p.Add(points)
		}
	}
	for i, m := range l.Marks {
		p.Add(m.plotters(p, i)...)
	}
	p.Draw(c)
	return l.spots(p, c)
}

// plotters are a line from bottom to top, and the words near its top, below those of
// the marks before.
func (m Mark) plotters(p *plot.Plot, before int) []plot.Plotter {
	words := style(mark, draw.XLeft, draw.YTop)
	if p.X.Norm(m.X) > 0.7 {
		words.XAlign = draw.XRight
	}
	offset := vg.Point{X: 5 * vg.Length(1+2*words.XAlign), Y: -lineHeight * vg.Length(before)}
	return []plot.Plotter{
		&plotter.Line{
			XYs:       plotter.XYs{{X: m.X, Y: p.Y.Min}, {X: m.X, Y: p.Y.Max}},
			LineStyle: draw.LineStyle{Color: mark, Width: 1, Dashes: []vg.Length{2, 2}},
		},
		&plotter.Labels{
			XYs: plotter.XYs{{X: m.X, Y: p.Y.Max}}, Labels: []string{m.Text},
			TextStyle: []text.Style{words}, Offset: offset,
		},
	}
}

func (l *Lines) spots(p *plot.Plot, c draw.Canvas) []spot {
	data := p.DataCanvas(c)
	x, y := p.Transforms(&data)
	var spots []spot
	for _, s := range l.Series {
		for _, point := range s.Points {
			spots = append(spots, around(vg.Point{X: x(point.X), Y: y(point.Y)}, point.Text))
		}
	}
	return spots
}

// fit gives a plot's axis its range, its scale and at most so many ticks.
func (a *Axis) fit(axis *plot.Axis, values []float64, ticks int) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	if a.Log {
		axis.Scale = plot.LogScale{}
		axis.Min, axis.Max = low/1.2, high*1.2
		base := 10.0
		if a.Binary {
			base = 2
		}
		axis.Tick.Marker = plot.ConstantTicks(a.powers(axis.Min, axis.Max, base, ticks))
		return
	}
	axis.Min, axis.Max = 0, max(high, a.To)
	axis.Tick.Marker = plot.TickerFunc(func(from, to float64) []plot.Tick {
		var all []plot.Tick
		for _, t := range (plot.DefaultTicks{}).Ticks(from, to) {
			if t.Label != "" {
				all = append(all, plot.Tick{Value: t.Value, Label: a.Text(t.Value)})
			}
		}
		return all
	})
}

// powers are ticks at powers of base, or of a power of it so that they are not too
// many. A range that has too few gets those between the powers of ten.
func (a *Axis) powers(low, high, base float64, most int) []plot.Tick {
	first, last := math.Ceil(math.Log(low)/math.Log(base)), math.Floor(math.Log(high)/math.Log(base))
	step := max(1, math.Ceil((last-first+1)/float64(max(most, 1))))
	var all []plot.Tick
	add := func(v float64) {
		if v >= low && v <= high {
			all = append(all, plot.Tick{Value: v, Label: a.Text(v)})
		}
	}
	if base == 10 && last-first < 2 {
		for e := first - 1; e <= last; e++ {
			for _, part := range []float64{1, 2, 5} {
				add(part * math.Pow10(int(e)))
			}
		}
		return all
	}
	for e := first; e <= last; e += step {
		add(math.Pow(base, e))
	}
	return all
}
