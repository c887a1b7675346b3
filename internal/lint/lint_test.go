package lint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits of discouraged phrases per 1,000 lines of prose. A file with fewer than shortFile lines of
// prose may have maxInShortFile of them.
const (
	maxTreeDensity = 10
	maxFileDensity = 30
	shortFile      = 100
	maxInShortFile = 2
)

// unconverted lists the directories that do not follow the conventions yet. Their files are
// skipped. A name that ends in /... includes the directories below it.
var unconverted = []string{}

// isUnconverted reports whether dir, relative to the module root, is in list.
func isUnconverted(list []string, dir string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		root, ok := strings.CutSuffix(entry, "/...")
		return dir == root || ok && strings.HasPrefix(dir, root+"/")
	})
}

// sources parses the Go and Markdown files of the module, without testdata and the records in
// docs/results. checked leaves out generated files and those of unconverted directories.
func sources(t *testing.T) (all, checked []*File) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if d.IsDir() {
			hidden := name != "." && strings.HasPrefix(d.Name(), ".")
			if hidden || d.Name() == "testdata" || name == "docs/results" {
				return fs.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".go" && ext != ".md" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := Parse(name, src)
		if err != nil {
			return err
		}
		all = append(all, file)
		if !generated(src) && !isUnconverted(unconverted, filepath.ToSlash(filepath.Dir(rel))) {
			checked = append(checked, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, checked
}

func TestSources(t *testing.T) {
	all, files := sources(t)
	t.Run("names in Markdown", func(t *testing.T) {
		names := NewNames(all)
		for _, f := range files {
			if f.Name != "CHANGELOG.md" { // describes old versions too
				report(t, f.UnknownNames(names))
			}
		}
	})
	t.Run("line length", func(t *testing.T) {
		for _, f := range files {
			report(t, f.LongLines())
		}
	})
	t.Run("doc comments", func(t *testing.T) {
		for _, f := range files {
			report(t, f.DocComments())
		}
	})
	t.Run("phrases", func(t *testing.T) {
		var all []Finding
		total := 0
		for _, f := range files {
			found, lines := f.Phrases()
			if tooDense(len(found), lines) {
				t.Errorf("%s: %d phrases in %d lines of prose: want at most %d per 1,000, or %d in a short file",
					f.Name, len(found), lines, maxFileDensity, maxInShortFile)
				report(t, found)
			}
			all = append(all, found...)
			total += lines
		}
		if len(all)*1000 > maxTreeDensity*total {
			t.Errorf("%d phrases in %d lines of prose: want at most %d per 1,000", len(all), total, maxTreeDensity)
			report(t, all)
		}
	})
}

// report fails t with one line per finding, if there are any.
func report(t *testing.T, found []Finding) {
	t.Helper()
	if len(found) == 0 {
		return
	}
	var lines strings.Builder
	for _, f := range found {
		lines.WriteByte('\n')
		lines.WriteString(f.String())
	}
	t.Error(lines.String())
}

// tooDense reports whether a file with that many lines of prose has too many phrases.
func tooDense(phrases, lines int) bool {
	if lines < shortFile {
		return phrases > maxInShortFile
	}
	return phrases*1000 > maxFileDensity*lines
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x ", 50)
	checkFindings(t, (*File).LongLines, []findingsTest{
		{"comment of 100 columns", "// " + long[:97] + "\npackage p\n", nil},
		{"comment of 101 columns", "// " + long[:98] + "\npackage p\n", []int{1}},
		{"multi-byte characters", "// " + strings.Repeat("é ", 48) + "\npackage p\n", nil},
		{"inside a block comment", "package p\n\n/*\n" + long + "x\n*/\n", []int{4}},
		{"long URL", "// https://" + strings.Repeat("x", 100) + "\npackage p\n", nil},
		{"code of 120 columns", "package p\n\nconst c = `" + strings.Repeat("x", 108) + "`\n", nil},
		{"code of 121 columns", "package p\n\nconst c = `" + strings.Repeat("x", 109) + "`\n", []int{3}},
		{"code with a comment after it", "package p\n\nvar v int // " + long[:98] + "\n", nil},
		{"inside a raw string", "package p\n\nconst c = `\n" + long + long + "\n`\n", nil},
	})
}

func TestPhrases(t *testing.T) {
	phrases := func(f *File) []Finding { found, _ := f.Phrases(); return found }
	checkFindings(t, phrases, []findingsTest{
		{"plain", "// Package p adds matrices.\npackage p\n", nil},
		{"doc comment", "// Package p is what adds.\npackage p\n", []int{1, 1}},
		{"comment after code", "package p\n\nvar v int // the card\n", []int{3}},
		{"string literal", fmt.Sprintf("package p\n\nvar v = %q\n", "the card // the card"), nil},
		{"block comment", "package p\n\n/*\nThe card.\n*/\n", []int{4}},
		{"indented code", "package p\n\n// Plain:\n//\n//\tthe card\n", nil},
		{"directive", "package p\n\n//go:generate go run the card\n", nil},
		{"upper case", "package p\n\n// Nobody reads it.\n", []int{3}},
		{"question", "package p\n\n// Does it know what it costs? Yes.\n", nil},
		{"statement before a question", "package p\n\n// See what it costs. Is it much?\n", []int{3}},
		{"stands for", "package p\n\n// K stands for depth.\n", nil},
		{"stands after stands for", "package p\n\n// K stands for depth, which stands here.\n", []int{3}},
		{"so many that", "package p\n\n// It has so many that they spill.\n", nil},
		{"so many", "package p\n\n// It has so many bytes.\n", []int{3}},
	})

	md, err := Parse("a.md", []byte("# The kernels\n\nThe card `the card` [page](the card).\n\n```\nthe card\n```\n"))
	if err != nil {
		t.Fatal(err)
	}
	found, lines := md.Phrases()
	if len(found) != 1 || found[0].String() != "a.md:3: card: 'GPU'" || lines != 2 {
		t.Errorf("Markdown has findings %v in %d lines of prose: want one at line 3 in 2 lines", found, lines)
	}
}

func TestUnknownNames(t *testing.T) {
	var files []*File
	for name, src := range map[string]string{
		"p/p.go": "package p\n\ntype Plan struct{ KBegin int }\n\nfunc (Plan) Run() {}\n\n" +
			"// Old is gone.\nfunc stepsAhead() {}\n",
		"p/p_test.go": "package p_test\n\nfunc TestPlan() {}\n",
		"q/q.go":      "package main\n\nvar Other int\n",
	} {
		f, err := Parse(name, []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	names := NewNames(files)
	for _, test := range []struct {
		span string
		want bool // a finding
	}{
		{"Plan", false}, {"Plan.KBegin", false}, {"p.Plan", false}, {"p.Plan.Run", false}, {"internal/p.TestPlan", false},
		{"stepsAhead", false}, {"k.Run(Plan, stepsAhead)", false}, {"p.Run", true}, {"p.Other", true}, {"Old", true},
		{"cmd/q.Other", false}, {"q.Plan", true}, {"Plan.Spread", true}, {"Plan.spread", true}, {"threadIdx.x", false},
		{"Bs[k][tx]", false}, {"sumsLate", true}, {"Other(sumsLate)", true}, {"grouped", false}, {"mma.sync", false},
		{"TILEWORK_CPU", false}, {"Run --verbose Old", false}, {"A·Old", false},
	} {
		f, err := Parse("a.md", []byte("# Title\n\nThe `"+test.span+"` span.\n\n```go\nOld\n```\n"))
		if err != nil {
			t.Fatal(err)
		}
		found := f.UnknownNames(names)
		if len(found) > 0 != test.want || test.want && (len(found) != 1 || found[0].Line != 3) {
			t.Errorf("`%s` has findings %v: want some: %v", test.span, found, test.want)
		}
	}
}

func TestPhrasesMatch(t *testing.T) {
	samples := []string{
		"whatever it is", "for everybody", "so long a loop", "it lies here", "behind the barrier", "under way",
		"as it is.", "has every thread wait", "is how", "says why", "comes back", "given back", "asked for",
		"of whose tiles", "of one's own", "cards", "processors", "mended", "foretold",
	}
	if len(samples) != len(phrases) {
		t.Fatalf("%d samples for %d phrases", len(samples), len(phrases))
	}
	for i, sample := range samples {
		if phrases[i].find(sample) == "" {
			t.Errorf("%v does not match %q", phrases[i].pattern, sample)
		}
		if got := phrases[i].find("returns the sum of two tiles"); got != "" {
			t.Errorf("%v matches %q in a plain sentence", phrases[i].pattern, got)
		}
	}
}

func TestDocComments(t *testing.T) {
	checkFindings(t, (*File).DocComments, []findingsTest{
		{"package", "// Package p adds.\npackage p\n", nil},
		{"wrong package", "// Package q adds.\npackage p\n", []int{1}},
		{"command", "// Command p adds.\npackage main\n", nil},
		{"wrong command", "// Adds numbers.\npackage main\n", []int{1}},
		{"func", "package p\n\n// add adds.\nfunc add() {}\n", nil},
		{"wrong func", "package p\n\n// Adds.\nfunc add() {}\n", []int{3}},
		{"longer name", "package p\n\n// adder adds.\nfunc add() {}\n", []int{3}},
		{"article before a func", "package p\n\n// The add adds.\nfunc add() {}\n", []int{3}},
		{"directive only", "package p\n\n//go:noinline\nfunc add() {}\n", nil},
		{"method", "package p\n\ntype t int\n\n// add adds.\nfunc (t) add() {}\n", nil},
		{"wrong method", "package p\n\ntype t int\n\n// t adds.\nfunc (t) add() {}\n", []int{5}},
		{"type", "package p\n\n// A tile is a part.\ntype tile int\n", nil},
		{"wrong type", "package p\n\n// A part.\ntype tile int\n", []int{3}},
		{"types in a group", "package p\n\ntype (\n\t// A part.\n\ttile int\n)\n", []int{4}},
		{"const", "package p\n\n// limit is in bytes.\nconst limit = 1\n", nil},
		{"wrong const", "package p\n\n// The limit in bytes.\nconst limit = 1\n", []int{3}},
		{"several names", "package p\n\n// b follows a.\nvar a, b int\n", nil},
		{"group", "package p\n\n// Limits in bytes.\nconst (\n\tlimit = 1\n)\n", nil},
		{"const in a group", "package p\n\nconst (\n\t// Bytes.\n\tlimit = 1\n)\n", []int{4}},
		{"blank", "package p\n\n// The type is complete.\nvar _ any = 1\n", nil},
		{"no comments", "package p\n\nfunc add() {}\n", nil},
	})
	example := "package p\n\n// Adding two numbers.\nfunc ExampleAdd() {}\n"
	for name, want := range map[string]int{"p_test.go": 0, "p.go": 1} {
		f, err := Parse(name, []byte(example))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.DocComments(); len(got) != want {
			t.Errorf("an example in %s has findings %v: want %d", name, got, want)
		}
	}
}

// findingsTest is a Go file and the lines of its findings.
type findingsTest struct {
	name, src string
	want      []int
}

// checkFindings runs check on the source of each test.
func checkFindings(t *testing.T, check func(*File) []Finding, tests []findingsTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, err := Parse("p/p.go", []byte(test.src))
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, found := range check(f) {
				if found.File != "p/p.go" || found.Message == "" {
					t.Errorf("finding %q has no file or message", found)
				}
				got = append(got, found.Line)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("findings at lines %v: want %v", got, test.want)
			}
		})
	}
}

func TestTooDense(t *testing.T) {
	for _, test := range []struct {
		phrases, lines int
		want           bool
	}{{0, 0, false}, {2, 1, false}, {3, 99, true}, {3, 100, false}, {4, 100, true}, {30, 1000, false}, {31, 1000, true}} {
		if got := tooDense(test.phrases, test.lines); got != test.want {
			t.Errorf("tooDense(%d, %d) is %v: want %v", test.phrases, test.lines, got, test.want)
		}
	}
}

func TestIsUnconverted(t *testing.T) {
	list := []string{"ptx", "internal/gpu/..."}
	for dir, want := range map[string]bool{
		"ptx": true, "ptx/emu": false, "internal/gpu": true, "internal/gpu/frag": true, "internal/gpus": false, ".": false,
	} {
		if got := isUnconverted(list, dir); got != want {
			t.Errorf("isUnconverted of %s is %v: want %v", dir, got, want)
		}
	}
}

func TestGenerated(t *testing.T) {
	for src, want := range map[string]bool{
		"// Code generated by avo. DO NOT EDIT.\n\npackage p\n":                     true,
		"//go:build amd64\n\n// Code generated by avo. DO NOT EDIT.\n\npackage p\n": true,
		"package p\n\n// Code generated by avo. DO NOT EDIT.\n":                     false,
		"// Code generated by hand.\n\npackage p\n":                                 false,
	} {
		if got := generated([]byte(src)); got != want {
			t.Errorf("generated(%q) is %v: want %v", src, got, want)
		}
	}
}
