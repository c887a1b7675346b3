package site

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"tilework/internal/testkit"
)

// built builds the site once for all tests.
var built = sync.OnceValues(func() (Site, error) { return New(background) })

// newSite skips the test unless testkit.Full, as the site contains a WebAssembly program.
func newSite(t testing.TB) Site {
	t.Helper()
	if !testkit.Full() {
		t.Skip("TILEWORK_FULL=1 builds the program of the page, as WebAssembly")
	}
	s, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// maxSize is the limit of all files together, in bytes.
const maxSize = 8 << 20

// TestSite checks the size of the site, and that each file has the media type that browsers
// require.
func TestSite(t *testing.T) {
	s := newSite(t)
	size := 0
	for name, content := range s {
		size += len(content)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/"+name, nil))
		if w.Code != 200 || w.Body.String() != string(content) {
			t.Errorf("%s: got status %d and %d bytes, want %d", name, w.Code, w.Body.Len(), len(content))
		}
		for extension, want := range map[string]string{".js": "text/javascript", ".css": "text/css", ".html": "text/html",
			".packed": "application/octet-stream"} {
			if kind := w.Header().Get("Content-Type"); strings.HasSuffix(name, extension) && !strings.HasPrefix(kind, want) {
				t.Errorf("%s: got type %q, want %s", name, kind, want)
			}
		}
	}
	t.Logf("%d files, %d bytes", len(s), size)
	if size > maxSize {
		t.Errorf("the files have %d bytes, want at most %d", size, maxSize)
	}
	for path, want := range map[string]int{"/": 200, "/missing.js": 404, "/../site.go": 404} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: got status %d, want %d", path, w.Code, want)
		}
	}
}
