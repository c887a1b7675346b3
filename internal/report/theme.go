package report

import (
	"fmt"
	"strings"
)

// paint is a color of the page and its drawings, for light and for dark mode.
type paint struct {
	name        string // of the CSS variable
	light, dark uint32 // 0xRRGGBB
}

// Paints with one purpose each.
var (
	paper = &paint{"paper", 0xFFFFFF, 0x14171C}
	ink   = &paint{"ink", 0x1B1F24, 0xE6E9ED}
	faint = &paint{"faint", 0x59636E, 0x9CA6B1} // secondary text
	rule  = &paint{"rule", 0xDDE1E6, 0x323941}  // grid and separators
	wash  = &paint{"wash", 0xF5F6F8, 0x1C2026}  // background of code and of focused rows
	peer  = &paint{"peer", 0x3D454E, 0xC3CAD2}  // lines of libraries and of limits
)

// palette distinguishes kernels, parts and files. TestPalette checks that neighbors differ for
// readers with color vision deficiencies. Shapes and dashes distinguish series as well.
var palette = []*paint{
	{"s0", 0x0B65B5, 0x62AEF2},
	{"s1", 0xCF5408, 0xF59352},
	{"s2", 0x08805F, 0x40CB9F},
	{"s3", 0x9C4A97, 0xD596D0},
	{"s4", 0x2E8BC0, 0xA8DDF8},
	{"s5", 0x8A6A00, 0xDFBC52},
	{"s6", 0x6B3FA0, 0xB79CF0},
	{"s7", 0x5C6B2F, 0xB7C873},
}

func paints() []*paint {
	return append([]*paint{paper, ink, faint, rule, wash, peer}, palette...)
}

// Theme returns the paints as CSS variables, such as --ink. On paper they are light.
func Theme() string {
	var light, dark strings.Builder
	for _, p := range paints() {
		fmt.Fprintf(&light, "--%s:#%06x;", p.name, p.light)
		fmt.Fprintf(&dark, "--%s:#%06x;", p.name, p.dark)
	}
	return fmt.Sprintf(":root{color-scheme:light dark;%s}\n@media screen and (prefers-color-scheme:dark){:root{%s}}\n",
		light.String(), dark.String())
}

// classes returns the style rules of drawings: .f-NAME fills, .s-NAME strokes.
func classes() string {
	var b strings.Builder
	for _, p := range paints() {
		fmt.Fprintf(&b, ".f-%[1]s{fill:var(--%[1]s)}.s-%[1]s{fill:none;stroke:var(--%[1]s)}", p.name)
	}
	fmt.Fprintf(&b, "\nsvg text{font-family:%s;font-size:%gpx}", fontStack, textSize)
	b.WriteString(".b{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}")
	b.WriteString(".halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}")
	b.WriteString("path{stroke-linejoin:round;stroke-linecap:round}.spot{fill:none;pointer-events:all}\n")
	return b.String()
}

// fontStack lists system fonts whose widths are close to those of the measured font.
const fontStack = `-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans","Liberation Sans",Arial,sans-serif`
