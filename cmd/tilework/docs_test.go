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

// continued matches a backslash at the end of a line, and the indentation of the next line.
var continued = regexp.MustCompile(`\s*\\\n\s*`)

// commandLine matches a command line: after a $, or as inline code.
var commandLine = regexp.MustCompile("(?m)^\\$ (?:go run \\./cmd/)?(tilework .*)$|`(tilework [a-z]+ [^`]*)`")

// documented returns the command lines in the documentation by page, and those in the examples of
// help texts by command.
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
		for _, m := range commandLine.FindAllStringSubmatch(whole, -1) {
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

// TestDocumentedCommands checks that each documented command line has an existing command and
// existing flags. It runs those that only print something and need no files.
func TestDocumentedCommands(t *testing.T) {
	parsed, ran := 0, 0
	for where, lines := range documented(t) {
		for _, line := range lines {
			for _, one := range strings.Split(line, " && ") {
				args := words(one)
				if slices.Contains(args, "…") {
					continue // abbreviated
				}
				parsed++
				c, rest, err := newCommand().Find(args[1:])
				if err == nil {
					err = c.ParseFlags(rest)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", where, one, err)
					continue
				}
				explain := c.Name() == "explain" && !slices.ContainsFunc(args, isPlaceholder)
				if explain || c.Name() == "occupancy" || c.Name() == "kernels" || c.Name() == "scaling" {
					ran++
					if _, stderr, code := run(t.Context(), args[1:]...); code != 0 {
						t.Errorf("%s: %s: exit code %d, %s", where, one, code, stderr)
					}
				}
			}
		}
	}
	if parsed < 60 || ran < 15 {
		t.Errorf("found %d command lines and ran %d, want at least 60 and 15: does their format match the expressions?",
			parsed, ran)
	}
}

// asProcesses makes commands start this test binary as the command, on the platforms where it can.
var asProcesses = func(*testing.T) {}

// TestExamplesRun runs the mul, files and emulate commands of README.md in a copy of the
// repository's root, and those of the help texts in a copy of examples/data. README.md also shows
// the finding of emulate.
func TestExamplesRun(t *testing.T) {
	asProcesses(t)
	data, err := filepath.Abs("../../examples/data")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
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
			if strings.Contains(line, "broken.ptx") {
				want = 1
			}
			ran++
			stdout, stderr, code := run(t.Context(), args[1:]...)
			if code != want {
				t.Errorf("%s: %s: exit code %d, want %d, %s", where, line, code, want, stderr)
			}
			finding, _, _ := strings.Cut(stdout, "\n")
			if want == 1 && !isHelp && !strings.Contains(strings.Join(strings.Fields(string(readme)), " "), finding) {
				t.Errorf("%s: %s: the page lacks the finding %s", where, line, finding)
			}
			// A second run must refuse to replace the result.
			if i := slices.Index(args, "-o"); i > 0 && args[i+1] != "-" && !slices.Contains(args, "--force") {
				_, stderr, code := run(t.Context(), args[1:]...)
				if code != 2 || !strings.Contains(stderr, args[i+1]+": file already exists") {
					t.Errorf("%s: %s again: exit code %d, %s", where, line, code, stderr)
				}
			}
		}
	}
	if ran < 15 {
		t.Errorf("ran %d commands, want at least 15", ran)
	}
}

// words returns the words of a command line, up to a comment, two spaces, a pipe or a redirection.
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

// isPlaceholder reports whether a word stands for a name of the reader's choice.
func isPlaceholder(word string) bool { return word == "NAME" || word == "KERNEL" }
