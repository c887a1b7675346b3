package lint

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// linkLike matches a doc link in text that go/doc has not turned into one.
var linkLike = regexp.MustCompile(`\[[A-Z]\w*(\.[A-Z]\w*)?\]`)

// TestDocLinks checks that the links in doc comments, such as [Name], name a declaration.
func TestDocLinks(t *testing.T) {
	links := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := d.Name()
		if name == "testdata" || name != ".." && strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			return filepath.SkipDir
		}
		links += checkDocLinks(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 100 {
		t.Errorf("found %d doc links, want more", links)
	}
}

// checkDocLinks checks the package in a folder, and returns the number of its links.
func checkDocLinks(t *testing.T, folder string) (links int) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(folder, e.Name()), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return 0
	}
	p, err := doc.NewFromFiles(fset, files, "tilework", doc.AllDecls|doc.AllMethods)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, text string) {
		for _, block := range p.Parser().Parse(text).Content {
			if paragraph, ok := block.(*comment.Paragraph); ok {
				for _, part := range paragraph.Text {
					switch part := part.(type) {
					case *comment.DocLink:
						links++
					case comment.Plain:
						for _, link := range linkLike.FindAllString(string(part), -1) {
							t.Errorf("%s: the doc comment of %s links to %s, which is not declared", folder, name, link)
						}
					}
				}
			}
		}
	}
	check("the package", p.Doc)
	values := func(all []*doc.Value) {
		for _, v := range all {
			check(strings.Join(v.Names, ", "), v.Doc)
		}
	}
	functions := func(all []*doc.Func) {
		for _, f := range all {
			check(f.Name, f.Doc)
		}
	}
	values(p.Consts)
	values(p.Vars)
	functions(p.Funcs)
	for _, of := range p.Types {
		check(of.Name, of.Doc)
		values(of.Consts)
		values(of.Vars)
		functions(of.Funcs)
		functions(of.Methods)
	}
	return links
}
