package build

import (
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"tilework/ptx"
)

// LineInfo adds the Go source line of each instruction to the PTX as .loc directives, for profilers
// and the emulator. If files are named, such as "tiled.go", the line is that of the innermost call
// from one of them. Instructions without such a call keep the innermost call from any file.
// LineInfo must be called before the first instruction.
func (k *Kernel) LineInfo(files ...string) { k.lines, k.files = true, files }

// locate inserts a .loc before each instruction whose source line differs from the previous one,
// and adds the .file directives to m. It keeps only the base name of a file, so that the PTX does
// not depend on the directory of the source.
func (k *Kernel) locate(m *ptx.Module, body []ptx.Stmt) []ptx.Stmt {
	files := map[string]int{}
	var out []ptx.Stmt
	var last ptx.Pos
	for _, s := range body {
		if i, ok := s.(*ptx.Instr); ok && i.Pos != last && i.Pos.Line > 0 {
			last = i.Pos
			n := files[last.File]
			if n == 0 {
				n = len(files) + 1
				files[last.File] = n
				m.Decls = append(m.Decls, &ptx.File{Index: n, Path: filepath.Base(last.File)})
			}
			out = append(out, &ptx.Loc{File: n, Line: last.Line, Col: 1})
		}
		out = append(out, s)
	}
	return out
}

// packagePrefix is the prefix of the names of all functions in this package.
var packagePrefix = reflect.TypeFor[Kernel]().PkgPath() + "."

// caller returns the position of the innermost call from outside this package, in one of the files
// of [Kernel.LineInfo] if there is such a call. It runs for every instruction, so it walks the
// stack a few frames at a time: the call is usually close.
func (k *Kernel) caller() ptx.Pos {
	var pcs [6]uintptr
	var innermost ptx.Pos
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			at, ok := k.callers[pc]
			if !ok {
				at = k.outside(pc)
				k.callers[pc] = at
			}
			if innermost == (ptx.Pos{}) {
				innermost = at.Pos
			}
			if at.wanted {
				return at.Pos
			}
		}
		if n < len(pcs) {
			return innermost
		}
	}
}

// callSite is the position of a call. wanted reports whether [Kernel.LineInfo] includes its file.
type callSite struct {
	ptx.Pos
	wanted bool
}

// outside returns the call at pc, or the zero callSite if pc is in this package. With inlining, a
// pc can represent several nested calls.
func (k *Kernel) outside(pc uintptr) (at callSite) {
	frames := runtime.CallersFrames([]uintptr{pc})
	for more := true; more && !at.wanted; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasPrefix(f.Function, packagePrefix) {
			continue
		}
		wanted := k.files == nil || slices.Contains(k.files, path.Base(f.File))
		if wanted || at.Pos == (ptx.Pos{}) {
			at = callSite{ptx.Pos{File: f.File, Line: f.Line}, wanted}
		}
	}
	return at
}
