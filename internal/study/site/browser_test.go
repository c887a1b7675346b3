package site

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/internal/study"
	"tilework/internal/testkit/browser"
)

// background is the context of the site that all tests share.
var background = context.Background()

// open starts a browser, with the address of the page.
func open(t testing.TB) (b *browser.Tab, url string) {
	t.Helper()
	browser.Path(t) // skips the test before the site is built
	if test, ok := t.(*testing.T); ok {
		test.Parallel()
	}
	return serve(t, browser.Open)
}

func serve(t testing.TB, start func(testing.TB) *browser.Tab) (b *browser.Tab, url string) {
	t.Helper()
	server := httptest.NewServer(newSite(t))
	t.Cleanup(server.Close)
	b = start(t)
	b.Size(1400, 1000, "light")
	t.Cleanup(func() {
		if said := b.Said(); len(said) > 0 {
			t.Errorf("the console has %d messages, the first is %.1000s", len(said), said[0])
		}
	})
	return b, server.URL + "/"
}

// visit opens a part of the page anew and waits until a condition in JavaScript holds.
func visit(b *browser.Tab, url, ready string) {
	b.Visit("about:blank")
	b.Visit(url)
	b.Wait(ready)
}

// ready holds for each part of the page the condition under which it has finished its first run.
var ready = map[string]string{
	"ladder":    `document.querySelector("#ladder-result .verdict") && document.querySelector("#ladder-listing .chosen")`,
	"watch":     `document.querySelector("#watch .tick")`,
	"break":     `document.querySelector("#break-verdict .verdict") && document.querySelector("#break-listing .mark")`,
	"own":       `document.querySelector("#own-result .verdict") && document.querySelector("#own-listing .line")`,
	"occupancy": `document.querySelector("#occupancy-result :is(.bars, button)")`,
}

// TestParts opens each part at the widths of phones and screens in light and dark mode. Nothing is
// wider than the window, texts can be read, and drawings adopt the mode. A keyboard and a screen
// reader are enough.
func TestParts(t *testing.T) {
	b, url := open(t)
	for part, done := range ready {
		visit(b, url+"#"+part, done)
		checkTree(t, b, part)
		checkKeyboard(t, b, part)
		for _, mode := range []string{"light", "dark"} {
			for _, width := range []int{390, 768, 1400} {
				b.Size(width, 900, mode)
				var got struct {
					Needed, Visible int
					Paper           string
				}
				b.Eval(`({
					Needed: document.documentElement.scrollWidth,
					Visible: [...document.querySelectorAll("main > section")].filter(e => e.getClientRects().length > 0).length,
					Paper: getComputedStyle(document.body).backgroundColor,
				})`, &got)
				if got.Needed > width {
					t.Errorf("%s, %d pixels, %s: the page is %d pixels wide", part, width, mode, got.Needed)
				}
				if got.Visible != 1 {
					t.Errorf("%s: %d parts are visible", part, got.Visible)
				}
				if dark := got.Paper != "rgb(255, 255, 255)"; dark != (mode == "dark") {
					t.Errorf("%s, %s: the background is %s", part, mode, got.Paper)
				}
			}
			checkContrast(t, b, part, mode)
		}
		b.Size(1400, 1000, "light")
	}
}

// call calls the emulator of the page.
func call(t *testing.T, b *browser.Tab, q study.Request) (got, want any) {
	t.Helper()
	params, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	b.Eval(fmt.Sprintf(`import("./engine.js").then(engine => engine.call("run", %s))`, params), &got)
	native, err := study.Call(t.Context(), "run", params, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(native, &want); err != nil {
		t.Fatal(err)
	}
	return got, want
}

// TestSameAsNative runs every rung and every mistake in the browser. The results, with all
// counters, findings and lines, are those of the same run outside of the browser.
func TestSameAsNative(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#occupancy", ready["occupancy"])
	var requests []study.Request
	for _, r := range study.Rungs() {
		requests = append(requests, study.Request{Rung: r.ID, Sizes: r.Sizes, GPU: "h200"},
			study.Request{Rung: r.ID, Sizes: study.Sizes{M: 19, N: 33, K: 7}, GPU: "h100-sxm"})
	}
	for _, m := range study.Mistakes() {
		requests = append(requests, study.Request{Rung: m.Rung, Sizes: m.Sizes, GPU: "h200", Mistake: m.ID})
	}
	for _, q := range requests {
		if got, want := call(t, b, q); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: the browser's result differs:\n%.600v\n%.600v", q, got, want)
		}
	}
}

// TestLadder chooses each rung with the keyboard and waits for its counters.
func TestLadder(t *testing.T) {
	b, url := open(t)
	visit(b, url, ready["ladder"])
	b.Eval(`document.querySelector("#stairs input:checked").focus()`, nil)
	for i, r := range study.Rungs() {
		if i > 0 {
			b.Press("ArrowRight")
		}
		b.Wait(fmt.Sprintf(`document.querySelector("#ladder-result thead")?.textContent.includes(%q) && %s`, r.Name,
			ready["ladder"]))
		var seen struct{ Good, Hash, Title string }
		b.Eval(`({Good: document.querySelector("#ladder-result .verdict").className, Hash: location.hash,
			Title: document.querySelector("#rung-title").textContent})`, &seen)
		if seen.Good != "verdict good" || seen.Title != r.Title {
			t.Errorf("%s: got %+v", r.ID, seen)
		}
	}
	// The limit of a rung leads to the next one.
	visit(b, url+"#ladder?rung=tiled-32", ready["ladder"])
	b.Click("#rung-limit a")
	b.Wait(`document.querySelector("#rung-title").textContent === "Many elements per thread" && ` + ready["ladder"])
	// The address restores the state, and bad input is refused in words.
	visit(b, url+"#ladder?rung=tiled-16&m=200&n=200&k=200", `document.querySelector("#ladder-result .notice")`)
	var said string
	b.Eval(`document.querySelector("#ladder-result .notice").textContent`, &said)
	if want := "200×200×200 is 8,000,000 multiply-adds: want at most"; len(said) < len(want) || said[:len(want)] != want {
		t.Errorf("got %q, want %s …", said, want)
	}
	// The slider of the tile selects another tile of the kernel, or another rung of the ladder.
	visit(b, url+"#ladder?rung=blocked&tile=32x32x16/4x4/4&m=40&n=40&k=40", ready["ladder"])
	for _, step := range []struct{ hash, key, want string }{
		{"", "ArrowRight", "Kernel blocked · tile 4x256x8/4x4/4 · float32"},
		{"#ladder?rung=tiled-16", "ArrowRight", "Kernel tiled 32 · tile 32 · float32"},
	} {
		if step.hash != "" {
			b.Eval(fmt.Sprintf(`location.hash = %q`, step.hash), nil)
			b.Wait(`document.querySelector("#rung-facts").textContent.startsWith("Kernel tiled 16")`)
		}
		b.Eval(`document.querySelector("#ladder-form [name=tile]").focus()`, nil)
		b.Press(step.key)
		b.Wait(fmt.Sprintf(`document.querySelector("#rung-facts").textContent === %q &&
			document.querySelector("#ladder-result .verdict.good")`, step.want))
	}
	// Stop ends a run at once.
	visit(b, url+"#ladder?rung=tiled-2&m=160&n=160&k=160", `document.querySelector("#ladder-form progress:not([hidden])")`)
	b.Click("#ladder-form .run button:nth-child(2)")
	b.Wait(`document.querySelector("#ladder-result .notice")?.textContent === "Stopped."`)
	b.Wait(`!document.querySelector("#ladder-form .primary").disabled`)
}

// TestWatch steps through the worked example with keys and buttons.
func TestWatch(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#watch", ready["watch"])
	caption := func() (text string) {
		b.Eval(`document.querySelector("#caption").textContent`, &text)
		return text
	}
	for _, step := range []struct {
		key, click, want string
	}{
		{"ArrowRight", "", "1 of 25, phase 0. Warp 0: 4 threads load from A in global memory: 1 sector of 32 bytes."},
		{"", "[data-go=next]", "2 of 25, phase 0. Warp 0: 4 threads store elements of A to shared memory: 1 wavefront."},
		{"PageDown", "", "12 of 25, phase 0. Barrier: all 4 threads have arrived, and go on together."},
		{"", "[data-go=back]", "11 of 25, phase 0. Warp 0: 4 threads multiply an element of A by one of B each, and add to " +
			"their sums."},
		{"ArrowLeft", "", "10 of 25, phase 0. Warp 0: 4 threads read 2 words of B in shared memory: 1 wavefront. " +
			"Threads that want the same word share it."},
		{"", "[data-go=last]", "25 of 25. Warp 0: 4 threads write sums to C: 1 sector of 32 bytes."},
	} {
		if step.key != "" {
			b.Press(step.key)
		} else {
			b.Click(step.click)
			b.Eval(`document.activeElement.blur()`, nil)
		}
		if got := caption(); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	var total string
	b.Eval(`document.querySelector("#formula .total").firstChild.textContent`, &total)
	if total != "46" { // 1·9 + 2·5 + 3·1 + 4·6
		t.Errorf("C[0][0] is %s, want 46", total)
	}
	// A smaller product has fewer steps than the present one, and begins with the first.
	b.Wait(`location.hash.includes("at=25")`)
	b.Eval(`(() => {
		const field = document.querySelector("#watch-sizes [aria-label='K, exact']");
		field.value = 2;
		field.dispatchEvent(new Event("change"));
	})()`, nil)
	b.Wait(`document.querySelector("#caption").textContent.startsWith("The block computes 4 elements")`)
}

// TestWatchRungs follows each rung to the end, and checks the sum of the last element of the block.
// Nothing is wider than the window of a phone.
func TestWatchRungs(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#watch", ready["watch"])
	for _, r := range study.Rungs() {
		b.Eval(fmt.Sprintf(`location.hash = "#watch?rung=%s"`, r.ID), nil)
		b.Wait(fmt.Sprintf(`document.querySelector("#watch-facts").textContent.startsWith("Kernel %s with tile")`, r.Name))
		b.Eval(`(() => {
			const c = document.querySelector("#matrices .grid.c").getBoundingClientRect();
			for (const [side, of] of [["row", "M"], ["col", "N"]]) {
				const field = document.querySelector("#sum-" + side);
				field.value = field.max;
				field.dispatchEvent(new Event("change"));
			}
			document.querySelector("[data-go=last]").click();
		})()`, nil)
		var seen struct {
			Total, Row, Col, K float64
			Done               bool
		}
		b.Eval(`(() => {
			const terms = [...document.querySelectorAll("#formula .term")], value = name => Number(document.querySelector(name).value);
			return {Total: Number(document.querySelector("#formula .total").firstChild.textContent),
				Row: value("#sum-row"), Col: value("#sum-col"), K: terms.length, Done: terms.every(t => t.classList.contains("done"))};
		})()`, &seen)
		want := 0.0
		for k := range int(seen.K) {
			want += digit(int(seen.Row), k, int(seen.K)) * (10 - digit(k, int(seen.Col), r.Watched.N))
		}
		if !seen.Done || int(seen.K) != r.Watched.K || seen.Total != want {
			t.Errorf("%s: got the sum %+v, want %v", r.ID, seen, want)
		}
		b.Size(390, 844, "light")
		var needed int
		b.Eval(`document.documentElement.scrollWidth`, &needed)
		if b.Size(1400, 1000, "light"); needed > 390 {
			t.Errorf("%s: the page is %d pixels wide on a phone", r.ID, needed)
		}
	}
}

// digit returns an element of the page's A: they count from 1 to 9 row by row.
func digit(row, col, cols int) float64 {
	if cols%9 == 0 {
		cols++
	}
	return float64((row*cols+col)%9 + 1)
}

// TestWatchRace follows the link of each race to its two threads.
func TestWatchRace(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#break", ready["break"])
	for _, m := range study.Mistakes() {
		if m.Finds != "race" {
			continue
		}
		b.Eval(fmt.Sprintf(`location.hash = "#break?mistake=%s"`, m.ID), nil)
		b.Wait(fmt.Sprintf(`document.querySelector("#break-verdict .watch-link")?.href.includes("mistake=%s&")`, m.ID))
		b.Click("#break-verdict .watch-link")
		b.Wait(fmt.Sprintf(`document.querySelector("#watch-finding a[href='#break?mistake=%s']") &&
			document.querySelectorAll("#watch-finding button").length === 2`, m.ID))
		var seen struct {
			Text, Caption string
			Marked        int
		}
		b.Eval(`({Text: document.querySelector("#watch-finding").textContent,
			Caption: document.querySelector("#caption").textContent,
			Marked: document.querySelectorAll("#inside .grid.t :is(.at, .other)[d^=M]").length})`, &seen)
		if !strings.Contains(seen.Text, "use the same word") || strings.HasPrefix(seen.Caption, "The block") ||
			seen.Marked != 2 {
			t.Errorf("%s: got %+v, want the two threads", m.ID, seen)
		}
	}
}

// TestBreak plants each mistake by its switch, and solves an exercise.
func TestBreak(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#break", ready["break"])
	for _, m := range study.Mistakes() {
		b.Click(fmt.Sprintf(`#switches input[value=%q]`, m.ID))
		b.Wait(fmt.Sprintf(`location.hash.includes(%q) && !document.querySelector("#break-run .primary").disabled &&
			document.querySelector("#break-verdict .verdict")`, m.ID))
		var seen struct {
			Text  string
			Marks int
		}
		b.Eval(`({Text: document.querySelector("#break-verdict").textContent,
			Marks: document.querySelectorAll("#break-listing .mark").length})`, &seen)
		if m.Finds != "result" && m.Finds != "stop" && seen.Marks == 0 || len(seen.Text) < 80 {
			t.Errorf("%s: got %d marks and %q", m.ID, seen.Marks, seen.Text)
		}
	}
	// The first exercise has as many findings as its mistake.
	b.Click(".exercise:nth-child(1) summary")
	b.Wait(`document.querySelector(".exercise:nth-child(1) textarea").value`)
	b.Click(".exercise:nth-child(1) .run .primary")
	b.Wait(`document.querySelector(".exercise:nth-child(1) .verdict.bad")`)
	var cards, numbers int
	b.Eval(`document.querySelectorAll(".exercise:nth-child(1) .finding").length`, &cards)
	b.Eval(`document.querySelector(".exercise:nth-child(1) .numbers").textContent.split("\n").length`, &numbers)
	if cards != 2 || numbers < 100 {
		t.Errorf("the first exercise has %d findings and %d numbers of lines, want 2 findings", cards, numbers)
	}
	b.Click(".exercise:nth-child(1) summary")
	// The second exercise is solved by the boundary test. It then states its rule.
	b.Click(".exercise:nth-child(2) summary")
	b.Wait(`document.querySelector(".exercise:nth-child(2) textarea").value.includes("0, 1;")`)
	b.Click(".exercise:nth-child(2) .run .primary")
	b.Wait(`document.querySelector(".exercise:nth-child(2) .verdict.bad")`)
	b.Eval(`(() => {
		const text = document.querySelector(".exercise:nth-child(2) textarea");
		text.value = text.value.replace("0, 1;", "%col, %N;");
	})()`, nil)
	b.Click(".exercise:nth-child(2) .run .primary")
	b.Wait(`document.querySelector(".exercise:nth-child(2) .verdict.good") &&
		document.querySelector(".exercise:nth-child(2) .why").textContent.startsWith("Learnt: A grid of whole blocks")`)
	visit(b, url+"#break", ready["break"])
	var state string
	b.Eval(`document.querySelector(".exercise:nth-child(2) .state").textContent`, &state)
	if state != "solved" {
		t.Errorf("after a reload the exercise is %q, want solved", state)
	}
	// PTX that cannot be parsed is refused with its line.
	b.Click(".exercise:nth-child(1) summary")
	b.Wait(`document.querySelector(".exercise:nth-child(1) textarea").value`)
	b.Eval(`document.querySelector(".exercise:nth-child(1) textarea").value = "nonsense"`, nil)
	b.Click(".exercise:nth-child(1) .run .primary")
	b.Wait(`document.querySelector(".exercise:nth-child(1) .notice")?.textContent.includes("tiled.ptx:1")`)
}

// BenchmarkFirstResult measures the time from opening the page in a new browser to the result of
// the first kernel. The phones have a small screen. The thread of the page is four times as slow on
// the first, and all of the browser shares half or a quarter of a core on the others.
func BenchmarkFirstResult(b *testing.B) {
	for _, device := range []struct {
		name   string
		width  int
		slower int     // factor of the page's thread; Chromium cannot slow the worker that emulates
		cores  float64 // of all threads together; 0 is no limit
	}{{"laptop", 1400, 1, 0}, {"phone", 390, 4, 0}, {"half-core", 390, 1, 0.5}, {"quarter-core", 390, 1, 0.25}} {
		b.Run(device.name, func(b *testing.B) {
			var times []float64
			for b.Loop() {
				b.StopTimer()
				tab, url := serve(b, func(t testing.TB) *browser.Tab {
					if device.cores > 0 {
						return browser.OpenLimited(t, device.cores)
					}
					return browser.Open(t)
				})
				tab.Size(device.width, 844, "light")
				tab.Do("Emulation.setCPUThrottlingRate", map[string]any{"rate": device.slower}, nil)
				time.Sleep(2 * time.Second) // the browser has started, as on a phone
				b.StartTimer()
				start := time.Now()
				tab.Visit(url)
				tab.Eval(firstResult, nil)
				times = append(times, time.Since(start).Seconds())
			}
			slices.Sort(times)
			b.ReportMetric(times[0], "min-s")
			b.ReportMetric(times[len(times)/2], "median-s")
			b.ReportMetric(times[len(times)-1], "max-s")
		})
	}
}

// firstResult is a promise of the first result. Repeated questions would take time from the page.
const firstResult = `new Promise(done => {
	const check = () => document.querySelector("#ladder-result .verdict.good") && done();
	new MutationObserver(check).observe(document, { subtree: true, childList: true });
	check();
})`

// TestMemory runs a kernel a hundred times. The memory of the emulator and the number of elements
// of the page do not grow after the first runs.
func TestMemory(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#ladder?rung=tiled-8&m=16&n=16&k=16", ready["ladder"])
	measure := func(runs int) (bytes, elements int) {
		b.Eval(fmt.Sprintf(`(async () => {
			const button = document.querySelector("#ladder-form .primary");
			for (let i = 0; i < %d; i++) {
				button.click();
				while (button.disabled) await new Promise(done => setTimeout(done, 5));
			}
		})()`, runs), nil)
		b.Eval(`import("./engine.js").then(engine => engine.memory)`, &bytes)
		b.Eval(`document.querySelectorAll("*").length`, &elements)
		return bytes, elements
	}
	bytes, elements := measure(20)
	after, more := measure(100)
	t.Logf("%d bytes after 20 runs, %d after 120", bytes, after)
	if after > bytes*5/4 || more != elements {
		t.Errorf("100 runs grew the memory from %d to %d bytes, and the page from %d to %d elements", bytes, after, elements,
			more)
	}
}
