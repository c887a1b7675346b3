package site

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestAddresses opens addresses with values that the page cannot show. It refuses each with a
// message, and keeps the address.
func TestAddresses(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#occupancy", ready["occupancy"])
	const refused = `!document.querySelector("#refused").hidden && ` +
		`![...document.querySelectorAll("main > section")].some(e => e.getClientRects().length)`
	for hash, want := range map[string]string{
		"#ladder?rung=tiled-16&m=1000&n=1000&k=1000": "m is 1000: want 1 to 256.",
		"#ladder?rung=tiled-16&k=0":                  "k is 0: want 1 to 256.",
		"#ladder?rung=tiled-16&n=1.5":                "n is 1.5: want 1 to 256.",
		"#ladder?rung=tiled-16&n=":                   "n is empty: want 1 to 256.",
		"#ladder?rung=tiled-9":                       "rung is tiled-9: want one of naive, tiled-2,",
		"#ladder?rung=blocked&tile=7":                "tile is 7: want one of ",
		"#ladder?gpu=h2000":                          "gpu is h2000: want one of t4,",
		"#ladder?speed=9":                            "speed is no part of this address: want rung, tile, gpu, m, n, k.",
		"#watch?rung=tiled-2&m=100":                  "m is 100: want 1 to 64.",
		"#watch?rung=tiled-2&block=-1":               "block is -1: want 0 to",
		"#watch?rung=tiled-2&threads=0,x":            "threads is x: want 0 to",
		"#watch?rung=tiled-2&mistake=bounds":         "mistake of rung tiled-2 is bounds: want one of",
		"#break?mistake=none":                        "mistake is none: want one of first-barrier,",
		"#own?y=1":                                   "y is no part of this address: want z.",
		"#occupancy?threads=4096":                    "threads is 4096: want 1 to 1,024.",
		"#occupancy?smShared=-1":                     "smShared is -1: want 0 to 1,024.",
		"#ladders?rung=naive":                        "The part of the page is ladders: want one of ladder, watch,",
	} {
		b.Eval(fmt.Sprintf(`location.hash = %q`, hash), nil)
		b.Wait(fmt.Sprintf(`%s && document.querySelector("#refused").textContent.includes(%q)`, refused, want))
		var now string
		if b.Eval(`location.hash`, &now); now != hash {
			t.Errorf("%s: the address is now %s", hash, now)
		}
	}
	for hash, want := range map[string]string{
		"#watch?rung=tiled-2&at=99":      "at is 99: want 0 to 25.",
		"#watch?rung=tiled-2&block=4":    "block 4: want 0 to 3",
		"#watch?rung=tiled-2&threads=4":  "threads is 4: want 0 to 3.",
		"#watch?rung=tiled-2&edited=1":   "This address is for a kernel that a reader edited",
		"#ladder?m=256&n=256&k=256":      "256×256×256 is 16,777,216 multiply-adds: want at most",
		"#ladder?rung=mma&gpu=t4":        "kernel mma needs sm_80, but t4 is sm_75",
		"#watch?rung=tiled-2&lines=9999": "lines is 9999: want 1 to ",
	} {
		b.Eval(fmt.Sprintf(`location.hash = %q`, hash), nil)
		b.Wait(fmt.Sprintf(`[...document.querySelectorAll(".notice")].some(e =>
			e.getClientRects().length && e.textContent.includes(%q))`, want))
	}
	// The link in the notice leads to the part without the values.
	b.Eval(`location.hash = "#ladder?m=999"`, nil)
	b.Wait(refused)
	b.Click("#refused a")
	b.Wait(`document.querySelector("#refused").hidden && !document.querySelector("#ladder").hidden`)
	// The text of another GPU has no figures of the H200.
	b.Eval(`location.hash = "#ladder?rung=naive&gpu=t4"`, nil)
	b.Wait(`document.querySelector("#rung-limit").textContent.includes("Tesla T4: at most 8.1 TFLOP/s") &&
		!document.querySelector("#rung-limit").textContent.includes("H200")`)
}

// TestWatchLayout checks that a laptop and a phone show the drawing first, and the controls beside
// it also while the reader scrolls.
func TestWatchLayout(t *testing.T) {
	b, url := open(t)
	for _, size := range [][2]int{{1366, 650}, {390, 844}} {
		b.Size(size[0], size[1], "light")
		visit(b, url+"#watch", ready["watch"])
		for _, scroll := range []int{0, 150} {
			var seen struct{ C, Above, Player, Bottom float64 }
			b.Eval(fmt.Sprintf(`(async () => {
				scrollTo(0, %d);
				await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
				const place = name => document.querySelector(name).getBoundingClientRect();
				return {C: place("#matrices .grid.c").bottom, Above: place("nav").bottom, Player: place("#watch .player").top,
					Bottom: place("#watch .player").bottom};
			})()`, scroll), &seen)
			if seen.C > seen.Player || seen.C < seen.Above || seen.Bottom > float64(size[1])+1 || seen.Player < seen.Above-1 {
				t.Errorf("%v, scrolled by %d: got %+v, want C above the controls, and both in the window", size, scroll, seen)
			}
		}
	}
}

// TestColors checks that each meaning has a color of its own in both modes.
func TestColors(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#occupancy", ready["occupancy"])
	for _, mode := range []string{"light", "dark"} {
		b.Size(1366, 650, mode)
		var colors []string
		b.Eval(`["a", "b", "c", "m", "bad", "s0", "global", "shared", "math", "sync"].map(name => {
			const e = document.body.appendChild(document.createElement("p"));
			e.style.color = "var(--" + name + ")";
			const color = getComputedStyle(e).color;
			e.remove();
			return color;
		})`, &colors)
		seen := map[string]bool{}
		for _, c := range colors {
			seen[c] = true
		}
		if len(seen) != len(colors) {
			t.Errorf("%s: got the colors %v, want them to differ", mode, colors)
		}
	}
}

// TestQuestion checks that the calculator keeps its result until the question is answered, or a
// value is changed.
func TestQuestion(t *testing.T) {
	b, url := open(t)
	shown := func(want bool) {
		t.Helper()
		var got bool
		if b.Eval(`document.querySelector("#occupancy-result .bars") !== null`, &got); got != want {
			t.Errorf("the result is shown: %v, want %v", got, want)
		}
	}
	const result = `document.querySelector("#occupancy-result .bars")`
	visit(b, url+"#occupancy", ready["occupancy"])
	shown(false)
	b.Click("#question label:nth-of-type(1)")
	b.Wait(`document.querySelector("#question .verdict.bad")`)
	shown(false)
	b.Click("#question label:nth-of-type(3)")
	b.Wait(`document.querySelector("#question .verdict.good") && ` + result)
	visit(b, url+"#occupancy?threads=128", result)
	visit(b, url+"#occupancy", ready["occupancy"])
	b.Click("#occupancy-result button")
	b.Wait(result)
}

// TestRoofline checks the text and the points of a measured kernel, and of one on another GPU.
func TestRoofline(t *testing.T) {
	b, url := open(t)
	for hash, want := range map[string]string{
		"#ladder?rung=mma&m=32&n=32&k=32": "Measured at 4096³, with tile 128x256x16/8x16/4: 160 TFLOP/s.",
		"#ladder?rung=naive&gpu=a30&m=32": "With caches, memory moves each matrix at least once",
	} {
		visit(b, url+hash, ready["ladder"])
		var seen struct {
			Text     string
			Measured int
		}
		b.Eval(`({Text: document.querySelector("#ladder-result figcaption").textContent,
			Measured: document.querySelectorAll("#ladder-result .measured circle").length})`, &seen)
		if !strings.Contains(seen.Text, want) || (seen.Measured == 1) != strings.HasPrefix(want, "Measured") {
			t.Errorf("%s: got %+v, want %q", hash, seen, want)
		}
	}
}

// TestPictures makes the pictures of docs if TILEWORK_UPDATE is set.
func TestPictures(t *testing.T) {
	if os.Getenv("TILEWORK_UPDATE") == "" {
		t.Skip("TILEWORK_UPDATE=1 makes the pictures of docs/study-browser.md")
	}
	b, url := open(t)
	const width = 1130
	for _, p := range []struct {
		name, hash, ready string
		height            int
	}{
		{"study-ladder", "#ladder?rung=tiled-16", ready["ladder"], 1372},
		{"study-watch", "#watch?rung=tiled-2&at=8", ready["watch"], 1190},
	} {
		b.Size(width, p.height, "light")
		visit(b, url+p.hash, p.ready)
		b.Eval(`(() => { document.documentElement.style.scrollbarWidth = "none"; })()`, nil)
		b.Wait(`!document.querySelector(".flying")`)
		var shot struct{ Data string }
		b.Do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
		data, err := base64.StdEncoding.DecodeString(shot.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("../../../docs/pictures/"+p.name+".png", data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
