package tilework_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tilework/internal/phrase"
)

// pages returns the paths of the Markdown files in the repository.
func pages(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d pages, error %v: want at least 10", len(files), err)
	}
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)]*)?\)`)

// TestDocsLinks checks that the files and headings that pages link to exist.
func TestDocsLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, heading := l[1], strings.TrimPrefix(l[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
				continue
			}
			if heading != "" && !slices.Contains(anchors(read(t, file)), heading) {
				t.Errorf("%s links to heading %q, which is not in %s", page, heading, file)
			}
		}
	}
}

// anchors returns the link fragments of the headings in text.
func anchors(text string) (names []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		name = strings.ReplaceAll(regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(name, ""), " ", "-")
		names = append(names, name)
	}
	return names
}

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	source  = regexp.MustCompile(`\]\(([^)]*internal/[^)]*\.go)\)`)
)

// TestDocsSnippets checks that Go code in the docs matches a linked source file. On a page about a
// kernel the page must link to the file. On other pages the paragraph before the code must, or the
// code is not checked. The lines must occur in the file in the same order. The code may omit lines,
// and lines with … are skipped.
func TestDocsSnippets(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, at := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			about := text
			if !strings.HasPrefix(page, filepath.Join("docs", "kernels")) { // other pages also have user code
				paragraphs := strings.Split(strings.TrimSpace(text[:at[0]]), "\n\n")
				about = paragraphs[len(paragraphs)-1]
			}
			var files []string
			for _, l := range source.FindAllStringSubmatch(about, -1) {
				files = append(files, filepath.Join(filepath.Dir(page), l[1]))
			}
			if files == nil {
				continue
			}
			checked++
			code := text[at[2]:at[3]]
			if !slices.ContainsFunc(files, func(file string) bool { return missing(code, read(t, file)) == "" }) {
				var lacks []string
				for _, file := range files {
					lacks = append(lacks, file+" lacks "+missing(code, read(t, file)))
				}
				t.Errorf("%s: code is in none of the linked files:\n%s\n%s", page, code, strings.Join(lacks, "\n"))
			}
		}
	}
	if checked < 5 {
		t.Errorf("checked only %d pieces of code, want at least 5", checked)
	}
}

// missing returns the first line of code that does not occur in text after the preceding lines, or
// the empty string.
func missing(code, text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	for line := range strings.Lines(code) {
		line = strings.TrimSpace(line)
		if line == "" || strings.Contains(line, "…") {
			continue
		}
		i := slices.Index(lines, line)
		if i < 0 {
			return line
		}
		lines = lines[i+1:]
	}
	return ""
}

// TestChoosingCounts checks that docs/choosing.md states the numbers of products whose times are in
// testdata.
func TestChoosingCounts(t *testing.T) {
	text := strings.Join(strings.Fields(read(t, "docs/choosing.md")), " ")
	for _, c := range []struct{ times, sentence string }{
		{"internal/gpu/choose/testdata/times/*.txt", "all candidates near the choice for %s products"},
		{"internal/cpu/testdata/times/*.txt", "in the mean on the %s products of testdata/times"},
	} {
		files, err := filepath.Glob(c.times)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: found %d files, error %v", c.times, len(files), err)
		}
		n := 0
		for _, file := range files {
			for line := range strings.Lines(read(t, file)) {
				if !strings.HasPrefix(line, "#") {
					n++
				}
			}
		}
		if want := fmt.Sprintf(c.sentence, phrase.Commas(n)); !strings.Contains(text, want) {
			t.Errorf("docs/choosing.md lacks %q", want)
		}
	}
}
