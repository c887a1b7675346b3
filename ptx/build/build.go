// Package build writes GPU kernels in Go: each call on a [Kernel] adds to it what
// the same line of CUDA C would compile to, and [Kernel.Build] gives the PTX.
//
//	k := build.New("axpy")
//	k.Threads(256, 1, 1)
//	n, a := k.Param("n", ptx.U32), k.Param("a", ptx.F32)
//	x, y := k.Pointer("x", ptx.F32), k.Pointer("y", ptx.F32)
//	i := k.Mad(k.BlockIdx(build.X), 256, k.ThreadIdx(build.X))
//	k.If(k.Lt(i, n), func() {
//		y.At(i).Store(k.Mad(a, x.At(i).Load(), y.At(i).Load()))
//	})
//	module, err := k.Build()
//
// A Go value is known when the kernel is written and a [Reg] when it runs: a Go
// for unrolls, [Kernel.For] loops; a Go if chooses a text, [Kernel.If] branches.
//
// # Registers
//
// A Reg holds one value for good: an operation returns a new one. What changes is
// declared with [Kernel.Var] and written by [Kernel.Set] and [Kernel.FMA]. A Reg is
// known in the block that made it and in the blocks inside, as a variable of C is.
//
// Because values do not change, whole-number arithmetic and comparisons need no
// place of their own: the same operation on the same operands is emitted once, in
// front of the outermost loop that computes none of its operands, and not at all if
// nothing uses it. So m.Load(row, i) may stand in an inner loop as it would in C.
// Floating-point operations, loads and stores stay where they are written.
//
// # Errors
//
// No call returns an error. What is wrong is gathered, with the file and line of the
// call outside this package, and comes out of Build.
package build

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"tilework/ptx"
)

// Kernel is a kernel that is being written. Its methods are not for concurrent use.
type Kernel struct {
	name    string
	head    []*ptx.Comment // above the entry
	params  []*ptx.Var
	attrs   []ptx.Attr
	shared  []*ptx.Var
	dynamic int  // bytes of dynamic shared memory laid out so far
	tiles   bool // some of it is aligned to tileAlign

	top, cur   *scope
	constructs int // loops and branches so far
	// pure holds the result of each instruction that may be left out if nothing
	// uses it; values finds a register by its name.
	pure   map[*ptx.Instr]*value
	values map[*ptx.Name]*value
	lines  bool
	// callers is what is known of the places that calls come from, by their pc.
	callers map[uintptr]ptx.Pos

	errs   ptx.Errors
	built  *ptx.Module
	failed error
}

// New begins a kernel of that name. The text's first lines are the comments.
func New(name string, comments ...string) *Kernel {
	top := &scope{known: map[string]Reg{}}
	k := &Kernel{
		name: name, top: top, cur: top,
		pure: map[*ptx.Instr]*value{}, values: map[*ptx.Name]*value{}, callers: map[uintptr]ptx.Pos{},
	}
	k.identifier(name)
	for _, text := range comments {
		k.head = append(k.head, k.comment(text))
	}
	return k
}

// floor is the least target that a kernel is built for, whatever it uses: the
// compilers of current drivers know none that is older.
var floor = ptx.Target{SM: 75}

// widest is more than any kernel needs: it is verified for that and then given
// what it needs.
var widest = ptx.Need{Version: 90, Target: ptx.Target{SM: 90, Suffix: "a"}}

// Threads sets the size of a block; a launch with another one fails.
func (k *Kernel) Threads(x, y, z int) {
	for _, n := range []int{x, y, z} {
		if n < 1 {
			k.fail("Threads(%d, %d, %d): want at least 1 each way", x, y, z)
			return
		}
	}
	if n := x * y * z; n > 1024 {
		k.fail("a block of %d×%d×%d = %d threads: a block has at most 1024", x, y, z, n)
		return
	}
	k.attrs = append(k.attrs, ptx.Attr{Name: "reqntid", Args: []int{x, y, z}})
}

// MinBlocks asks the compiler for so few registers that an SM can hold n blocks.
func (k *Kernel) MinBlocks(n int) {
	k.attrs = append(k.attrs, ptx.Attr{Name: "minnctapersm", Args: []int{n}})
}

// Lines puts the Go source line of each instruction into the text, as .loc, so that
// a profiler or the emulator can name it.
func (k *Kernel) Lines() { k.lines = true }

// Comment adds a line of comment to the text.
func (k *Kernel) Comment(format string, args ...any) {
	k.cur.stmts = append(k.cur.stmts, k.comment(fmt.Sprintf(format, args...)))
}

// comment is a comment of one line. Drivers before CUDA 13 refuse a text with other
// characters than ASCII's, in comments too.
func (k *Kernel) comment(text string) *ptx.Comment {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		k.fail("the comment %q: want one line of ASCII", text)
	}
	return &ptx.Comment{Text: text}
}

// DynamicBytes is how much dynamic shared memory a launch must ask for.
func (k *Kernel) DynamicBytes() int { return k.dynamic }

// Build returns the finished kernel as a module, verified, with the least .version
// and .target that it needs, but at least sm_75. The error holds every finding, each
// a *ptx.Error at the Go line that caused it.
func (k *Kernel) Build() (*ptx.Module, error) {
	if k.built == nil && k.failed == nil {
		k.built, k.failed = k.build()
	}
	return k.built, k.failed
}

func (k *Kernel) build() (*ptx.Module, error) {
	if k.cur != k.top {
		k.fail("Build inside of a block of the kernel")
	}
	if len(k.errs) > 0 {
		return nil, k.errs
	}
	k.emit("ret").Pos = ptx.Pos{} // no line of the kernel's is its own
	body := k.prune(k.top.stmts)
	m := &ptx.Module{Version: widest.Version, Target: widest.Target, AddressSize: 64}
	if k.lines {
		body = k.locate(m, body)
	}
	var decls []ptx.Stmt
	for _, v := range k.declare(body) {
		decls = append(decls, v)
	}
	for _, v := range k.shared {
		decls = append(decls, v)
	}
	align := sharedAlign
	if k.tiles {
		align = tileAlign
	}
	if k.dynamic > 0 {
		m.Decls = append(m.Decls, &ptx.Var{Linkage: "extern", Space: ptx.Shared, Align: align, Type: ptx.B8, Name: dynamicName, Dims: []int{-1}})
	}
	for _, c := range k.head {
		m.Decls = append(m.Decls, c)
	}
	m.Decls = append(m.Decls, &ptx.Func{
		Linkage: "visible", Entry: true, Name: k.name, Params: k.params, Attrs: k.attrs,
		Body: &ptx.Block{Stmts: append(decls, body...)},
	})
	if err := ptx.Verify(m); err != nil {
		return nil, err
	}
	need := m.Need()
	m.Version, m.Target = need.Version, need.Target
	if m.Target.SM < floor.SM {
		m.Target = floor
	}
	if least, ok := m.Target.MinVersion(); ok {
		m.Version = max(m.Version, least)
	}
	return m, nil
}

// fail gathers a finding about the caller's line. It returns the Reg that stands
// for a result that there is not: what is computed from it adds no findings.
func (k *Kernel) fail(format string, args ...any) Reg {
	e := ptx.Error{Pos: k.caller(), Kind: ptx.ErrInvalid, Msg: fmt.Sprintf(format, args...)}
	again := slices.ContainsFunc(k.errs, func(old *ptx.Error) bool { return *old == e }) // in a Go loop
	if !again && len(k.errs) < maxErrors {
		k.errs = append(k.errs, &e)
	}
	return Reg{bad}
}

// maxErrors is how many findings are gathered: what follows is mostly their echo.
const maxErrors = 50

var inside = reflect.TypeFor[Kernel]().PkgPath() + "."

// caller is the line that called into this package. The stack is walked a few frames at
// a time: each costs, for every instruction, and the line is seldom far.
func (k *Kernel) caller() ptx.Pos {
	var pcs [6]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			at, ok := k.callers[pc]
			if !ok {
				at = outside(pc)
				k.callers[pc] = at
			}
			if at != (ptx.Pos{}) {
				return at
			}
		}
		if n < len(pcs) {
			return ptx.Pos{}
		}
	}
}

// outside is the line of pc that is not in this package; the zero Pos if there is
// none. A pc stands for several lines where calls are inlined.
func outside(pc uintptr) ptx.Pos {
	frames := runtime.CallersFrames([]uintptr{pc})
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, inside) {
			return ptx.Pos{File: f.File, Line: f.Line}
		}
		if !more {
			return ptx.Pos{}
		}
	}
}
