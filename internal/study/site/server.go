package site

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// policy is the content security policy of the page and of its worker, which runs WebAssembly.
const policy = "default-src 'none'; style-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; " +
	"worker-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"

// mediaTypes are the types of files by extension. The system's table may have others.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

// Server returns a server of the page that is started for a host, which may be empty. It answers
// requests to that host, to localhost, to this machine's name and to IP addresses. A page of a
// stranger whose name resolves to this machine (DNS rebinding) cannot read the files.
func (s Site) Server(host string) *http.Server {
	names := []string{"localhost", host}
	if own, err := os.Hostname(); err == nil {
		names = append(names, own)
	}
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if !knownHost(q.Host, names) {
				http.Error(w, fmt.Sprintf("host %q: want an IP address or the host of --addr", q.Host),
					http.StatusMisdirectedRequest)
				return
			}
			s.ServeHTTP(w, q)
		}),
		ReadTimeout:  10 * time.Second,
		WriteTimeout: time.Minute, // for all 8 MB over a slow network
		IdleTimeout:  time.Minute,
	}
}

// knownHost reports whether the header Host has an IP address or one of the names.
func knownHost(header string, names []string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.Trim(header, "[]") // without a port
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}

// ServeHTTP serves the files. The folder is index.html.
func (s Site) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", policy+"; frame-ancestors 'none'")
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, fmt.Sprintf("method %q: want GET or HEAD", q.Method), http.StatusMethodNotAllowed)
		return
	}
	name := cmp.Or(strings.TrimPrefix(path.Clean(q.URL.Path), "/"), index)
	content, ok := s[name]
	if !ok {
		http.NotFound(w, q)
		return
	}
	header.Set("Content-Type", cmp.Or(mediaTypes[path.Ext(name)], "application/octet-stream"))
	header.Set("Cache-Control", "no-cache")
	http.ServeContent(w, q, name, time.Time{}, bytes.NewReader(content))
}
