package build

import (
	"fmt"
	"slices"
	"strings"

	"tilework/ptx"
)

// Kernel is a kernel under construction. Its methods must not be called concurrently.
type Kernel struct {
	name    string
	head    []*ptx.Comment // comments above the entry
	params  []*ptx.Var
	attrs   []ptx.Attr
	shared  []*ptx.Var
	dynamic int  // bytes of dynamic shared memory allocated so far
	tiles   bool // dynamic shared memory needs the alignment tileAlign

	top, cur   *scope
	constructs int // number of loops and branches so far
	// pure maps each instruction that can be removed to its result. values maps a register name
	// to its value.
	pure   map[*ptx.Instr]*value
	values map[*ptx.Name]*value
	lines  bool
	files  []string // names of the source files that lines refer to; nil means all
	// callers caches the call at each pc. It is the zero callSite for a pc in this package.
	callers map[uintptr]callSite

	errs   ptx.Errors
	built  *ptx.Module
	failed error
}

// New returns an empty kernel with the given name. The PTX starts with the comments.
func New(name string, comments ...string) *Kernel {
	top := &scope{known: map[string]Reg{}}
	k := &Kernel{
		name: name, top: top, cur: top,
		pure: map[*ptx.Instr]*value{}, values: map[*ptx.Name]*value{}, callers: map[uintptr]callSite{},
	}
	k.identifier(name)
	for _, text := range comments {
		k.head = append(k.head, k.comment(text))
	}
	return k
}

// minTarget is the lowest target of a built kernel, even if its instructions require less: the
// compilers of current drivers support no older one.
var minTarget = ptx.Target{SM: 75}

// maxNeed exceeds the requirements of every kernel. Build verifies a kernel with this version and
// target, and then lowers both to the actual requirements.
var maxNeed = ptx.Need{Version: 90, Target: ptx.Target{SM: 90, Suffix: "a"}}

// Threads sets the block size in threads. Launches with another block size fail.
func (k *Kernel) Threads(x, y, z int) {
	switch {
	case min(x, y, z) < 1 || max(x, y) > 1024 || z > 64:
		k.fail("Threads(%d, %d, %d): want 1 to 1024, 1 to 1024 and 1 to 64", x, y, z)
	case x*y*z > 1024:
		k.fail("Threads(%d, %d, %d): a block of %d threads, want at most 1024", x, y, z, x*y*z)
	default:
		k.attr("Threads", "reqntid", x, y, z)
	}
}

// MinBlocks makes the compiler limit the registers per thread so that n blocks fit on an SM.
func (k *Kernel) MinBlocks(n int) {
	if n < 1 {
		k.fail("MinBlocks(%d): want at least 1", n)
		return
	}
	k.attr("MinBlocks", "minnctapersm", n)
}

// attr adds a directive to the entry, which can have only one of each name.
func (k *Kernel) attr(method, name string, args ...int) {
	if slices.ContainsFunc(k.attrs, func(a ptx.Attr) bool { return a.Name == name }) {
		k.fail("%s is called twice", method)
		return
	}
	k.attrs = append(k.attrs, ptx.Attr{Name: name, Args: args})
}

// Comment adds a comment line to the PTX.
func (k *Kernel) Comment(format string, args ...any) {
	k.cur.stmts = append(k.cur.stmts, k.comment(fmt.Sprintf(format, args...)))
}

// comment returns a comment of one line. Drivers before CUDA 13 reject PTX with non-ASCII
// characters, even in comments.
func (k *Kernel) comment(text string) *ptx.Comment {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		k.fail("comment %q: want a single line of ASCII", text)
	}
	return &ptx.Comment{Text: text}
}

// DynamicBytes returns the dynamic shared memory that a launch must request, in bytes.
func (k *Kernel) DynamicBytes() int { return k.dynamic }

// Build returns the finished kernel as a verified module with the lowest .version and .target
// that support it, and at least sm_75. The error is of type [ptx.Errors]. It holds all errors,
// each with the Go line that caused it.
func (k *Kernel) Build() (*ptx.Module, error) {
	if k.built == nil && k.failed == nil {
		k.built, k.failed = k.build()
	}
	return k.built, k.failed
}

func (k *Kernel) build() (*ptx.Module, error) {
	if k.cur != k.top {
		k.fail("Build is called inside a block of the kernel")
	}
	if len(k.errs) > 0 {
		return nil, k.errs
	}
	k.emit("ret").Pos = ptx.Pos{} // no source line corresponds to it
	body := k.prune(k.top.stmts)
	m := &ptx.Module{Version: maxNeed.Version, Target: maxNeed.Target, AddressSize: 64}
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
		m.Decls = append(m.Decls, &ptx.Var{Linkage: "extern", Space: ptx.Shared, Align: align, Type: ptx.B8,
			Name: dynamicName, Dims: []int{-1}})
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
	if m.Target.SM < minTarget.SM {
		m.Target = minTarget
	}
	if least, ok := m.Target.MinVersion(); ok {
		m.Version = max(m.Version, least)
	}
	return m, nil
}

// fail adds an error at the caller's line. It returns an invalid Reg for the missing result.
// Operations on an invalid Reg add no further errors.
func (k *Kernel) fail(format string, args ...any) Reg {
	e := ptx.Error{Pos: k.caller(), Kind: ptx.ErrInvalid, Msg: fmt.Sprintf(format, args...)}
	// A Go loop can repeat the same error.
	duplicate := slices.ContainsFunc(k.errs, func(old *ptx.Error) bool { return *old == e })
	switch {
	case duplicate:
	case len(k.errs) < maxErrors:
		k.errs = append(k.errs, &e)
	default:
		k.errs[maxErrors-1].Truncated = true
	}
	return Reg{bad}
}

// maxErrors is the maximum number of errors collected for a kernel. Further errors are mostly
// consequences of the first ones.
const maxErrors = 50
