package report

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pngScale is the number of PNG pixels per pixel of the drawing.
const pngScale = 2

// raster draws elements as pixels in the light colors.
type raster struct {
	image *image.RGBA
	faces [2]font.Face // regular and bold
}

// writePNG draws the canvas on a background in the color of paper.
func (c *canvas) writePNG(w io.Writer) error {
	r := &raster{image: image.NewRGBA(image.Rect(0, 0, int(c.width*pngScale), int(c.height*pngScale)))}
	for i := range r.faces {
		face, err := opentype.NewFace(fontOf(i == 1), &opentype.FaceOptions{Size: textSize * pngScale, DPI: 72})
		if err != nil {
			return err
		}
		r.faces[i] = face
	}
	draw.Draw(r.image, r.image.Bounds(), image.NewUniform(paper.rgba(1)), image.Point{}, draw.Src)
	for _, l := range c.layers {
		for _, s := range l.elements {
			s.draw(r)
		}
	}
	return png.Encode(w, r.image)
}

// polygons fills closed polygons with the same orientation.
func (r *raster) polygons(c color.Color, all ...[]point) {
	area := image.Rectangle{}
	for _, points := range all {
		for _, p := range points {
			x, y := int(math.Floor(p.x*pngScale)), int(math.Floor(p.y*pngScale))
			area = area.Union(image.Rect(x, y, x+1, y+1))
		}
	}
	area = area.Intersect(r.image.Bounds())
	v := vector.NewRasterizer(area.Dx(), area.Dy())
	for _, points := range all {
		for i, p := range points {
			x, y := float32(p.x*pngScale-float64(area.Min.X)), float32(p.y*pngScale-float64(area.Min.Y))
			if i == 0 {
				v.MoveTo(x, y)
			} else {
				v.LineTo(x, y)
			}
		}
		v.ClosePath()
	}
	v.Draw(r.image, area, image.NewUniform(c), image.Point{})
}

func (f fill) draw(r *raster) { r.polygons(f.color.rgba(f.opacity), f.points) }

// circle returns a polygon that approximates a circle.
func circle(at point, radius float64) []point {
	points := make([]point, 24)
	for i := range points {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(len(points)))
		points[i] = point{at.x + radius*cos, at.y + radius*sin}
	}
	return points
}

func (d disc) draw(r *raster) {
	if !d.hollow {
		r.polygons(d.color.rgba(1), circle(d.at, d.radius))
		return
	}
	r.polygons(d.color.rgba(1), circle(d.at, d.radius+0.8))
	r.polygons(paper.rgba(1), circle(d.at, d.radius-0.8))
}

// draw fills a rectangle along each segment and a disc at each joint.
func (s stroke) draw(r *raster) {
	var all [][]point
	for _, line := range dashes(s.points, s.dash) {
		for i, p := range line {
			all = append(all, circle(p, s.width/2))
			if i == 0 {
				continue
			}
			q := line[i-1]
			length := math.Hypot(p.x-q.x, p.y-q.y)
			if length == 0 {
				continue
			}
			dx, dy := (p.y-q.y)/length*s.width/2, (q.x-p.x)/length*s.width/2
			all = append(all, []point{{q.x - dx, q.y - dy}, {q.x + dx, q.y + dy}, {p.x + dx, p.y + dy}, {p.x - dx, p.y - dy}})
		}
	}
	r.polygons(s.color.rgba(1), all...)
}

// dashes splits a line into the visible parts of a dash pattern.
func dashes(points []point, pattern []float64) [][]point {
	if len(pattern) == 0 || len(points) < 2 {
		return [][]point{points}
	}
	var all [][]point
	part, on, left := []point{points[0]}, true, pattern[0]
	at, next := points[0], 1
	for i := 1; i < len(points); {
		p := points[i]
		length := math.Hypot(p.x-at.x, p.y-at.y)
		if length < left {
			at, left, part, i = p, left-length, append(part, p), i+1
			continue
		}
		at = point{at.x + (p.x-at.x)*left/length, at.y + (p.y-at.y)*left/length}
		if on {
			all = append(all, append(part, at))
		}
		part, on, left = []point{at}, !on, pattern[next%len(pattern)]
		next++
	}
	if on {
		all = append(all, part)
	}
	return all
}

func (l label) draw(r *raster) {
	face, width := r.faces[0], textWidth(l.text, l.bold)
	if l.bold {
		face = r.faces[1]
	}
	x, y := l.at.x-width*float64(l.align)/2, l.at.y+0.35*textSize
	if l.halo {
		a := l.area()
		r.polygons(paper.rgba(0.75), []point{{a.x, a.y}, {a.x + a.w, a.y}, {a.x + a.w, a.y + a.h}, {a.x, a.y + a.h}})
	}
	d := font.Drawer{Dst: r.image, Src: image.NewUniform(l.color.rgba(1)), Face: face,
		Dot: fixed.Point26_6{X: fixed.Int26_6(x * pngScale * 64), Y: fixed.Int26_6(y * pngScale * 64)}}
	d.DrawString(l.text)
}

func (spot) draw(*raster) {}
