package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// continued matches the end of a line that continues on the next, and the indentation there.
var continued = regexp.MustCompile(`\s*\\\n\s*`)

// documented are the command lines of the pages, and of every verb's help, by where they stand.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	lines := map[string][]string{}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(append(pages, deeper...), "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		whole := continued.ReplaceAllString(string(text), " ")
		for _, m := range regexp.MustCompile("(?m)^\\$ (?:go run \\./cmd/)?(tilework .*)$|`(tilework [a-z]+ [^`]*)`").FindAllStringSubmatch(whole, -1) {
			lines[page] = append(lines[page], m[1]+strings.Join(strings.Fields(m[2]), " "))
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(continued.ReplaceAllString(c.Example, " ")) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "tilework") {
				lines[c.CommandPath()+" --help"] = append(lines[c.CommandPath()+" --help"], line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newCommand())
	return lines
}

// TestDocumentedCommands: each command line of the documentation has a verb and flags that
// there are. Those that only tell something, and need no file of the reader's, run.
func TestDocumentedCommands(t *testing.T) {
	held, ran := 0, 0
	for where, lines := range documented(t) {
		for _, line := range lines {
			for _, one := range strings.Split(line, " && ") {
				args := words(one)
				if slices.Contains(args, "…") {
					continue // not all of it is there
				}
				held++
				c, rest, err := newCommand().Find(args[1:])
				if err == nil {
					err = c.ParseFlags(rest)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", where, one, err)
					continue
				}
				if c.Name() == "explain" && !slices.ContainsFunc(args, isPlace) || c.Name() == "occupancy" || c.Name() == "kernels" {
					ran++
					if _, stderr, code := run(t.Context(), args[1:]...); code != 0 {
						t.Errorf("%s: %s: exit code %d, %s", where, one, code, stderr)
					}
				}
			}
		}
	}
	if held < 60 || ran < 15 {
		t.Errorf("%d command lines were found, %d of them run: are they written as they should be?", held, ran)
	}
}

// TestExamplesRun runs the commands of README.md and of the helps that multiply, list or emulate
// files, as a reader would in a fresh clone. Those of the helps run beside the files, in
// examples/data.
func TestExamplesRun(t *testing.T) {
	data, err := filepath.Abs("../../examples/data")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for where, lines := range documented(t) {
		verb, isHelp := strings.CutSuffix(where, " --help")
		if !isHelp && where != "../../README.md" || verb == "tilework" {
			continue
		}
		for _, line := range lines {
			args := words(line)
			runs := slices.Contains([]string{"mul", "files", "emulate"}, args[1])
			if !runs || slices.Contains(args, "gpu") || slices.Contains(args, "…") {
				continue
			}
			clone := t.TempDir()
			folder := filepath.Join(clone, "examples", "data")
			if err := os.CopyFS(folder, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			t.Chdir(clone)
			if !strings.Contains(line, "examples/data") {
				t.Chdir(folder)
			}
			want := 0
			if args[1] == "emulate" { // whose kernel is broken
				want = 1
			}
			ran++
			if _, stderr, code := run(t.Context(), args[1:]...); code != want {
				t.Errorf("%s: %s: exit code %d, want %d, %s", where, line, code, want, stderr)
			}
			// A second run refuses to replace the result.
			if i := slices.Index(args, "-o"); i > 0 && args[i+1] != "-" && !slices.Contains(args, "--force") {
				if _, stderr, code := run(t.Context(), args[1:]...); code != 2 || !strings.Contains(stderr, args[i+1]+": file already exists") {
					t.Errorf("%s: %s again: exit code %d, %s", where, line, code, stderr)
				}
			}
		}
	}
	if ran < 15 {
		t.Errorf("only %d commands were run", ran)
	}
}

// words are a command line's, up to a comment, to what stands apart behind it, or to what a
// shell does with the output.
func words(line string) (args []string) {
	line, _, _ = strings.Cut(line, "  ")
	for _, w := range strings.Fields(line) {
		if w == "|" || w == ">" || strings.HasPrefix(w, "#") {
			break
		}
		args = append(args, strings.Trim(w, "'"))
	}
	return args
}

// isPlace reports whether a word stands for a name of the reader's choice.
func isPlace(word string) bool { return word == "NAME" || word == "KERNEL" }
