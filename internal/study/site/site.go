// Package site holds the page of tilework study: static files, the study compiled to WebAssembly,
// and a handler that serves them.
package site

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"tilework/internal/report"
)

//go:embed page
var page embed.FS

// program is the package that is compiled to WebAssembly.
const program = "tilework/internal/study/wasm"

// Site holds the contents of the page's files by name.
type Site map[string][]byte

// Files of the page.
const (
	index  = "index.html"
	worker = "worker.js" // not a module
)

// New builds the site with the go command, from tilework's sources. The go command keeps the
// results of the compiler in its own cache, so only the first build takes long.
func New(ctx context.Context) (Site, error) {
	s := Site{"theme.css": []byte(report.Theme())}
	files, err := fs.Sub(page, "page")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.completeHead()
	return s, s.addProgram(ctx)
}

// completeHead adds the policy to the head of the page, for other servers than Server, and lets the
// browser load all modules of the page at once, before it knows their imports.
func (s Site) completeHead() {
	meta := fmt.Sprintf("<head>\n<meta http-equiv=\"Content-Security-Policy\" content=%q>", policy)
	var links strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if path.Ext(name) == ".js" && name != worker {
			fmt.Fprintf(&links, "<link rel=\"modulepreload\" href=%q>\n", name)
		}
	}
	s[index] = bytes.Replace(s[index], []byte("<head>"), []byte(meta), 1)
	s[index] = bytes.Replace(s[index], []byte("</head>"), []byte(links.String()+"</head>"), 1)
}

// addProgram adds the compiled program, compressed, and the JavaScript of the Go distribution that
// starts it. The program's name has no known extension, so that no server adds a Content-Encoding
// and the page decompresses it.
func (s Site) addProgram(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "tilework-study")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	out := filepath.Join(folder, "study.wasm")
	if _, err := goCommand(ctx, "build", "-trimpath", "-ldflags=-s -w", "-o", out, program); err != nil {
		return err
	}
	binary, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	root, err := goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return err
	}
	if s["wasm_exec.js"], err = os.ReadFile(filepath.Join(root, "lib", "wasm", "wasm_exec.js")); err != nil {
		return fmt.Errorf("%w: want a Go distribution of version 1.24 or later", err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(binary); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	s["study.wasm.packed"] = packed.Bytes()
	return nil
}

// goCommand runs the go command for WebAssembly in the folder of tilework's sources, and returns
// its output. A build with -trimpath does not know that folder, and then the current folder must be
// in a module that contains or requires tilework.
func goCommand(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", args...)
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if _, err := os.Stat(file); err == nil {
			c.Dir = filepath.Dir(file)
		}
	}
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0")
	var failed bytes.Buffer
	c.Stderr = &failed
	out, err := c.Output()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("no go command: want Go 1.26 or later, which compiles the page's program, " +
			"or a folder that tilework study --export wrote elsewhere")
	case err != nil:
		reason, _, _ := strings.Cut(strings.TrimSpace(failed.String()), "\n")
		return "", fmt.Errorf("go %s: %w: %s: want to run in the folder of tilework's sources", args[0], err, reason)
	}
	return strings.TrimSpace(string(out)), nil
}
