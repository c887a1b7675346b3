package report

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// harness has the page in frames as wide as a phone and as a screen, and writes down
// what became of it there. A frame's width is not bounded below, as a window's is.
const harness = `<!DOCTYPE html>
<body style="margin:0">
<iframe src="/page" width="390" height="800"></iframe>
<iframe src="/page" width="1200" height="800"></iframe>
<pre id="seen"></pre>
<script>
function look(frame) {
	const page = frame.contentDocument, root = page.documentElement;
	for (const d of page.querySelectorAll("details")) d.open = true;
	const drawn = [...page.querySelectorAll("figure svg")].filter(s => s.getBoundingClientRect().height > 0);
	const seen = {
		width: frame.contentWindow.innerWidth,
		needed: root.scrollWidth,
		charts: page.querySelectorAll(".chart").length,
		figures: page.querySelectorAll("figure").length,
		tables: [...page.querySelectorAll("table")].filter(t => t.getBoundingClientRect().height > 0).length,
		drawings: drawn.length,
		marks: drawn.reduce((n, s) => n + s.querySelectorAll("path").length, 0),
		smallest: Math.min(...drawn.flatMap(s => [...s.querySelectorAll("text")]).map(t => t.getBoundingClientRect().height)),
		tips: 0,
		outside: 0,
		paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
		ink: frame.contentWindow.getComputedStyle(page.querySelector("svg text")).fill,
	};
	const tip = page.getElementById("tip");
	for (const svg of drawn) {
		svg.scrollIntoView();
		const spots = svg.querySelectorAll("rect[data-text]");
		for (const spot of [spots[0], spots[spots.length - 1]]) {
			const box = spot.getBoundingClientRect();
			svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
			if (!tip.hidden && tip.textContent) seen.tips++;
			const at = tip.getBoundingClientRect();
			if (at.left < 0 || at.right > seen.width) seen.outside++;
		}
		svg.dispatchEvent(new PointerEvent("pointerleave"));
		if (!tip.hidden) seen.outside++;
	}
	return seen;
}
addEventListener("load", () => {
	document.getElementById("seen").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
});
</script>`

// seen is what the harness saw of the page in one frame.
type seen struct {
	Width, Needed, Charts, Figures, Tables, Drawings, Marks, Tips, Outside int
	Smallest                                                               float64
	Paper, Ink                                                             string
}

// browse opens the page in Chromium and returns what was seen, and what Chromium wrote
// to its log.
func browse(t *testing.T, r *Report, flags ...string) ([]seen, string) {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		const why = "there is no Chromium to look at the page with"
		if os.Getenv("TILEWORK_REQUIRE_BROWSER") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	pages := map[string]string{"/": harness, "/page": write(t, r)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, known := pages[q.URL.Path]
		if !known && q.URL.Path != "/favicon.ico" {
			t.Errorf("the page asks for %s", q.URL)
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir=" + t.TempDir(), "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"}, flags...)
	c := exec.CommandContext(ctx, path, append(args, server.URL)...)
	var log strings.Builder
	c.Stderr = &log
	dom, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	found := regexp.MustCompile(`(?s)<pre id="seen">(.+?)</pre>`).FindSubmatch(dom)
	if found == nil {
		t.Fatalf("the harness saw nothing\n%s", log.String())
	}
	var all []seen
	if err := json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &all); err != nil {
		t.Fatal(err)
	}
	return all, log.String()
}

// TestBrowser looks at the page on a phone and on a screen, by light and by dark. Without a
// browser it is skipped, unless TILEWORK_REQUIRE_BROWSER is set.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("the browser takes its time: the long test has a look")
	}
	r := newReport(t,
		Source{"before", newMachine(1, "NVIDIA H200", 1).sweep()},
		Source{"after with a name that is long", newMachine(2, "NVIDIA H200", 1.2).sweep()})
	drawn := 0
	for _, c := range r.Charts {
		if c.Drawing != nil {
			drawn++
		}
	}
	for _, mode := range []struct {
		name, flag string
		colour     func(shade) uint32
	}{
		{"light", "--blink-settings=preferredColorScheme=1", func(s shade) uint32 { return s.light }},
		{"dark", "--blink-settings=preferredColorScheme=0", func(s shade) uint32 { return s.dark }},
	} {
		t.Run(mode.name, func(t *testing.T) {
			frames, log := browse(t, r, mode.flag)
			if len(frames) != 2 || frames[0].Width != 390 || frames[1].Width != 1200 {
				t.Fatalf("the frames are %+v", frames)
			}
			for _, s := range frames {
				if s.Needed > s.Width {
					t.Errorf("at %d pixels the page needs %d: it scrolls sideways", s.Width, s.Needed)
				}
				if s.Charts != len(r.Charts) || s.Figures != drawn || s.Drawings != drawn || s.Tables != drawn || s.Marks < 10*drawn {
					t.Errorf("at %d pixels there are %d charts, %d figures, %d drawings and %d tables; want %d, and %d of the others\n%+v", s.Width, s.Charts, s.Figures, s.Drawings, s.Tables, len(r.Charts), drawn, s)
				}
				if s.Smallest < 11 { // as a box of a line; a letter is smaller
					t.Errorf("at %d pixels a line of text is %v pixels high", s.Width, s.Smallest)
				}
				if s.Tips != 2*drawn || s.Outside != 0 {
					t.Errorf("at %d pixels %d of %d places tell their values, %d outside of the page", s.Width, s.Tips, 2*drawn, s.Outside)
				}
				rgb := func(s shade) string {
					c := mode.colour(s)
					return fmt.Sprintf("rgb(%d, %d, %d)", c>>16, c>>8&0xFF, c&0xFF)
				}
				if s.Paper != rgb(paper) || s.Ink != rgb(ink) && s.Ink != rgb(faint) {
					t.Errorf("the paper is %s and a drawing's text %s, want %s and %s", s.Paper, s.Ink, rgb(paper), rgb(ink))
				}
			}
			if said := regexp.MustCompile(`.*CONSOLE.*`).FindAllString(log, -1); said != nil {
				t.Errorf("the console says\n%s", strings.Join(said, "\n"))
			}
		})
	}
}
