// Package lint checks the conventions of this module's source: the length of lines, phrases that
// slow a reader down, doc comments that do not start with the declared name, and names in Markdown
// that the code lacks. Its tests run the checks over the whole module.
package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"unicode/utf8"
)

// Limits in columns. A tab counts as one column.
const (
	maxCommentColumns = 100
	maxCodeColumns    = 120
)

// A Finding is one violation of a convention.
type Finding struct {
	File    string // slash-separated path relative to the module root
	Line    int    // counted from 1
	Message string
}

// String returns f as file:line: message.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// A File is a parsed Go or Markdown file.
type File struct {
	Name string

	lines []string

	// The remaining fields are set for Go files only.
	syntax  *ast.File
	fset    *token.FileSet
	comment []bool // per line: a comment starts or continues at its first column
	literal []bool // per line: its first column is inside a raw string literal
}

// Parse parses the contents of the file called name, which ends in .go or .md.
func Parse(name string, src []byte) (*File, error) {
	f := &File{Name: name, lines: strings.Split(string(src), "\n")}
	if strings.HasSuffix(name, ".md") {
		return f, nil
	}
	f.fset = token.NewFileSet()
	syntax, err := parser.ParseFile(f.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.syntax = syntax
	f.comment = make([]bool, len(f.lines))
	f.literal = make([]bool, len(f.lines))
	for _, group := range syntax.Comments {
		for _, c := range group.List {
			start, end := f.position(c.Pos()), f.position(c.End())
			ownLine := strings.TrimSpace(f.lines[start.Line-1][:start.Column-1]) == ""
			for line := start.Line; line <= end.Line; line++ {
				f.comment[line-1] = ownLine || line > start.Line
			}
		}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, "`") {
			start := f.line(lit.Pos())
			for i := range strings.Count(lit.Value, "\n") {
				f.literal[start+i] = true
			}
		}
		return true
	})
	return f, nil
}

// position returns where p is in f, ignoring line directives.
func (f *File) position(p token.Pos) token.Position { return f.fset.PositionFor(p, false) }

// line returns the line of p, counted from 1.
func (f *File) line(p token.Pos) int { return f.position(p).Line }

// generated reports whether the source of a Go file is generated.
func generated(src []byte) bool {
	for line := range bytes.Lines(src) {
		line = bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("// Code generated ")) && bytes.HasSuffix(line, []byte(" DO NOT EDIT.")) {
			return true
		}
		if bytes.HasPrefix(line, []byte("package ")) {
			return false
		}
	}
	return false
}

// LongLines returns the lines of a Go file that exceed the limits. A line without spaces after its
// comment marker (a URL, a directive) and the inside of a raw string literal may have any length.
func (f *File) LongLines() []Finding {
	if f.syntax == nil {
		return nil
	}
	var found []Finding
	for i, text := range f.lines {
		kind, limit := "code", maxCodeColumns
		if f.comment[i] {
			kind, limit = "a comment", maxCommentColumns
		}
		columns := utf8.RuneCountInString(text)
		if columns <= limit || f.literal[i] {
			continue
		}
		if f.comment[i] && !strings.Contains(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "//")), " ") {
			continue
		}
		found = append(found, Finding{f.Name, i + 1,
			fmt.Sprintf("%s line of %d columns: want at most %d", kind, columns, limit)})
	}
	return found
}
