package report

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// cellHeight is that of a row of cells or of bars.
const cellHeight = 22

// columnWidth is what there is for a column; a few columns do not take all.
func (h *Heat) columnWidth(width vg.Length) vg.Length {
	return min((width-widest(h.Rows)-nameGap)/vg.Length(len(h.Columns)), max(widest(h.Columns)+16, 110))
}

// slanted is whether the columns' names are wider than the columns.
func (h *Heat) slanted(width vg.Length) bool { return widest(h.Columns)+6 > h.columnWidth(width) }

// head is the height of the columns' names, and tail what the last one needs to the
// right of its column.
func (h *Heat) head(width vg.Length) (head, tail vg.Length) {
	if !h.slanted(width) {
		return lineHeight + 4, 0
	}
	return widest(h.Columns)*math.Sqrt2/2 + lineHeight, widest(h.Columns[len(h.Columns)-1:]) * math.Sqrt2 / 2
}

func (h *Heat) height(width vg.Length) vg.Length {
	head, _ := h.head(width)
	return head + vg.Length(len(h.Rows))*cellHeight + lineHeight + 8
}

// The three methods that a [plotter.HeatMap] wants; row 0 of a plot is at the bottom.
func (h *Heat) Dims() (c, r int) { return len(h.Columns), len(h.Rows) }
func (h *Heat) X(c int) float64  { return float64(c) }
func (h *Heat) Y(r int) float64  { return float64(r) }
func (h *Heat) Z(c, r int) float64 {
	cell := h.at(c, r)
	if cell.Ratio == 0 {
		return math.NaN()
	}
	return float64(heatIndex(cell.Ratio))
}

func (h *Heat) at(c, r int) Cell { return h.Cells[len(h.Rows)-1-r][c] }

// heatColors are heatShades as a palette.
type heatColors struct{}

func (heatColors) Colors() []color.Color {
	var all []color.Color
	for _, s := range heatShades {
		all = append(all, s)
	}
	return all
}

func (h *Heat) draw(c draw.Canvas) []spot {
	c = h.scale(c)
	width := c.Size().X
	slanted := h.slanted(width)
	head, tail := h.head(width)
	left := widest(h.Rows) + nameGap
	cells := min(h.columnWidth(width)*vg.Length(len(h.Columns)), width-left-tail)
	p := newPlot()
	p.HideX()
	p.HideY()
	p.X.Min, p.X.Max = -0.5, float64(len(h.Columns))-0.5
	p.Y.Min, p.Y.Max = -0.5, float64(len(h.Rows))-0.5

	p.Add(&plotter.HeatMap{GridXYZ: h, Palette: heatColors{}, Min: 0, Max: float64(len(heatShades) - 1)})
	gap := draw.LineStyle{Color: paper, Width: 2}
	for i := 0; i <= len(h.Columns); i++ {
		x := float64(i) - 0.5
		p.Add(&plotter.Line{XYs: plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}}, LineStyle: gap})
	}
	for i := 0; i <= len(h.Rows); i++ {
		y := float64(i) - 0.5
		p.Add(&plotter.Line{XYs: plotter.XYs{{X: p.X.Min, Y: y}, {X: p.X.Max, Y: y}}, LineStyle: gap})
	}
	labels := &plotter.Labels{}
	for i := range h.Columns {
		for j := range h.Rows {
			labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: float64(j)})
			labels.Labels = append(labels.Labels, h.at(i, j).Label)
			labels.TextStyle = append(labels.TextStyle, style(ink, draw.XCenter, draw.YCenter))
		}
	}
	p.Add(labels)
	below := draw.Crop(c, left, -(width - left - cells), 0, -head)
	p.Draw(below)

	data := p.DataCanvas(below)
	x, y := p.Transforms(&data)
	nameRows(data, h.Rows, func(row int) vg.Length { return y(float64(len(h.Rows) - 1 - row)) })
	var spots []spot
	for i, name := range h.Columns {
		s := style(ink, draw.XCenter, draw.YBottom)
		if slanted {
			s.XAlign, s.Rotation = draw.XLeft, math.Pi/4
		}
		c.FillText(s, vg.Point{X: x(float64(i)), Y: data.Max.Y + 5}, name)
		for j := range h.Rows {
			if cell := h.at(i, j); cell.Ratio != 0 {
				spots = append(spots, spot{vg.Rectangle{
					Min: vg.Point{X: x(float64(i) - 0.5), Y: y(float64(j) - 0.5)},
					Max: vg.Point{X: x(float64(i) + 0.5), Y: y(float64(j) + 0.5)},
				}, cell.Text})
			}
		}
	}
	return spots
}

// scale explains the colours at the bottom of the canvas, and returns what is left.
func (h *Heat) scale(c draw.Canvas) draw.Canvas {
	const box = 14
	y := c.Min.Y + 4
	low, high := style(faint, draw.XLeft, draw.YBottom), style(faint, draw.XLeft, draw.YBottom)
	c.FillText(low, vg.Point{X: c.Min.X, Y: y}, h.Low)
	x := c.Min.X + low.Width(h.Low) + 8
	for _, s := range heatShades {
		c.FillPolygon(s, []vg.Point{{X: x, Y: y}, {X: x + box, Y: y}, {X: x + box, Y: y + box*0.7}, {X: x, Y: y + box*0.7}})
		x += box
	}
	c.FillText(high, vg.Point{X: x + 8, Y: y}, h.High)
	return draw.Crop(c, 0, 0, lineHeight+8, 0)
}
