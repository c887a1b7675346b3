package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"path"
	"regexp"
	"strings"
)

// Names holds the identifiers of Go code.
type Names struct {
	all      map[string]bool
	packages map[string]map[string]bool // top-level identifiers by package, for main by directory
}

// NewNames returns the identifiers of the Go files among files. Packages of the same name are
// treated as one, and so is a package with its external tests.
func NewNames(files []*File) *Names {
	n := &Names{all: map[string]bool{}, packages: map[string]map[string]bool{}}
	for _, f := range files {
		if f.syntax == nil {
			continue
		}
		ast.Inspect(f.syntax, func(x ast.Node) bool {
			if id, ok := x.(*ast.Ident); ok {
				n.all[id.Name] = true
			}
			return true
		})
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if name == "main" {
			name = path.Base(path.Dir(f.Name))
		}
		if n.packages[name] == nil {
			n.packages[name] = map[string]bool{}
		}
		for _, id := range declared(f.syntax) {
			n.packages[name][id.Name] = true
		}
	}
	return n
}

// declared returns the top-level identifiers of a file, without methods.
func declared(f *ast.File) (ids []*ast.Ident) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				ids = append(ids, decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					ids = append(ids, spec.Name)
				case *ast.ValueSpec:
					ids = append(ids, spec.Names...)
				}
			}
		}
	}
	return ids
}

// codeSpan matches a code span of Markdown. Group 1 is its text.
var codeSpan = regexp.MustCompile("`([^`]+)`")

// isGoName reports whether an identifier is Go rather than shell or PTX: it has upper-case and
// lower-case letters, such as Plan, sumsLate and KBegin.
func isGoName(name string) bool {
	return strings.ToLower(name) != name && strings.ToUpper(name) != name
}

// UnknownNames returns the Go names in code spans of a Markdown file that are not in n. It checks
// spans that are a Go expression: name, pkg.Name, Type.Member or a call. In pkg.Name it checks that
// the package declares the name.
func (f *File) UnknownNames(n *Names) []Finding {
	if f.syntax != nil {
		return nil
	}
	var found []Finding
	for line, text := range f.outsideFences() {
		for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
			expr, err := parser.ParseExpr(span[1])
			if err != nil {
				continue
			}
			if name := n.unknown(expr); name != "" {
				found = append(found, Finding{f.Name, line, fmt.Sprintf("`%s`: no Go code declares %s", span[1], name)})
			}
		}
	}
	return found
}

// unknown returns the first name in an expression that n lacks, or the empty string.
func (n *Names) unknown(expr ast.Expr) (name string) {
	ast.Inspect(expr, func(x ast.Node) bool {
		if name != "" {
			return false
		}
		switch x := x.(type) {
		case *ast.SelectorExpr:
			if of, ok := x.X.(*ast.Ident); ok {
				switch {
				case !ast.IsExported(of.Name) && !x.Sel.IsExported(): // PTX or CUDA: mma.sync, threadIdx.x
					return false
				case x.Sel.IsExported() && n.packages[of.Name] != nil && !n.packages[of.Name][x.Sel.Name],
					isGoName(of.Name) && !n.all[x.Sel.Name]:
					name = of.Name + "." + x.Sel.Name
				}
			}
		case *ast.IndexExpr: // CUDA: Bs[k][tx]
			return false
		case *ast.Ident:
			if isGoName(x.Name) && !n.all[x.Name] {
				name = x.Name
			}
		}
		return true
	})
	return name
}
