package site

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"tilework/internal/study"
	"tilework/internal/testkit/browser"
)

// TestFirefox runs and watches every rung in a second engine, and plants every mistake. It runs
// alone, because Firefox needs several cores to start quickly.
func TestFirefox(t *testing.T) {
	f := browser.OpenFirefox(t)
	server := httptest.NewServer(newSite(t))
	t.Cleanup(server.Close)
	f.Visit(server.URL)
	f.Wait(ready["ladder"])
	open := func(hash, done string) {
		t.Helper()
		f.Eval(fmt.Sprintf(`location.hash = %q`, hash), new(string))
		f.Wait(done)
	}
	for _, r := range study.Rungs() {
		open("#ladder?rung="+r.ID, fmt.Sprintf(`
			document.querySelector("#ladder-result thead")?.textContent.includes(%q) &&
			document.querySelector("#ladder-result .verdict.good")`, r.Name))
		open("#watch?rung="+r.ID, fmt.Sprintf(`
			document.querySelector("#watch-facts").textContent.startsWith("Kernel %s with") &&
			document.querySelector("#watch .tick")`, r.Name))
	}
	for _, m := range study.Mistakes() {
		open("#break?mistake="+m.ID, fmt.Sprintf(`document.querySelector("#break-verdict .why")?.textContent === %q`, m.Why))
		var verdict string
		f.Eval(`document.querySelector("#break-verdict .verdict").className`, &verdict)
		if (verdict == "verdict good") != (m.Finds == "coalesce") {
			t.Errorf("%s: the verdict is %q", m.ID, verdict)
		}
	}
}
