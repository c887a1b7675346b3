package tilework_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the Markdown files of the repository.
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
		t.Fatalf("%d pages, %v", len(files), err)
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

// TestDocsLinks: what a page links to is there, headings too.
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
				t.Errorf("%s links to a heading %q that %s has not", page, heading, file)
			}
		}
	}
}

// anchors are the names under which a page's headings are linked to.
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

// TestDocsSnippets: code on a page about a kernel is in one of the files that the page links
// to, line by line and in that order; on another page, if the paragraph before it links to
// one. What is between two lines may be left out, and lines with … are not looked for.
func TestDocsSnippets(t *testing.T) {
	held := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, at := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			about := text
			if !strings.HasPrefix(page, filepath.Join("docs", "kernels")) { // whose code may be a user's
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
			held++
			code := text[at[2]:at[3]]
			if !slices.ContainsFunc(files, func(file string) bool { return missing(code, read(t, file)) == "" }) {
				var lacks []string
				for _, file := range files {
					lacks = append(lacks, file+" lacks "+missing(code, read(t, file)))
				}
				t.Errorf("%s has code that is in none of its files:\n%s\n%s", page, code, strings.Join(lacks, "\n"))
			}
		}
	}
	if held < 5 {
		t.Errorf("only %d pieces of code were held against their files", held)
	}
}

// missing is the first line of code that does not follow those before it in text.
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
