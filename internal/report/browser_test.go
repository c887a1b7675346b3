package report

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"tilework/internal/testkit/browser"
)

// harness shows the page in frames of several widths and measures it there. A frame, unlike a
// window, can be as narrow as a phone.
const harness = `<!DOCTYPE html>
<body style="margin:0">
<iframe src="/page" width="320" height="800"></iframe>
<iframe src="/page" width="390" height="800"></iframe>
<iframe src="/page" width="768" height="800"></iframe>
<iframe src="/page" width="1400" height="800"></iframe>
<pre id="seen"></pre>
<script>
function look(frame) {
	const page = frame.contentDocument, root = page.documentElement, style = e => frame.contentWindow.getComputedStyle(e);
	for (const d of page.querySelectorAll("details")) d.open = true;
	const visible = e => e.getBoundingClientRect().height > 0;
	const drawn = [...page.querySelectorAll(".figure > svg")].filter(visible);
	const textSize = svg => {
		const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
		return [...svg.querySelectorAll("text")].map(t => parseFloat(style(t).fontSize) * scale);
	};
	const seen = {
		width: frame.contentWindow.innerWidth,
		needed: root.scrollWidth,
		figures: page.querySelectorAll("figure").length,
		tables: [...page.querySelectorAll("table")].filter(visible).length,
		drawings: drawn.length,
		smallest: Math.min(...drawn.flatMap(textSize)),
		tips: 0, outside: 0, hidden: 0, shown: 0, sorted: 0,
		paper: style(page.body).backgroundColor,
		ink: style(page.querySelector(".figure text.f-ink")).fill,
	};
	const tip = page.getElementById("tip");
	for (const svg of drawn) {
		svg.scrollIntoView({behavior: "instant"});
		const spots = svg.querySelectorAll(".spot");
		for (const spot of [spots[0], spots[spots.length - 1]]) {
			const box = spot.getBoundingClientRect();
			svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
			if (!tip.hidden && tip.textContent) seen.tips++;
			const at = tip.getBoundingClientRect();
			if (at.left < 0 || at.right > seen.width) seen.outside++;
		}
		svg.dispatchEvent(new PointerEvent("pointerleave"));
		if (!tip.hidden) seen.outside++;
		const box = svg.parentNode.querySelector("input"), parts = [...svg.querySelectorAll("g.k0")];
		box.click();
		if (parts.length && parts.every(p => style(p).display === "none")) seen.hidden++;
		box.click();
		if (parts.every(p => style(p).display !== "none")) seen.shown++;
	}
	for (const table of page.querySelectorAll("table")) {
		const button = table.querySelector("th:last-child button"), th = button.parentNode;
		const values = () => [...table.tBodies[0].rows].map(r => r.lastElementChild.dataset.v).filter(v => v !== undefined).map(Number);
		button.click();
		const up = values(), ascending = th.getAttribute("aria-sort") === "ascending" && up.every((v, i) => !i || v >= up[i - 1]);
		button.click();
		const down = values(), descending = th.getAttribute("aria-sort") === "descending" && down.every((v, i) => !i || v <= down[i - 1]);
		if (ascending && descending && up.length === down.length) seen.sorted++;
	}
	return seen;
}
addEventListener("load", () => {
	document.getElementById("seen").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
});
</script>`

// seen holds the measurements of the page in one frame.
type seen struct {
	Width, Needed, Figures, Tables, Drawings int
	Tips, Outside, Hidden, Shown, Sorted     int
	Smallest                                 float64
	Paper, Ink                               string
}

// browse opens the page in Chromium and returns the measurements of the frames and Chromium's log.
func browse(t *testing.T, page string, flags ...string) ([]seen, string) {
	t.Helper()
	path := browser.Path(t)
	pages := map[string]string{"/": harness, "/page": page}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, known := pages[q.URL.Path]
		if !known && q.URL.Path != "/favicon.ico" {
			t.Errorf("the page requests %s", q.URL)
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append(browser.Flags(t), "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom")
	args = append(args, flags...)
	c := exec.CommandContext(ctx, path, append(args, server.URL)...)
	var log strings.Builder
	c.Stderr = &log
	dom, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	found := regexp.MustCompile(`(?s)<pre id="seen">(.+?)</pre>`).FindSubmatch(dom)
	if found == nil {
		t.Fatalf("the harness returned no measurements\n%s", log.String())
	}
	var all []seen
	if err := json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &all); err != nil {
		t.Fatal(err)
	}
	return all, log.String()
}

// TestBrowser opens the page at the widths of phones and screens, in light and dark mode, and uses
// its controls. [browser.Path] tells when it is skipped.
func TestBrowser(t *testing.T) {
	r := newReport(t,
		Source{"before", newMachine(1, "NVIDIA H200", 1).sweep()},
		Source{"after with a name that is long", newMachine(2, "NVIDIA H200", 1.2).sweep()})
	page, charts := write(t, r), len(r.Charts())
	for _, mode := range []struct {
		name, flag string
		color      func(*paint) uint32
	}{
		{"light", "--blink-settings=preferredColorScheme=1", func(p *paint) uint32 { return p.light }},
		{"dark", "--blink-settings=preferredColorScheme=0", func(p *paint) uint32 { return p.dark }},
	} {
		t.Run(mode.name, func(t *testing.T) {
			frames, log := browse(t, page, mode.flag)
			if len(frames) != 4 {
				t.Fatalf("got frames %+v", frames)
			}
			for _, s := range frames {
				if s.Needed > s.Width {
					t.Errorf("width %d: the page is %d pixels wide and scrolls horizontally", s.Width, s.Needed)
				}
				if s.Figures != charts || s.Drawings != charts || s.Tables != charts {
					t.Errorf("width %d: got %d figures, %d drawings and %d tables, want %d", s.Width, s.Figures, s.Drawings, s.Tables,
						charts)
				}
				if s.Smallest < 12 {
					t.Errorf("width %d: text in a drawing is %.2f pixels high, want 12", s.Width, s.Smallest)
				}
				if s.Tips != 2*charts || s.Outside != 0 {
					t.Errorf("width %d: %d of %d spots show a tooltip, %d outside the page", s.Width, s.Tips, 2*charts, s.Outside)
				}
				if s.Hidden != charts || s.Shown != charts || s.Sorted != charts {
					t.Errorf("width %d: the first legend entry hides its series in %d and shows it in %d of %d charts, and a click "+
						"sorts %d tables", s.Width, s.Hidden, s.Shown, charts, s.Sorted)
				}
				rgb := func(p *paint) string {
					c := mode.color(p)
					return fmt.Sprintf("rgb(%d, %d, %d)", c>>16, c>>8&0xFF, c&0xFF)
				}
				if s.Paper != rgb(paper) || s.Ink != rgb(ink) {
					t.Errorf("got paper %s and ink %s, want %s and %s", s.Paper, s.Ink, rgb(paper), rgb(ink))
				}
			}
			if said := regexp.MustCompile(`.*CONSOLE.*`).FindAllString(log, -1); said != nil {
				t.Errorf("console output:\n%s", strings.Join(said, "\n"))
			}
		})
	}
}
