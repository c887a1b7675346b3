// Package ptx represents PTX, the assembly language that NVIDIA's driver compiles, as data:
// modules, functions, statements and operands.
//
// [Parse] reads PTX source and [Module.Print] writes it. [Verify] checks a module and binds each
// instruction to its [Form]. [Module.Need] returns the lowest .version and .target that can
// compile the module. One table ([Forms]) lists all supported instructions in the notation of
// NVIDIA's manual (Parallel Thread Execution ISA,
// docs.nvidia.com/cuda/parallel-thread-execution). Section names in comments are anchors in that
// manual.
//
// Some instructions are not in the table, such as those for textures and surfaces. They parse, and
// Verify reports them by name, with an error that wraps [ErrUnsupported]. docs/emulator.md lists
// them. Tests compare Verify with ptxas, NVIDIA's assembler.
//
// Package tilework/ptx/build writes modules from Go, and tilework/ptx/emu executes them.
package ptx

import "fmt"

// Pos is a position in a file: the PTX source that was parsed, or the Go source that built the
// module. The zero Pos means that the position is unknown.
type Pos struct {
	File      string
	Line, Col int // counted from 1; Col 0 stands for the whole line
}

// String returns p as "file:line:col" without the parts that are unknown.
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

// Module is one PTX module: the contents of a .ptx file.
type Module struct {
	Version     Version
	Target      Target
	Options     []string // names after the architecture in .target, such as "debug"
	AddressSize int      // 32 or 64
	Decls       []Decl
}

// Decl is a top-level declaration of a module: *Var, *Func, *File, *Pragma or *Comment.
type Decl interface{ decl() }

// Stmt is a statement of a function body: *Instr, *Label, *Targets, *Prototype, *Var, *Loc,
// *Pragma, *Block or *Comment.
type Stmt interface{ stmt() }

// Operand is an operand of an instruction: *Name, *Imm, *Vector, *Addr, *Sum, *Pair, *Not, *Minus,
// *Args or *Sink.
type Operand interface{ operand() }

// Func is a kernel (.entry) or a device function (.func).
type Func struct {
	Pos     Pos
	Linkage string // "visible", "extern", "weak" or empty
	Entry   bool   // true for .entry
	Name    string
	Results []*Var // of a .func; Verify supports at most one
	Params  []*Var
	Attrs   []Attr
	Body    *Block // nil for a declaration

	// Registers lists the registers that the body uses, ordered by Index. Verify sets it.
	Registers []*Symbol
}

// Attr is a directive between a function's parameters and its body, such as .maxntid 256, 1, 1.
type Attr struct {
	Name string
	Args []int
}

// Var declares a register or a variable in memory, or a numbered range of registers.
type Var struct {
	Pos     Pos
	Linkage string // "visible", "extern", "weak", "common" or empty
	Space   Space
	Attr    string // argument of .attribute, such as "managed"
	Align   int    // bytes; 0 means the type's natural alignment
	Vec     int    // 2, 4 or 8 for .v2, .v4 and .v8; 0 for a scalar
	Type    Type
	Name    string // empty for an unnamed parameter of a declaration
	Ptr     *Ptr   // the .ptr attribute of a kernel parameter, or nil
	Count   int    // n > 0 declares Name0 … Name(n-1), written Name<n>
	Dims    []int  // array dimensions; -1 for [], whose length comes from Init
	Init    *Init
}

// Ptr is the .ptr attribute of a kernel parameter. It describes the memory that the parameter
// points to.
type Ptr struct {
	Space Space // Generic if not specified
	Align int   // bytes; 0 if not specified
}

// Init is the initial value of a variable: a single value, or a list for an array.
type Init struct {
	Value Operand // *Imm, *Sum or *Name; nil for a list
	// Generic selects the generic address of the symbol in Value.
	Generic bool
	// Mask selects one byte of the address in Value: 0xFF00 selects bits 8 to 15. Zero selects
	// the whole address.
	Mask uint64
	List []*Init
	// Properties is the initial value of a texture, sampler or surface, as written between the
	// braces.
	Properties string
}

// File is a .file directive. It gives the source file with the given index in .loc directives.
type File struct {
	Pos   Pos
	Index int
	Path  string
}

// Block is a scope in braces. Names that it declares are visible only inside it.
type Block struct {
	Pos   Pos
	Stmts []Stmt
}

// Instr is one instruction.
type Instr struct {
	Pos   Pos
	Guard *Guard // nil for an instruction without a predicate
	Op    string // "ld"
	Mods  []string
	Args  []Operand

	// Form is the row of the instruction table that matches the instruction. Verify and Bind set
	// it. [Instr.Mod], [Instr.Type] and [Instr.Space] need it.
	Form *Form
	*binding
}

// Guard is the predicate of an instruction: @p, or @!p if Neg is set.
type Guard struct {
	Neg  bool
	Pred *Name
}

// Label is the target of a branch.
type Label struct {
	Pos  Pos
	Name string
}

// Targets is a .branchtargets or .calltargets directive. It names the labels of a brx.idx, or the
// functions that an indirect call can call.
type Targets struct {
	Pos  Pos
	Name string
	Call bool // true for .calltargets
	List []*Name
}

// Prototype is a .callprototype directive. It describes the functions that an indirect call can
// call.
type Prototype struct {
	Pos Pos
	*Func
}

// Loc is a .loc directive: the statements after it were compiled from the given source line.
type Loc struct {
	Pos             Pos
	File, Line, Col int
	// InlinedAt is the call of the function that contains the line, if it was inlined. It has no
	// Pos. If the call is in an inlined function too, an earlier Loc of the call has its caller.
	// Print leaves it out: ptxas requires the function's name with it, from a debug section that
	// Parse skips.
	InlinedAt *Loc
}

// Pragma is a hint to the assembler, such as "nounroll".
type Pragma struct {
	Pos  Pos
	Text string // without the quotes
}

// Comment is one line of a comment, without the comment marks.
type Comment struct {
	Pos  Pos
	Text string
	// Trailing places the comment on the same line as the preceding statement.
	Trailing bool
}

// Name refers to a register, a special register, a variable, a function or a label. Member is the
// suffix after a dot, such as the x of %tid.x.
type Name struct {
	Name   string
	Member string
	// Sym is the declaration that the name refers to. Verify sets it. Two operands are the same
	// register if and only if they have the same Sym.
	Sym *Symbol
}

// ImmKind distinguishes the notations of an immediate.
type ImmKind uint8

const (
	Int     ImmKind = iota // a 64-bit integer in two's complement
	Uint                   // an unsigned integer above 1<<63 - 1
	F32Bits                // 0f and eight hexadecimal digits
	F64Bits                // 0d and sixteen hexadecimal digits, or a decimal fraction
)

// Imm is an immediate operand.
type Imm struct {
	Kind ImmKind
	Bits uint64 // the low 32 bits hold the value of an F32Bits
}

// Vector is {a, b, c, d}.
type Vector struct{ Elems []Operand }

// Addr is an address: [base + offset], [base, {coordinates}] for a tensor or texture, or
// [base, sampler, {coordinates}] for a texture with a separate sampler.
type Addr struct {
	Base    Operand // *Name or *Imm
	Offset  int64
	Sampler *Name
	Coords  *Vector
}

// Sum is a variable's address plus an offset in bytes, used as a value: array+16.
type Sum struct {
	Base   *Name
	Offset int64
}

// Pair is a pair of results, d|p. The first can be a vector.
type Pair struct{ First, Second Operand }

// Not is a negated predicate, !p.
type Not struct{ X *Name }

// Minus is a negated number, -a, in vmad.
type Minus struct{ X *Name }

// Args is the parenthesised list of a call's results or arguments.
type Args struct{ List []Operand }

// Sink is _, a placeholder for a result that is discarded.
type Sink struct{}

func (*Var) decl()     {}
func (*Func) decl()    {}
func (*File) decl()    {}
func (*Pragma) decl()  {}
func (*Comment) decl() {}

func (*Instr) stmt()     {}
func (*Label) stmt()     {}
func (*Targets) stmt()   {}
func (*Prototype) stmt() {}
func (*Var) stmt()       {}
func (*Loc) stmt()       {}
func (*Pragma) stmt()    {}
func (*Block) stmt()     {}
func (*Comment) stmt()   {}

func (*Name) operand()   {}
func (*Imm) operand()    {}
func (*Vector) operand() {}
func (*Addr) operand()   {}
func (*Sum) operand()    {}
func (*Pair) operand()   {}
func (*Not) operand()    {}
func (*Minus) operand()  {}
func (*Args) operand()   {}
func (*Sink) operand()   {}

// Funcs returns the module's functions in order, including those without a body.
func (m *Module) Funcs() []*Func {
	var fs []*Func
	for _, d := range m.Decls {
		if f, ok := d.(*Func); ok {
			fs = append(fs, f)
		}
	}
	return fs
}

// ParamBytes returns the size of f's parameters in memory, each aligned to its own alignment.
func (f *Func) ParamBytes() int {
	n := 0
	for _, v := range f.Params {
		n = (n+v.Alignment()-1)/v.Alignment()*v.Alignment() + v.Size()
	}
	return n
}

// Files returns the paths of the module's .file directives by their indices, as in .loc directives.
func (m *Module) Files() map[int]string {
	files := map[int]string{}
	for _, d := range m.Decls {
		if f, ok := d.(*File); ok && files[f.Index] == "" {
			files[f.Index] = f.Path
		}
	}
	return files
}

// Walk calls f for each statement of b and of its nested blocks, in order.
func (b *Block) Walk(f func(Stmt)) {
	for _, s := range b.Stmts {
		f(s)
		if inner, ok := s.(*Block); ok {
			inner.Walk(f)
		}
	}
}

// Size returns the size of v in memory, in bytes. It returns 0 for registers and for arrays of
// unknown length.
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

// Alignment returns the alignment of v in bytes.
func (v *Var) Alignment() int {
	if v.Align > 0 {
		return v.Align
	}
	return v.Type.Bytes() * max(v.Vec, 1)
}
