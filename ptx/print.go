package ptx

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Print writes m as PTX source to w. The output is deterministic.
func (m *Module) Print(w io.Writer) error {
	p := &printer{w: bufio.NewWriter(w)}
	p.printf(".version %v", m.Version)
	p.line(0, ".target %v", m.Target)
	for _, o := range m.Options {
		p.printf(", %s", o)
	}
	p.line(0, ".address_size %d", m.AddressSize)
	for i, d := range m.Decls {
		if m.setApart(i) {
			p.printf("\n")
		}
		switch d := d.(type) {
		case *Var:
			p.line(0, "%s;", d.text())
		case *Func:
			p.function(d)
		case *File:
			p.line(0, `.file %d "%s"`, d.Index, d.Path)
		case *Pragma:
			p.line(0, `.pragma "%s";`, d.Text)
		case *Comment:
			p.comment(0, d)
		}
	}
	p.printf("\n")
	return p.w.Flush()
}

// String returns m as PTX source.
func (m *Module) String() string {
	var b strings.Builder
	m.Print(&b) // writes to a Builder cannot fail
	return b.String()
}

// setApart reports whether an empty line precedes declaration i. Empty lines separate functions,
// together with the comments above them.
func (m *Module) setApart(i int) bool {
	if c, ok := m.Decls[i].(*Comment); ok && c.Trailing {
		return false
	}
	if i == 0 || isFunc(m.Decls[i-1]) {
		return true
	}
	for _, d := range m.Decls[i:] {
		if !isComment(d) {
			return isFunc(d) && !isComment(m.Decls[i-1])
		}
	}
	return false
}

func isFunc(d Decl) bool {
	_, ok := d.(*Func)
	return ok
}

// printer writes a newline before each line instead of after it, so that a trailing comment can
// follow on the same line. PTX has no escapes in strings.
type printer struct {
	w *bufio.Writer
}

// printf writes formatted text. The bufio.Writer keeps the first error until Flush.
func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

// line writes a newline, depth tabs and formatted text.
func (p *printer) line(depth int, format string, args ...any) {
	p.w.WriteString("\n")
	for range depth {
		p.w.WriteByte('\t')
	}
	p.printf(format, args...)
}

func (p *printer) comment(depth int, c *Comment) {
	text := strings.TrimRight("// "+c.Text, " ")
	if c.Trailing {
		p.printf(" %s", text)
	} else {
		p.line(depth, "%s", text)
	}
}

func (p *printer) function(f *Func) {
	p.line(0, "")
	if f.Linkage != "" {
		p.printf(".%s ", f.Linkage)
	}
	if f.Entry {
		p.printf(".entry ")
	} else {
		p.printf(".func ")
	}
	if len(f.Results) > 0 {
		p.printf("(%s) ", joinVars(f.Results))
	}
	p.printf("%s(", f.Name)
	for i, v := range f.Params {
		if i > 0 {
			p.printf(",")
		}
		p.line(1, "%s", v.text())
	}
	if len(f.Params) > 0 {
		p.line(0, ")")
	} else {
		p.printf(")")
	}
	p.attrs(f)
	if f.Body == nil {
		p.printf(";")
		return
	}
	p.line(0, "{")
	p.stmts(1, f.Body.Stmts)
	p.line(0, "}")
}

func (p *printer) attrs(f *Func) {
	for _, a := range f.Attrs {
		p.line(0, ".%s", a.Name)
		for i, n := range a.Args {
			if i > 0 {
				p.printf(",")
			}
			p.printf(" %d", n)
		}
	}
}

func joinVars(vs []*Var) string {
	texts := make([]string, len(vs))
	for i, v := range vs {
		texts[i] = v.text()
	}
	return strings.Join(texts, ", ")
}

func (p *printer) stmts(depth int, stmts []Stmt) {
	for _, s := range stmts {
		switch s := s.(type) {
		case *Instr:
			p.line(depth, "%s", s)
		case *Label:
			p.line(0, "%s:", s.Name)
		case *Targets:
			names := make([]Operand, len(s.List))
			for k, n := range s.List {
				names[k] = n
			}
			kind := "branchtargets"
			if s.Call {
				kind = "calltargets"
			}
			p.line(0, "%s: .%s %s;", s.Name, kind, formatList(names))
		case *Prototype:
			p.line(0, "%s: .callprototype (%s) _ (%s)", s.Name, joinVars(s.Results), joinVars(s.Params))
			p.attrs(s.Func)
			p.printf(";")
		case *Var:
			p.line(depth, "%s;", s.text())
		case *Loc:
			p.line(depth, ".loc %d %d %d", s.File, s.Line, s.Col)
		case *Pragma:
			p.line(depth, `.pragma "%s";`, s.Text)
		case *Comment:
			p.comment(depth, s)
		case *Block:
			p.line(depth, "{")
			p.stmts(depth+1, s.Stmts)
			p.line(depth, "}")
		}
	}
}

// String returns i as PTX source, including the semicolon.
func (i *Instr) String() string {
	var b strings.Builder
	if i.Guard != nil {
		b.WriteByte('@')
		if i.Guard.Neg {
			b.WriteByte('!')
		}
		b.WriteString(Format(i.Guard.Pred) + " ")
	}
	b.WriteString(i.Mnemonic())
	for k, a := range i.Args {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + Format(a))
	}
	b.WriteByte(';')
	return b.String()
}

// Format returns an operand as PTX source.
func Format(o Operand) string {
	switch o := o.(type) {
	case *Name:
		if o.Member != "" {
			return o.Name + "." + o.Member
		}
		return o.Name
	case *Imm:
		return o.text()
	case *Vector:
		return "{" + formatList(o.Elems) + "}"
	case *Addr:
		s := "[" + Format(o.Base) + offset(o.Offset)
		if o.Sampler != nil {
			s += ", " + Format(o.Sampler)
		}
		if o.Coords != nil {
			s += ", " + Format(o.Coords)
		}
		return s + "]"
	case *Sum:
		return Format(o.Base) + offset(o.Offset)
	case *Pair:
		return Format(o.First) + "|" + Format(o.Second)
	case *Not:
		return "!" + Format(o.X)
	case *Minus:
		return "-" + Format(o.X)
	case *Args:
		return "(" + formatList(o.List) + ")"
	case *Sink:
		return "_"
	}
	return "?"
}

func formatList(list []Operand) string {
	texts := make([]string, len(list))
	for i, o := range list {
		texts[i] = Format(o)
	}
	return strings.Join(texts, ", ")
}

// offset returns the part of an address after its base. The notation of a negative offset is +-4:
// ptxas rejects -4.
func offset(n int64) string {
	if n == 0 {
		return ""
	}
	return "+" + strconv.FormatInt(n, 10)
}

// text returns m in PTX. Floating-point numbers are printed as their bits.
func (m *Imm) text() string {
	switch m.Kind {
	case F32Bits:
		return fmt.Sprintf("0f%08X", uint32(m.Bits))
	case F64Bits:
		return fmt.Sprintf("0d%016X", m.Bits)
	case Uint:
		return strconv.FormatUint(m.Bits, 10)
	}
	return strconv.FormatInt(int64(m.Bits), 10)
}

// text returns the declaration of v without the semicolon.
func (v *Var) text() string {
	var b strings.Builder
	word := func(format string, args ...any) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, format, args...)
	}
	if v.Linkage != "" {
		word(".%s", v.Linkage)
	}
	word(".%v", v.Space)
	if v.Attr != "" {
		word(".attribute(.%s)", v.Attr)
	}
	if v.Align > 0 {
		word(".align %d", v.Align)
	}
	if v.Vec > 0 {
		word(".v%d", v.Vec)
	}
	word(".%v", v.Type)
	if v.Ptr != nil {
		word(".ptr")
		if v.Ptr.Space != Generic {
			word(".%v", v.Ptr.Space)
		}
		if v.Ptr.Align > 0 {
			word(".align %d", v.Ptr.Align)
		}
	}
	if v.Name != "" {
		word("%s", v.Name)
	}
	if v.Count > 0 {
		fmt.Fprintf(&b, "<%d>", v.Count)
	}
	for _, d := range v.Dims {
		if d < 0 {
			b.WriteString("[]")
		} else {
			fmt.Fprintf(&b, "[%d]", d)
		}
	}
	if v.Init != nil {
		b.WriteString(" = " + v.Init.text())
	}
	return b.String()
}

// text returns the initial value n in PTX.
func (n *Init) text() string {
	switch {
	case n.Properties != "":
		return "{" + n.Properties + "}"
	case n.Value == nil:
		texts := make([]string, len(n.List))
		for i, e := range n.List {
			texts[i] = e.text()
		}
		return "{" + strings.Join(texts, ", ") + "}"
	}
	s := Format(n.Value)
	if n.Generic {
		sum, ok := n.Value.(*Sum)
		if ok {
			s = "generic(" + Format(sum.Base) + ")" + offset(sum.Offset)
		} else {
			s = "generic(" + s + ")"
		}
	}
	if n.Mask != 0 {
		s = fmt.Sprintf("0x%X(%s)", n.Mask, s)
	}
	return s
}
