package site

import (
	"html"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestServerRequests checks which requests the server answers, and the headers of each answer.
func TestServerRequests(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := Site{index: []byte("<head></head>"), "study.css": nil, "x.bin": nil}
	s.completeHead()
	server := s.Server("Study.example")
	for _, c := range []struct {
		method, host, path string
		code               int
		kind               string // of the content, if it is answered
	}{
		{"GET", "127.0.0.1:8080", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "[::1]:8080", "/index.html", 200, "text/html; charset=utf-8"},
		{"GET", "[::1]", "/study.css", 200, "text/css; charset=utf-8"},
		{"GET", "localhost:8080", "/x.bin", 200, "application/octet-stream"},
		{"GET", "LOCALHOST", "/", 200, "text/html; charset=utf-8"},
		{"GET", "study.EXAMPLE:80", "/", 200, "text/html; charset=utf-8"},
		{"GET", own + ":80", "/", 200, "text/html; charset=utf-8"},
		{"GET", "127.0.0.1", "/none", 404, ""},
		{"GET", "attacker.example:8080", "/", 421, ""},
		{"GET", "localhost.attacker.example", "/", 421, ""},
		{"GET", "127.0.0.1.attacker.example:80", "/", 421, ""},
		{"GET", "", "/", 421, ""},
		{"GET", ":8080", "/", 421, ""},
		{"POST", "127.0.0.1", "/", 405, ""},
		{"PUT", "127.0.0.1", "/new", 405, ""},
		{"OPTIONS", "127.0.0.1", "/", 405, ""},
	} {
		q := httptest.NewRequest(c.method, c.path, nil)
		q.Host = c.host
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, q)
		kind, sniff := w.Header().Get("Content-Type"), w.Header().Get("X-Content-Type-Options")
		if w.Code != c.code || sniff != "nosniff" || c.kind != "" && kind != c.kind {
			t.Errorf("%s %s of %q: got %d, %q and %q, want %d, %q and nosniff", c.method, c.path, c.host, w.Code, kind, sniff,
				c.code, c.kind)
		}
		if allow := w.Header().Get("Allow"); (allow == "GET, HEAD") != (c.code == 405) {
			t.Errorf("%s: got Allow %q", c.method, allow)
		}
		rules := w.Header().Get("Content-Security-Policy")
		if c.code != 421 && rules != policy+"; frame-ancestors 'none'" {
			t.Errorf("%s %s: got the policy %q", c.method, c.path, rules)
		}
	}
	if server.ReadTimeout <= 0 || server.WriteTimeout <= 0 || server.IdleTimeout <= 0 {
		t.Errorf("timeouts %v, %v and %v: want all", server.ReadTimeout, server.WriteTimeout, server.IdleTimeout)
	}
}

// TestPolicyOfThePage checks that exported files have the policy too, before any script.
func TestPolicyOfThePage(t *testing.T) {
	page := string(newSite(t)[index])
	before, _, _ := strings.Cut(page, "<script")
	want := `<meta http-equiv="Content-Security-Policy" content="` + policy + `">`
	if strings.Count(html.UnescapeString(page), want) != 1 || !strings.Contains(before, want) {
		t.Errorf("want %s before the first script: %.1000s", want, page)
	}
}
