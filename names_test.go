package tilework_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestExportedNames bounds the number of exported identifiers and methods of this package, so that
// a new one has to replace another. Fields and String are not counted, and a method of an embedded
// type counts once.
func TestExportedNames(t *testing.T) {
	const limit = 90
	names := exportedNames(t)
	if len(names) > limit {
		t.Errorf("%d exported names, want at most %d: %s", len(names), limit, strings.Join(names, " "))
	}
	if len(names) < limit/2 {
		t.Errorf("only %d exported names found: %s", len(names), strings.Join(names, " "))
	}
	for _, name := range names {
		if strings.HasSuffix(name, "On") {
			t.Errorf("%s: want one name for operands on the host and on a device", name)
		}
	}
}

// TestFilesReferOneWay checks that no two files of this package refer to each other's top-level
// identifiers.
func TestFilesReferOneWay(t *testing.T) {
	files := sources(t)
	home := map[string]string{} // the file of each top-level identifier
	for name, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); !ok || f.Recv == nil {
				for _, id := range declared(d) {
					home[id.Name] = name
				}
				delete(home, "_")
			}
		}
	}
	refers := map[[2]string]string{} // an identifier of the second file that the first one uses
	for name, file := range files {
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // a field, a method or a name of another package
				ast.Inspect(n.X, visit)
				return false
			case *ast.KeyValueExpr: // the name of a field
				ast.Inspect(n.Value, visit)
				return false
			case *ast.FuncDecl: // the name of a method is none of the package
				if n.Recv != nil {
					ast.Inspect(n.Recv, visit)
					ast.Inspect(n.Type, visit)
					if n.Body != nil {
						ast.Inspect(n.Body, visit)
					}
					return false
				}
			case *ast.Ident:
				if other := home[n.Name]; other != "" && other != name {
					refers[[2]string{name, other}] = n.Name
				}
			}
			return true
		}
		ast.Inspect(file, visit)
	}
	if len(refers) == 0 {
		t.Error("no file refers to another")
	}
	for pair, id := range refers {
		if back, ok := refers[[2]string{pair[1], pair[0]}]; ok && pair[0] < pair[1] {
			t.Errorf("%s uses %s of %s, which uses %s of it", pair[0], id, pair[1], back)
		}
	}
}

// TestExportedTypes checks that the API mentions no type of an internal package: not as an alias,
// not in an exported field, and not as a parameter or result.
func TestExportedTypes(t *testing.T) {
	for _, file := range sources(t) {
		internal := map[string]string{} // paths of the internal packages that the file imports, by name
		for _, s := range file.Imports {
			if p := strings.Trim(s.Path.Value, `"`); strings.Contains(p, "/internal/") {
				internal[path.Base(p)] = p
			}
		}
		check := func(name string, n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] != "" {
						t.Errorf("%s mentions %s.%s of %s", name, x.Name, s.Sel.Name, internal[x.Name])
					}
				}
				return true
			})
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					check(d.Name.Name, d.Type)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					s, ok := s.(*ast.TypeSpec)
					if !ok || !s.Name.IsExported() {
						continue
					}
					of, isStruct := s.Type.(*ast.StructType)
					if !isStruct {
						check(s.Name.Name, s.Type)
						continue
					}
					for _, f := range of.Fields.List {
						if len(f.Names) == 0 || f.Names[0].IsExported() {
							check(s.Name.Name, f.Type)
						}
					}
				}
			}
		}
	}
}

// exportedNames returns the exported top-level identifiers and methods of the package in this
// directory.
func exportedNames(t *testing.T) (names []string) {
	t.Helper()
	for _, file := range sources(t) {
		for _, d := range file.Decls {
			for _, id := range declared(d) {
				if id.IsExported() && id.Name != "String" { // which a user calls through package fmt
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// declared returns the identifiers that a top-level declaration declares.
func declared(d ast.Decl) (ids []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		ids = append(ids, d.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				ids = append(ids, s.Name)
			case *ast.ValueSpec:
				ids = append(ids, s.Names...)
			}
		}
	}
	return ids
}

// sources returns the files of the package in this directory, without its tests.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if files[name], err = parser.ParseFile(token.NewFileSet(), name, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) == 0 {
		t.Fatal("no source files")
	}
	return files
}
