package site

import (
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/browser"
)

// named are the roles whose names a screen reader speaks.
var named = []string{"button", "link", "textbox", "slider", "spinbutton", "combobox", "radio", "checkbox", "image",
	"listbox", "progressbar", "table", "form", "region", "navigation"}

// checkTree reads the accessibility tree of a part, which a screen reader speaks. The page has one
// heading of the first level and its landmarks, and every control and drawing has a name.
func checkTree(t *testing.T, b *browser.Tab, part string) {
	t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value string }
			Name    struct{ Value string }
			DOM     int `json:"backendDOMNodeId"`
		}
	}
	b.Do("Accessibility.getFullAXTree", nil, &tree)
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		roles[n.Role.Value]++
		if slices.Contains(named, n.Role.Value) && strings.TrimSpace(n.Name.Value) == "" {
			t.Errorf("%s: a %s has no name (node %d)", part, n.Role.Value, n.DOM)
		}
	}
	for _, role := range []string{"banner", "navigation", "main", "contentinfo", "heading", "status"} {
		if roles[role] == 0 {
			t.Errorf("%s: no %s in the tree: %v", part, role, roles)
		}
	}
	var levels []int
	b.Eval(`[...document.querySelectorAll("h1, h2, h3, h4")].filter(e => e.checkVisibility()).map(e => +e.tagName[1])`,
		&levels)
	for i := 1; i < len(levels); i++ {
		if levels[i] > levels[i-1]+1 || levels[i] == 1 {
			t.Errorf("%s: the levels of the headings are %v", part, levels)
			break
		}
	}
}

// checkKeyboard walks through a part with the key Tab. It reaches every control, and the
// control with the focus has an outline.
func checkKeyboard(t *testing.T, b *browser.Tab, part string) {
	t.Helper()
	var want []string
	b.Wait(`!document.querySelector("progress:not([hidden])")`)
	b.Eval(`(() => {
			// Tab stops once in a group of radio buttons, and the arrow keys choose one.
			const tabStop = name => document.querySelector("[name=" + name + "]:checked") ?? document.querySelector("[name=" + name + "]");
			const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
				.filter(e => e.checkVisibility() && !e.disabled && (e.type !== "radio" || e === tabStop(e.name)));
			return all.map((e, i) => (e.dataset.walk = "w" + i));
		})()`, &want)
	seen := map[string]bool{}
	for range len(want) + 3 {
		b.Press("Tab")
		var at struct {
			ID, What string
			Shown    bool
		}
		b.Eval(`(() => {
				const e = document.activeElement, outlined = e => e && getComputedStyle(e).outlineStyle !== "none";
				return {ID: e.dataset.walk ?? "", What: e.outerHTML.slice(0, 120), Shown: outlined(e) || outlined(e.closest("label"))};
			})()`, &at)
		if at.ID != "" && !at.Shown {
			t.Errorf("%s: the focus is not visible on %s", part, at.What)
		}
		seen[at.ID] = true
	}
	for _, id := range want {
		if !seen[id] {
			var what string
			b.Eval(`document.querySelector("[data-walk=`+id+`]").outerHTML.slice(0, 120)`, &what)
			t.Errorf("%s: Tab does not reach %s", part, what)
		}
	}
}

// checkContrast checks the contrast of all texts with their background, as WCAG 2.2 requires it for
// level AA: 4.5 to 1, and 3 to 1 for large texts.
func checkContrast(t *testing.T, b *browser.Tab, part, mode string) {
	t.Helper()
	var low []string
	b.Eval(`new Promise(done => setTimeout(done, 300)).then(() => {
				const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
				const parse = color => {
					canvas.clearRect(0, 0, 1, 1);
					canvas.fillStyle = color;
					canvas.fillRect(0, 0, 1, 1);
					return [...canvas.getImageData(0, 0, 1, 1).data];
				};
				const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] / 255 + under[i] * (1 - top[3] / 255));
				const luminance = rgb => {
					const [r, g, b] = rgb.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
					return 0.2126 * r + 0.7152 * g + 0.0722 * b;
				};
				const behind = e => e ? over(parse(getComputedStyle(e).backgroundColor), behind(e.parentElement)) : [255, 255, 255];
				const low = new Map();
				const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
				while (walk.nextNode()) {
					const e = walk.currentNode.parentElement, style = getComputedStyle(e);
					if (!walk.currentNode.data.trim() || !e.getClientRects().length || e.closest(".hidden, .skip, svg, :disabled, option, title")) continue;
					let opacity = 1;
					for (let p = e; p; p = p.parentElement) opacity *= getComputedStyle(p).opacity;
					const back = behind(e), color = parse(style.color);
					color[3] *= opacity;
					const [x, y] = [luminance(over(color, back)), luminance(back)], ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
					const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
					if (ratio < (large ? 3 : 4.5)) low.set(e.tagName + "." + e.className, ratio.toFixed(2) + " " + walk.currentNode.data.trim().slice(0, 40));
				}
				return [...low].map(pair => pair.join(": "));
			})`, &low)
	if len(low) > 0 {
		t.Errorf("%s, %s: %q", part, mode, low)
	}
}
