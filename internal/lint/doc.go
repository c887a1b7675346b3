package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// DocComments returns the doc comments of f's package clause and top-level declarations that do not
// start with the declared name. A, An and The may precede the name of a type. The comment of a
// parenthesised group of constants or variables has no name to start with, and that of an example
// is the text that go doc prints with it.
func (f *File) DocComments() []Finding {
	if f.syntax == nil {
		return nil
	}
	var found []Finding
	check := func(doc *ast.CommentGroup, articles []string, names ...string) {
		if doc == nil {
			return
		}
		text := doc.Text() // without directives
		if text == "" || startsWith(text, articles, names) {
			return
		}
		first, _, _ := strings.Cut(text, "\n")
		found = append(found, Finding{f.Name, f.line(doc.Pos()),
			fmt.Sprintf("doc comment starts with %q: want %q", first, strings.Join(names, `" or "`))})
	}

	test := strings.HasSuffix(f.Name, "_test.go")
	if name := f.syntax.Name.Name; name != "main" {
		check(f.syntax.Doc, nil, "Package "+name)
	} else {
		dir := path.Base(path.Dir(f.Name))
		check(f.syntax.Doc, []string{"The"}, "Command", "Package main", dir, strings.ToUpper(dir[:1])+dir[1:])
	}
	for _, decl := range f.syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if !test || !strings.HasPrefix(decl.Name.Name, "Example") {
				check(decl.Doc, nil, decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc := spec.Doc
					if !decl.Lparen.IsValid() {
						doc = decl.Doc
					}
					check(doc, []string{"A", "An", "The"}, spec.Name.Name)
				case *ast.ValueSpec:
					var names []string
					for _, id := range spec.Names {
						names = append(names, id.Name)
					}
					doc := spec.Doc
					if !decl.Lparen.IsValid() {
						doc = decl.Doc
					}
					if !slices.Contains(names, "_") {
						check(doc, nil, names...)
					}
				}
			}
		}
	}
	return found
}

// identifier matches the Go identifier at the start of a text.
var identifier = regexp.MustCompile(`^[\pL_][\pL\pN_]*`)

// startsWith reports whether text starts with one of names, which can consist of several words,
// after at most one of articles.
func startsWith(text string, articles, names []string) bool {
	for _, article := range append([]string{""}, articles...) {
		rest, ok := strings.CutPrefix(text, article)
		if !ok || article != "" && !strings.HasPrefix(rest, " ") {
			continue
		}
		rest = strings.TrimLeft(rest, " ")
		for _, name := range names {
			lead := ""
			if at := strings.LastIndex(name, " "); at >= 0 {
				lead, name = name[:at+1], name[at+1:]
			}
			if after, ok := strings.CutPrefix(rest, lead); ok && identifier.FindString(after) == name {
				return true
			}
		}
	}
	return false
}
