package report

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// charts are the parts as gonum/plot stacks them; the first row is at the top.
func (b *Bars) charts() []*plotter.BarChart {
	all := make([]*plotter.BarChart, len(b.Parts))
	for i := range b.Parts {
		values := make(plotter.Values, len(b.Rows))
		for j := range b.Rows {
			values[len(b.Rows)-1-j] = b.Share[j][i]
		}
		all[i] = &plotter.BarChart{
			Values: values, Width: cellHeight - 7, Horizontal: true,
			Color: seriesShades[i%len(seriesShades)], LineStyle: draw.LineStyle{Color: paper},
		}
		if i > 0 {
			all[i].StackOn(all[i-1])
		}
	}
	return all
}

func (b *Bars) legend() legend {
	var all legend
	for i, c := range b.charts() {
		all = append(all, entry{b.Parts[i], []plot.Thumbnailer{c}})
	}
	return all
}

// stacked is whether the rows' names are so wide that they stand above the bars.
func (b *Bars) stacked(width vg.Length) bool {
	return widest(b.Rows)+widest(b.Ends) > width*0.6
}

func (b *Bars) height(width vg.Length) vg.Length {
	row := vg.Length(cellHeight)
	if b.stacked(width) {
		row += lineHeight
	}
	return b.legend().height(width) + vg.Length(len(b.Rows))*row + 2*lineHeight + 10
}

func (b *Bars) draw(c draw.Canvas) []spot {
	c = b.legend().draw(c)
	p := newPlot()
	p.X.Label.Text = b.Label
	ends := style(faint, draw.XLeft, draw.YCenter)
	p.HideY()
	for _, chart := range b.charts() {
		p.Add(chart)
	}
	p.X.Min, p.X.Max = 0, 1
	p.Y.Min, p.Y.Max = -0.5, float64(len(b.Rows))-0.5
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.25, Label: "25 %"}, {Value: 0.5, Label: "50 %"}, {Value: 0.75, Label: "75 %"}, {Value: 1, Label: "100 %"}}
	stacked := b.stacked(c.Size().X)
	names := vg.Length(0)
	if !stacked {
		names = widest(b.Rows) + nameGap
	}
	left := draw.Crop(c, names, -widest(b.Ends)-10, 0, 0)
	p.Draw(left)

	data := p.DataCanvas(left)
	x, y := p.Transforms(&data)
	middle := func(row int) vg.Length { return y(float64(len(b.Rows) - 1 - row)) }
	if stacked {
		for i, name := range b.Rows {
			c.FillText(style(ink, draw.XLeft, draw.YBottom), vg.Point{X: data.Min.X, Y: middle(i) + cellHeight/2 - 2}, name)
		}
	} else {
		nameRows(data, b.Rows, middle)
	}
	var spots []spot
	for i := range b.Rows {
		at := middle(i)
		c.FillText(ends, vg.Point{X: data.Max.X + 8, Y: at}, b.Ends[i])
		from := 0.0
		for j, share := range b.Share[i] {
			spots = append(spots, spot{vg.Rectangle{
				Min: vg.Point{X: x(from), Y: at - cellHeight/2},
				Max: vg.Point{X: x(from + share), Y: at + cellHeight/2},
			}, b.Text[i][j]})
			from += share
		}
	}
	return spots
}
