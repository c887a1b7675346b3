// Package ptx holds PTX, the assembly language that NVIDIA's driver compiles, as
// data: modules, functions, statements and operands.
//
// [Parse] reads text, [Module.Print] writes it, [Verify] checks a module and binds
// each instruction to its [Form], and [Module.Need] tells the least .version and
// .target that it asks for. What instructions there are stands in one table
// ([Forms]), written in the notation of NVIDIA's manual (Parallel Thread Execution
// ISA, docs.nvidia.com/cuda/parallel-thread-execution); the sections that comments
// name are that manual's anchors.
//
// What PTX has and the table has not is refused by name with an error that wraps
// [ErrUnsupported]: textures and surfaces, video instructions, sparse matrix
// products, indirect calls and branches, and what architectures after Hopper add.
package ptx

import "fmt"

// Pos is a place in a text: PTX that was parsed, or the Go source that built it.
// The zero Pos is no place.
type Pos struct {
	File      string
	Line, Col int // from 1; Col 0 is the whole line
}

// String is "file:line:col", as far as it is known.
func (p Pos) String() string {
	s := p.File
	if p.Line > 0 {
		if s != "" {
			s += ":"
		}
		s += fmt.Sprint(p.Line)
		if p.Col > 0 {
			s += fmt.Sprintf(":%d", p.Col)
		}
	}
	return s
}

// Module is one PTX text.
type Module struct {
	Version     Version
	Target      Target
	Options     []string // what else .target lists: "debug"
	AddressSize int      // 32 or 64
	Decls       []Decl
}

// Decl is what stands at the top of a module: *Var, *Func, *File, *Pragma or *Comment.
type Decl interface{ decl() }

// Stmt is what stands in a body: *Instr, *Label, *Var, *Loc, *Pragma, *Block or *Comment.
type Stmt interface{ stmt() }

// Operand is what an instruction works on: *Name, *Imm, *Vector, *Addr, *Sum,
// *Pair, *Not, *Args or *Sink.
type Operand interface{ operand() }

// Func is an .entry or a .func.
type Func struct {
	Pos     Pos
	Linkage string // "visible", "extern", "weak" or none
	Entry   bool
	Name    string
	Results []*Var // of a .func; in this package's instructions at most one
	Params  []*Var
	Attrs   []Attr
	Body    *Block // nil for a declaration

	// Registers are the registers that the body names, by their Index; Verify sets it.
	Registers []*Symbol
}

// Attr is a directive between a function's parameters and its body: .maxntid 256, 1, 1.
type Attr struct {
	Name string
	Args []int
}

// Var declares variables of one name: registers, or memory in some state space.
type Var struct {
	Pos     Pos
	Linkage string // "visible", "extern", "weak", "common" or none
	Space   Space
	Attr    string // argument of .attribute: "managed"
	Align   int    // bytes; 0 is the type's own
	Vec     int    // 2, 4 or 8 for .v2, .v4 and .v8; 0 for a scalar
	Type    Type
	Name    string // empty for an unnamed parameter of a declaration
	Ptr     *Ptr   // of a kernel's parameter that is a pointer, where that is said
	Count   int    // n > 0 declares Name0 … Name(n-1), written Name<n>
	Dims    []int  // array dimensions; -1 for the open first one of [] (its length is Init's)
	Init    *Init
}

// Ptr is what a kernel says about the memory that a parameter points to.
type Ptr struct {
	Space Space // Generic where not said
	Align int   // bytes; 0 where not said
}

// Init is a variable's initial value: one value, or a list of them.
type Init struct {
	Value Operand // *Imm, *Sum or *Name; nil in a list
	// Generic says that the value is the generic address of the symbol.
	Generic bool
	// Mask picks a byte of the value's address: 0xFF00 gives bits 8 to 15.
	Mask uint64
	List []*Init
}

// File names a source file for .loc.
type File struct {
	Pos   Pos
	Index int
	Path  string
}

// Block is a { } scope: what it declares is known in it alone.
type Block struct {
	Pos   Pos
	Stmts []Stmt
}

// Instr is one instruction.
type Instr struct {
	Pos   Pos
	Guard *Guard // nil for an instruction that always executes
	Op    string // "ld"
	Mods  []string
	Args  []Operand

	// Form is the row of the table that the instruction is an instance of. Verify
	// and Bind set it and what [Instr.Mod], [Instr.Has], [Instr.Type] and
	// [Instr.Space] answer from.
	Form *Form
	*binding
}

// Guard is the predicate before an instruction: @p, or @!p if Neg.
type Guard struct {
	Neg  bool
	Pred *Name
}

// Label marks a place to branch to.
type Label struct {
	Pos  Pos
	Name string
}

// Loc says that what follows was compiled from a line of a source file.
type Loc struct {
	Pos             Pos
	File, Line, Col int
}

// Pragma is a hint to the assembler.
type Pragma struct {
	Pos  Pos
	Text string // without its quotes
}

// Comment is a comment of one line, without its slashes.
type Comment struct {
	Pos  Pos
	Text string
	// Trailing puts the comment behind what stands before it, on the same line.
	Trailing bool
}

// Name stands for a register, a special register, a variable, a function or a
// label. Member is what follows a dot: x, y, z or w.
type Name struct {
	Name   string
	Member string
	// Sym is what the name stands for; Verify sets it. Two operands are the same
	// register if their Sym is the same.
	Sym *Symbol
}

// ImmKind says how an immediate was written and so what it is.
type ImmKind uint8

const (
	Int     ImmKind = iota // a 64-bit integer in two's complement
	Uint                   // one above 1<<63 - 1
	F32Bits                // 0f and eight hexadecimal digits
	F64Bits                // 0d and sixteen, or a decimal number
)

// Imm is a constant.
type Imm struct {
	Kind ImmKind
	Bits uint64 // of an F32Bits in the low half
}

// Vector is {a, b, c, d}.
type Vector struct{ Elems []Operand }

// Addr is [base + offset], or [base, {coordinates}] of a tensor.
type Addr struct {
	Base   Operand // *Name or *Imm
	Offset int64
	Coords *Vector
}

// Sum is the address of a variable plus bytes, used as a value: array+16.
type Sum struct {
	Base   *Name
	Offset int64
}

// Pair is d|p: two results.
type Pair struct{ First, Second Operand }

// Not is !p.
type Not struct{ X *Name }

// Args is the parenthesised list of a call's results or arguments.
type Args struct{ List []Operand }

// Sink is _, a result that nobody wants.
type Sink struct{}

func (*Var) decl()     {}
func (*Func) decl()    {}
func (*File) decl()    {}
func (*Pragma) decl()  {}
func (*Comment) decl() {}

func (*Instr) stmt()   {}
func (*Label) stmt()   {}
func (*Var) stmt()     {}
func (*Loc) stmt()     {}
func (*Pragma) stmt()  {}
func (*Block) stmt()   {}
func (*Comment) stmt() {}

func (*Name) operand()   {}
func (*Imm) operand()    {}
func (*Vector) operand() {}
func (*Addr) operand()   {}
func (*Sum) operand()    {}
func (*Pair) operand()   {}
func (*Not) operand()    {}
func (*Args) operand()   {}
func (*Sink) operand()   {}

// Funcs lists the module's functions, declarations included, in order.
func (m *Module) Funcs() []*Func {
	var fs []*Func
	for _, d := range m.Decls {
		if f, ok := d.(*Func); ok {
			fs = append(fs, f)
		}
	}
	return fs
}

// ParamBytes is what f's parameters take in memory, laid out in order, each at a
// multiple of its alignment.
func (f *Func) ParamBytes() int {
	n := 0
	for _, v := range f.Params {
		n = (n+v.Alignment()-1)/v.Alignment()*v.Alignment() + v.Size()
	}
	return n
}

// Source is where l points to, "matmul.cu:12:3", through the module's .file table.
func (m *Module) Source(l *Loc) Pos {
	for _, d := range m.Decls {
		if f, ok := d.(*File); ok && f.Index == l.File {
			return Pos{File: f.Path, Line: l.Line, Col: l.Col}
		}
	}
	return Pos{File: fmt.Sprintf("file %d", l.File), Line: l.Line, Col: l.Col}
}

// Walk calls f for each statement of b and of the blocks in it, in order.
func (b *Block) Walk(f func(Stmt)) {
	for _, s := range b.Stmts {
		f(s)
		if inner, ok := s.(*Block); ok {
			inner.Walk(f)
		}
	}
}

// Size is the number of bytes of v in memory; 0 for registers and for arrays
// whose length is not known.
func (v *Var) Size() int {
	if v.Space == RegSpace {
		return 0
	}
	n := v.Type.Bytes() * max(v.Vec, 1)
	for i, d := range v.Dims {
		if d < 0 {
			if d = 0; i == 0 && v.Init != nil {
				d = len(v.Init.List)
			}
		}
		n *= d
	}
	return n
}

// Alignment is the number that v's address is a multiple of, in bytes.
func (v *Var) Alignment() int {
	if v.Align > 0 {
		return v.Align
	}
	return v.Type.Bytes() * max(v.Vec, 1)
}
