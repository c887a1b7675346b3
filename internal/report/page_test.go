package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/bench"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// write returns the page.
func write(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPageStandsAlone checks that the page needs no network and escapes the text of records.
func TestPageStandsAlone(t *testing.T) {
	records := newMachine(1, "<b>GPU</b> & co", 1).sweep()
	const evil = `"><script>alert(1)</script>`
	for i := range records {
		records[i].Subject += evil
		records[i].Environment.Command = "tilework " + evil
		for j := range records[i].Versus {
			records[i].Versus[j].Peer += evil
		}
	}
	records = append(records, bench.Record{Schema: 1, Subject: evil, Device: "cpu", In: "float32", Out: "float32", M: 1,
		N: 1, K: 1, Error: evil})
	page := write(t, newReport(t, Source{evil, records}))
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>GPU") {
		t.Error("the page contains a record's text as HTML")
	}
	for _, address := range regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]+[^\s"'<]*`).FindAllString(page, -1) {
		if !strings.HasPrefix(address, "http://www.w3.org/") { // a namespace
			t.Errorf("the page contains the address %s", address)
		}
	}
	for _, reference := range []string{"src=", "url(", "@import", "<link", "fetch(", "import("} {
		if strings.Contains(page, reference) {
			t.Errorf("the page contains %s", reference)
		}
	}
	checkPage(t, page)
}

// node is an element of the page.
type node struct {
	name       string
	attributes map[string]string
	text       string // without the text of inner elements
}

func (n *node) class(name string) bool {
	return slices.Contains(strings.Fields(n.attributes["class"]), name)
}

// parse returns the elements of a page. It fails the test if tags do not match.
func parse(t *testing.T, page string) []*node {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.Entity = true, xml.HTMLEntity
	var all, open []*node
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{name: token.Name.Local, attributes: map[string]string{}}
			for _, a := range token.Attr {
				n.attributes[a.Name.Local] = a.Value
			}
			all, open = append(all, n), append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(token)
			}
		}
	}
	return all
}

// checkPage checks the structure of a page.
func checkPage(t *testing.T, page string) {
	t.Helper()
	// The parser is for XML: it requires attribute values, and no text that looks like tags.
	page = regexp.MustCompile(`(?s)<(script|style)>.*?</(script|style)>`).ReplaceAllString(page, "")
	page = strings.NewReplacer("<!DOCTYPE html>", "", " checked ", ` checked="" `, " hidden>", ` hidden="">`).Replace(page)
	page = regexp.MustCompile(`<(meta|input)( [^>]*)>`).ReplaceAllString(page, "<$1$2/>")
	all := parse(t, page)
	find := func(name string) (found []*node) {
		for _, n := range all {
			if n.name == name {
				found = append(found, n)
			}
		}
		return found
	}
	ids := map[string]bool{}
	for _, n := range all {
		if id := n.attributes["id"]; id != "" {
			if ids[id] {
				t.Errorf("duplicate ID %s", id)
			}
			ids[id] = true
		}
		if n.name == "p" || n.name == "h2" || n.name == "h3" || n.name == "li" {
			if strings.TrimSpace(n.text) == "" && !n.class("tile") && n.attributes["class"] != "" {
				t.Errorf("empty %s of class %s", n.name, n.attributes["class"])
			}
		}
	}
	for _, n := range find("a") {
		if target := n.attributes["href"]; strings.HasPrefix(target, "#") && !ids[target[1:]] {
			t.Errorf("the link %s has no target", target)
		}
	}
	charts, tables := 0, len(find("table"))
	for _, n := range find("article") {
		if n.class("chart") {
			charts++
		}
	}
	if figures := len(find("figure")); figures != charts || tables != charts {
		t.Errorf("got %d charts with %d figures and %d tables", charts, figures, tables)
	}
	links := 0
	for _, n := range find("a") {
		if !n.class("csv") {
			continue
		}
		links++
		data, ok := strings.CutPrefix(n.attributes["href"], "data:text/csv;charset=utf-8,")
		text, err := url.PathUnescape(data)
		if !ok || err != nil || n.attributes["download"] == "" {
			t.Errorf("got link %.60s of a table", n.attributes["href"])
		}
		if rows, err := csv.NewReader(strings.NewReader(text)).ReadAll(); err != nil || len(rows) < 2 {
			t.Errorf("got %d rows of a table as CSV, error %v", len(rows), err)
		}
	}
	if links != tables {
		t.Errorf("got %d tables with %d links to CSV", tables, links)
	}
	for _, n := range find("svg") {
		if n.attributes["role"] != "img" && n.attributes["aria-hidden"] != "true" || n.attributes["role"] == "img" &&
			n.attributes["aria-label"] == "" {
			t.Errorf("a drawing has no description: %v", n.attributes)
		}
	}
}

// TestPages checks the pages of several kinds of records.
func TestPages(t *testing.T) {
	one := newMachine(1, "", 1).sweep()[:1]
	for name, sources := range map[string][]Source{
		"study": {{"h200", newMachine(1, "NVIDIA H200", 1).sweep()}},
		"comparison": {{"before", newMachine(1, "NVIDIA H200", 1).sweep()},
			{"after", newMachine(2, "NVIDIA H200", 1.1).sweep()}},
		"one record": {{"one", one}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReport(t, sources...)
			page := write(t, r)
			checkPage(t, page)
			if r.Lead == nil || len(r.Lead.Charts) != 1 {
				t.Error("the lead does not have exactly one chart")
			}
			if n := len(r.Tiles); n < 3 || n > 4 {
				t.Errorf("got %d tiles, want 3 or 4: %+v", n, r.Tiles)
			}
			for _, s := range r.Sections {
				if len(s.Charts) == 0 || s.Question == "" {
					t.Errorf("section %s has %d charts and the question %q", s.ID, len(s.Charts), s.Question)
				}
			}
			for _, c := range r.Charts() {
				for i := range c.Legend() {
					if rule := fmt.Sprintf(".figure:has(.t%[1]d:not(:checked)) g.k%[1]d{display:none}", i); !strings.Contains(page,
						rule) {
						t.Errorf("%s: no rule hides legend entry %d", c.ID, i)
					}
				}
			}
		})
	}
}

// TestComparisonColors checks that two sources have two colors, the same in all charts, and entries
// in the legends.
func TestComparisonColors(t *testing.T) {
	r := newReport(t, Source{"before", newMachine(1, "", 1).sweep()}, Source{"after", newMachine(2, "", 1.1).sweep()})
	for _, c := range r.Charts() {
		var colors []*paint
		for _, k := range c.Legend() {
			if k.Name == "before" || k.Name == "after" || strings.HasSuffix(k.Name, " (before)") ||
				strings.HasSuffix(k.Name, " (after)") {
				if !slices.Contains(colors, k.Color) && k.Color != peer {
					colors = append(colors, k.Color)
				}
			}
		}
		if !slices.Equal(colors, palette[:2]) {
			t.Errorf("%s: got legend colors %v, want the first two of the palette", c.ID, colors)
		}
		if l, ok := c.Drawing.(*Lines); ok {
			for _, s := range l.Series {
				if s.Color != palette[0] && s.Color != palette[1] && s.Color != peer {
					t.Errorf("%s: got color of %s: %s", c.ID, s.Name, s.Color.name)
				}
			}
		}
	}
}

// TestLadder checks that bars are kernels of tilework with the same number of threads, and that
// libraries are lines.
func TestLadder(t *testing.T) {
	all := newMachine(1, "", 1).sweep()
	for i := range all {
		all[i].Threads = 4
		if all[i].Subject == "loop" {
			all[i].Threads = 1
		}
	}
	c := newReport(t, Source{"r", all}).chart(t, "ladder-cpu-float32-4-threads")
	ladder := c.Drawing.(*Rows)
	var names []string
	for _, r := range ladder.Rows {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"portable", "avx512"}) {
		t.Errorf("got rungs %v", names)
	}
	if len(ladder.Refs) != 1 || !strings.HasPrefix(ladder.Refs[0].Name, "openblas ") {
		t.Errorf("got lines %v", ladder.Refs)
	}
}

// TestReading checks that charts of rates do not contain the peer that only reads.
func TestReading(t *testing.T) {
	m := newMachine(1, "", 1)
	var all []bench.Record
	for n := 256; n <= 2048; n *= 2 {
		records := m.compete([]pace{cpuModels[2], {bench.Reading, true, 300, 0, 0}}, "cpu", bench.Cube(n))
		records[1].GFLOPS, records[1].Peak = 0, 0
		all = append(all, records...)
	}
	r := newReport(t, Source{"r", all})
	for _, c := range r.Charts() {
		if !strings.HasPrefix(c.ID, "ratio") {
			for _, k := range c.Legend() {
				if strings.Contains(k.Name, bench.Reading) {
					t.Errorf("%s contains %s", c.ID, k.Name)
				}
			}
		}
	}
	if notes := strings.Join(r.chart(t, "ratio-cpu").Notes, " "); !strings.Contains(notes, "does not multiply") {
		t.Errorf("got notes %q", notes)
	}
}

// TestUncertain checks that an uncertain ratio is marked in the table and hollow in the drawing.
func TestUncertain(t *testing.T) {
	m := newMachine(1, "", 1)
	all := m.compete(cpuModels[2:], "cpu", bench.Shape{M: 1, N: 512, K: 512})
	all = append(all, m.compete(cpuModels[2:], "cpu", bench.Cube(512))...)
	for i := range all[0].Versus {
		all[0].Versus[i].Low, all[0].Versus[i].High = 0.1, 10
	}
	c := newReport(t, Source{"r", all}).chart(t, "ratio-cpu-float32")
	marked, hollow := 0, 0
	for _, row := range c.Table.Rows {
		if strings.HasSuffix(row[4].Text, bench.UncertainMark) {
			marked++
		}
	}
	for _, row := range c.Drawing.(*Rows).Rows {
		if row.Values[0].Hollow {
			hollow++
		}
	}
	if marked != 1 || hollow != 1 {
		t.Errorf("got %d marked ratios and %d hollow points, want 1 and 1", marked, hollow)
	}
}

// TestCSV checks that a table as CSV has plain numbers, with their units in the header.
func TestCSV(t *testing.T) {
	table := Table{Columns: []Column{{"kernel", ""}, {"time", "s"}}}
	table.add(textCell("a, b"), numberCell("1.5 ms ± 2 %", 0.0015))
	table.add(textCell("c"), numberCell("2,000,000 s", 2e6))
	var b strings.Builder
	if err := table.writeCSV(&b); err != nil {
		t.Fatal(err)
	}
	if want := "kernel,time (s)\n\"a, b\",0.0015\nc,2000000\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// contrast returns the contrast of two colors by WCAG 2.
func contrast(a, b uint32) float64 {
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func linear(rgb uint32) (c [3]float64) {
	for i := range c {
		v := float64(rgb>>(16-8*i)&0xFF) / 255
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return c
}

func luminance(rgb uint32) float64 {
	c := linear(rgb)
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}

// lab returns a color in CIELAB, if deficient as seen with deuteranopia (Machado, Oliveira and
// Fernandes 2009, severity 1).
func lab(rgb uint32, deficient bool) [3]float64 {
	c := linear(rgb)
	if deficient {
		c = [3]float64{
			0.367322*c[0] + 0.860646*c[1] - 0.227968*c[2],
			0.280085*c[0] + 0.672501*c[1] + 0.047413*c[2],
			-0.011820*c[0] + 0.042940*c[1] + 0.968881*c[2],
		}
	}
	f := func(v float64) float64 {
		if v > 0.008856 {
			return math.Cbrt(v)
		}
		return 7.787*v + 16./116
	}
	x, y, z := f((0.4124*c[0]+0.3576*c[1]+0.1805*c[2])/0.9505), f(0.2126*c[0]+0.7152*c[1]+0.0722*c[2]),
		f((0.0193*c[0]+0.1192*c[1]+0.9505*c[2])/1.089)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// TestPalette checks that text and series have enough contrast, and that the first five series
// differ for readers with and without a color vision deficiency, in light and in dark mode.
func TestPalette(t *testing.T) {
	for i, mode := range []func(*paint) uint32{func(p *paint) uint32 { return p.light },
		func(p *paint) uint32 { return p.dark }} {
		for _, p := range append([]*paint{ink, faint, peer}, palette...) {
			least := 3.0 // for graphics
			if p == ink || p == faint {
				least = 4.5
			}
			if c := contrast(mode(p), mode(paper)); c < least {
				t.Errorf("mode %d: %s has a contrast of %.1f, want at least %v", i, p.name, c, least)
			}
		}
		for a := range 5 {
			for b := range a {
				for _, deficient := range []bool{false, true} {
					x, y := lab(mode(palette[a]), deficient), lab(mode(palette[b]), deficient)
					if d := math.Hypot(math.Hypot(x[0]-y[0], x[1]-y[1]), x[2]-y[2]); d < 12 {
						t.Errorf("mode %d, deuteranopia %v: %s and %s differ by %.0f, want at least 12", i, deficient, palette[a].name,
							palette[b].name, d)
					}
				}
			}
		}
	}
}

// check checks each drawing of a report in both layouts.
func check(t *testing.T, r *Report) {
	t.Helper()
	ids := map[string]bool{}
	for _, c := range r.Charts() {
		if ids[c.ID] || c.ID == "" || c.ID != word(c.ID) {
			t.Errorf("the ID %q is not a valid file name, or a duplicate", c.ID)
		}
		ids[c.ID] = true
		for _, row := range c.Table.Rows {
			if len(row) != len(c.Table.Columns) {
				t.Errorf("%s: a row has %d cells and %d headings: %v", c.ID, len(row), len(c.Table.Columns), row)
			}
		}
		if c.Answer == "" || len(c.Table.Rows) == 0 || len(c.Legend()) == 0 {
			t.Errorf("%s: got answer %q, %d rows and %d legend entries", c.ID, c.Answer, len(c.Table.Rows), len(c.Legend()))
		}
		for _, width := range []float64{wide, narrow} {
			checkCanvas(t, c, c.Drawing.draw(width))
		}
		var svg bytes.Buffer
		if err := c.WriteSVG(&svg); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(svg.String(), "NaN") || strings.Contains(svg.String(), "Inf") {
			t.Errorf("%s: the drawing has NaN coordinates", c.ID)
		}
		parse(t, svg.String())
	}
}

// checkCanvas checks that all series have a legend entry, and that text is inside the drawing and
// does not overlap.
func checkCanvas(t *testing.T, c *Chart, drawing *canvas) {
	t.Helper()
	entry := regexp.MustCompile(`^k(\d+)$`)
	var taken []label
	for _, l := range drawing.layers {
		for _, class := range strings.Fields(l.keys) {
			if i, err := strconv.Atoi(entry.FindStringSubmatch(class)[1]); err != nil || i >= len(c.Legend()) {
				t.Errorf("%s: a series has legend entry %s of %d", c.ID, class, len(c.Legend()))
			}
		}
		for _, e := range l.elements {
			text, ok := e.(label)
			if !ok || text.text == "" {
				continue
			}
			a := text.area()
			if a.x < -1 || a.x+a.w > drawing.width+1 || a.y < -1 || a.y+a.h > drawing.height+1 {
				t.Errorf("%s, width %v: %q is outside the drawing", c.ID, drawing.width, text.text)
			}
			a.x, a.w, a.y, a.h = a.x+1, a.w-2, a.y+1, a.h-2
			for _, other := range taken {
				if a.overlaps(other.area()) {
					t.Errorf("%s, width %v: %q overlaps %q", c.ID, drawing.width, text.text, other.text)
				}
			}
			taken = append(taken, text)
		}
	}
}

func TestPictures(t *testing.T) {
	check(t, newReport(t, Source{"a", newMachine(1, "NVIDIA H200", 1).sweep()}))
	check(t, newReport(t, Source{"before", newMachine(1, "NVIDIA H200", 1).sweep()},
		Source{"after", newMachine(2, "NVIDIA H200", 1.1).sweep()}))
}

// TestTextSize checks that text is at least 12 pixels high at each width of the page. The style
// sheet shows a drawing only at these scales or larger ones.
func TestTextSize(t *testing.T) {
	for _, drawing := range []struct {
		width float64
		rule  string
	}{{wide, `@container \(min-width: (\d+)px\)`}, {narrow, `\.figure > \.narrow \{[^}]*min-width: (\d+)px`}} {
		least, err := strconv.ParseFloat(regexp.MustCompile(drawing.rule).FindStringSubmatch(pageCSS)[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if size := textSize * least / drawing.width; size < 12 {
			t.Errorf("text of the layout for %v pixels is %.1f pixels high, want 12", drawing.width, size)
		}
	}
	for _, size := range regexp.MustCompile(`font-size: ([\d.]+)rem`).FindAllStringSubmatch(pageCSS, -1) {
		if rem, err := strconv.ParseFloat(size[1], 64); err != nil || rem*16 < 12 {
			t.Errorf("the style sheet has the font size %s rem", size[1])
		}
	}
}

// TestAnyRecords checks reports of random records.
func TestAnyRecords(t *testing.T) {
	rng := testrand.New(t)
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	for range testkit.Repeats(20, 1000) {
		m := &machine{rng, pick("", "NVIDIA H200", "sm_90", "no such GPU"), math.Exp(10 * rng.NormFloat64())}
		var sources []Source
		for i := range 1 + rng.IntN(3) {
			var records []bench.Record
			for range rng.IntN(40) + 1 {
				shape := bench.Shape{M: 1 << rng.IntN(20), N: 1 + rng.IntN(5000), K: 1 + rng.IntN(3)}
				if rng.IntN(2) == 0 {
					shape = bench.Cube(1 + rng.IntN(4)*511)
				}
				on := pace{pick("loop", "tiled", strings.Repeat("long name ", 12), "ü", "<&>"), rng.IntN(3) == 0,
					math.Exp(5 * rng.NormFloat64()), 1e-6, rng.Float64()}
				r := m.record(on, pick("cpu", "gpu:0", "gpu:1", "emu"), shape, rng.IntN(2) == 0)
				r.In = pick("float32", "int8", "float64")
				r.Precision = pick("", "tf32")
				if rng.IntN(3) == 0 {
					r.Peak, r.Samples, r.Steps = 0, r.Samples[:1], nil
				}
				if rng.IntN(9) == 0 {
					r.Error = "it broke"
				}
				r.Versus = []bench.Ratio{{Peer: pick("openblas", "cublaslt", "x y"), Speed: math.Exp(5 * rng.NormFloat64()),
					P10: 1, P90: 1}}
				records = append(records, r)
			}
			sources = append(sources, Source{fmt.Sprintf("%c.b", 'a'+i), records})
		}
		r := newReport(t, sources...)
		check(t, r)
		checkPage(t, write(t, r))
	}
}
