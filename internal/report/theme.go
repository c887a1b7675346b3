package report

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"
)

// shade is a colour of the page and of its drawings, by light and by dark.
type shade struct {
	name        string // of the CSS variable
	light, dark uint32 // 0xRRGGBB
}

// The shades that have a use of their own.
var (
	paper = shade{"paper", 0xFFFFFF, 0x15181D}
	ink   = shade{"ink", 0x1B1F24, 0xE6E9ED}
	faint = shade{"faint", 0x5B6570, 0x9AA4AF} // words that matter less
	rule  = shade{"rule", 0xDFE3E8, 0x333A43}  // lines that matter less
	card  = shade{"card", 0xF6F7F9, 0x1C2026}
	mark  = shade{"mark", 0xC2255C, 0xFF8FB3}
)

// seriesShades tell series apart, also for those who do not see all colours.
var seriesShades = []shade{
	{"series-1", 0x0B62B8, 0x5EA9F5},
	{"series-2", 0xD9480F, 0xFF9457},
	{"series-3", 0x0A8754, 0x3FCB8E},
	{"series-4", 0x8A3FC4, 0xC48BF0},
	{"series-5", 0xA37200, 0xE8C14A},
	{"series-6", 0x0C8599, 0x4FD1E0},
	{"series-7", 0xC92A6E, 0xF58BB9},
	{"series-8", 0x5C940D, 0xA9D65C},
	{"series-9", 0x864B2E, 0xD9A07A},
	{"series-10", 0x5A6673, 0xB4BEC9},
}

// heatShades go from far below the ratio 1, over 1, to far above it.
var heatShades = []shade{
	{"heat-1", 0xEE8A62, 0x9C3D17},
	{"heat-2", 0xF5AE8F, 0x7D3519},
	{"heat-3", 0xF9CFBC, 0x5E2D1B},
	{"heat-4", 0xFBE7DE, 0x43281F},
	{"heat-5", 0xEDEFF2, 0x2B3037},
	{"heat-6", 0xDDEBF9, 0x1E3147},
	{"heat-7", 0xBAD7F3, 0x1B4064},
	{"heat-8", 0x8FBDE9, 0x185083},
	{"heat-9", 0x62A1DD, 0x1560A3},
}

// heatStep is the factor between two of heatShades' ratios; those that are nearer to 1
// than notable, a logarithm, have the middle one.
const (
	heatStep = 1.15
	notable  = 0.02
)

// heatIndex is the shade of a ratio.
func heatIndex(ratio float64) int {
	middle := len(heatShades) / 2
	far := math.Log(ratio)
	if math.Abs(far) < notable {
		return middle
	}
	n := min(1+math.Floor(math.Abs(far)/math.Log(heatStep)), float64(middle))
	return middle + int(math.Copysign(n, far))
}

// shades are all of them.
func shades() []shade {
	all := []shade{paper, ink, faint, rule, card, mark}
	all = append(all, seriesShades...)
	return append(all, heatShades...)
}

// RGBA is the light colour, opaque: what pictures have.
func (s shade) RGBA() (r, g, b, a uint32) {
	return color.RGBA{uint8(s.light >> 16), uint8(s.light >> 8), uint8(s.light), 0xFF}.RGBA()
}

// variables are the shades in CSS, by the light and by the dark.
func variables() template.CSS {
	var light, dark strings.Builder
	for _, s := range shades() {
		fmt.Fprintf(&light, "--%s:#%06x;", s.name, s.light)
		fmt.Fprintf(&dark, "--%s:#%06x;", s.name, s.dark)
	}
	return template.CSS(fmt.Sprintf(":root{color-scheme:light dark;%s}\n@media screen and (prefers-color-scheme:dark){:root{%s}}", light.String(), dark.String()))
}

// themed has CSS variables for the light colours in a drawing.
func themed(svg string) string {
	var pairs []string
	for _, s := range shades() {
		pairs = append(pairs, fmt.Sprintf("#%06X", s.light), "var(--"+s.name+")")
	}
	return strings.NewReplacer(pairs...).Replace(svg)
}
