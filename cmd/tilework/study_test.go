package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tilework/internal/testkit"
)

// needWebAssembly skips a test that builds the program of the page unless testkit.Full.
func needWebAssembly(t *testing.T) {
	t.Helper()
	if !testkit.Full() {
		t.Skip("TILEWORK_FULL=1 builds the program of the page, as WebAssembly")
	}
}

// TestStudyExport writes the page's files. It replaces them only with --force.
func TestStudyExport(t *testing.T) {
	needWebAssembly(t)
	folder := filepath.Join(t.TempDir(), "page")
	stdout, stderr, code := run(t.Context(), "study", "--export", folder)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for _, name := range []string{"index.html", "main.js", "study.wasm.packed", "theme.css", "wasm_exec.js"} {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 || !strings.Contains(stdout, path) {
			t.Errorf("%s: %v, %v; printed %q", name, info, err, stdout)
		}
	}
	_, stderr, code = run(t.Context(), "study", "--export", folder)
	if code != 2 || !strings.Contains(stderr, "--force") {
		t.Errorf("a second time: exit code %d, %q; want 2 and a hint at --force", code, stderr)
	}
	if _, stderr, code := run(t.Context(), "study", "--export", folder, "--force"); code != 0 {
		t.Errorf("with --force: exit code %d, %s", code, stderr)
	}
}

// TestStudyServes serves the page until the command is interrupted, which is no failure.
func TestStudyServes(t *testing.T) {
	needWebAssembly(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		f := studyFlags{addr: "localhost:0", noOpen: true}
		ended <- f.run(ctx, stdout, io.Discard)
	}()
	url := make([]byte, 100)
	n, err := address.Read(url)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(strings.TrimSpace(string(url[:n])))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if page, err := io.ReadAll(answer.Body); err != nil || !bytes.Contains(page, []byte("How a GPU multiplies matrices")) {
		t.Errorf("got %.200s, error %v", page, err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after an interruption: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("an interruption does not end the command")
	}
}

// TestStudyWrong checks the messages for wrong flags, which come before anything is compiled.
func TestStudyWrong(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("old", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"file", "old/index.html"} {
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ args, text string }{
		{"study --addr nowhere:port", "--addr nowhere:port"},
		{"study --addr localhost:1 --export page", "exclude each other"},
		{"study --no-open --export page", "exclude each other"},
		{"study --force", "--force without --export"},
		{"study page", "unexpected argument"},
		{"study --export file", "--export file is a file: want a folder"},
		{"study --export old", "old/index.html: file already exists"},
	} {
		_, stderr, code := run(t.Context(), strings.Fields(test.args)...)
		if code != 2 || !strings.Contains(stderr, test.text) || strings.Contains(stderr, "compiling") {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", test.args, code, stderr, test.text)
		}
	}
}
