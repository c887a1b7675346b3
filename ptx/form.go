package ptx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Form is one row of the instruction table: an opcode, the modifiers that can follow it, and its
// operands.
//
// Rows use the notation of the manual, with annotations on the operands for rules that the manual
// states in prose:
//
//	add{.rnd}{.ftz}{.sat}.f32 d, a, b
//
// The table states the first version and the architectures before each row, such as "8.6
// sm_100f|sm_110f". A modifier slot is a literal (.f32), the name of a set (.rnd), alternatives of
// both (.hi|lo), or a set under another name (.dtype=int). Braces mark optional slots. Slots in the
// same braces are present or absent together. An operand is one of the following:
//
//	d          a register. The operands named d and dred are written, all others are read;
//	           wgmma.mma_async also reads d
//	a          a register or an immediate of the instruction's type
//	a:u32      a register or an immediate of another type: the name of a type, or of the slot
//	           that holds it, or "wide" for twice the width of the instruction's type
//	a:type+    as a:type, and the register may be wider
//	a:type&    as a:type, or the address of a variable
//	a:type%    as a:type, or a special register
//	d_         as d, or the sink
//	a:f32*4    a vector of length 4. *vec takes the length from the slot vec, *num*2 is twice the
//	           number in the slot num, *N/2 is half of the n in the shape, *dim the number of
//	           dimensions of the tensor, *dim-2 two fewer
//	a=0..7     an immediate in a range; a=4|8|16 one of three values; a=0..64/8 a multiple of 8
//	a:u32=0..7 a register, or an immediate in the range. In a vector, a:u32*2=0..7|0..3, each
//	           element has a range of its own, or all have the same
//	d|p, d{|p} two results, the second a predicate. p_ is p, or the sink; d or p is a register
//	!a:pred    a predicate that can be negated with !
//	-a         a register that can be negated with -
//	a@         a register or a part of it, as in a.b0
//	[a]        an address in the state space of the slot space, generic without that slot
//	[a:shared] an address in the given state space, or in tensor memory
//	[a:global, c*dim]  the address of a tensor map, and coordinates
//	f:func  t:label  (a):args   a function, a label, a list of arguments
//	t:targets  p:proto          a list of labels, a prototype or a list of functions
//	_          only the sink
//	{, b}      an optional operand
//	a?x        an operand that is present if and only if modifier x is
type Form struct {
	Index    int    // index in Forms
	Op       string // "ld"
	Text     string // the row as written
	Slots    []Slot
	Operands []OperandForm
	Need     Need   // requirements of the form; modifiers can add to them
	Doc      string // description in one line
	Section  string // anchor in the manual
}

// Slot is one position in the sequence of modifiers.
type Slot struct {
	Name     string   // name of the set, or the text of a literal or of alternatives
	Values   []string // possible modifiers, in table order
	Optional bool
	Tied     bool // present if and only if the previous slot is
}

// OperandKind is the syntactic kind of an operand.
type OperandKind uint8

const (
	ValueOperand   OperandKind = iota // a register, an immediate, or a vector of these
	ConstOperand                      // an immediate
	AddressOperand                    // [a]
	LabelOperand                      // the target of a branch
	TargetsOperand                    // the list of labels of an indirect branch
	ProtoOperand                      // the prototype, or the list of functions, of an indirect call
	FuncOperand                       // the callee of a call
	ArgsOperand                       // (a, b)
	SinkOperand                       // _
)

// OperandForm describes one operand of a form.
type OperandForm struct {
	Name           string
	Kind           OperandKind
	Dst            bool    // the instruction writes the operand
	Type           string  // type of a value: a type, a slot or "wide"; empty for the instruction's type
	Space          Space   // state space of an address; NoSpace means that of the instruction
	Len            string  // length of a vector: a number, "vec", "num*2", "dim", "dim-2" or "N/2"; empty for a scalar
	Wider          bool    // the register may be wider than Type
	Symbol         bool    // the address of a variable is allowed
	Special        bool    // a special register is allowed
	Sink           bool    // the sink is allowed
	SecondSink     bool    // the sink is allowed for the second result
	Negated        bool    // the operand can be negated with !
	Minus          bool    // the operand can be negated with -
	Part           bool    // a half or a byte of the operand, or several, can be selected
	Second         string  // name of the second result, after |
	SecondOptional bool    // the second result can be omitted
	Coords         bool    // the address has tensor coordinates
	Optional       bool    // the operand can be omitted
	If             string  // the operand is present if and only if this modifier is
	Ranges         []Range // allowed values of an immediate; empty if only the type limits them
}

// Range is the set of integers Lo, Lo+Step, … up to Hi.
type Range struct{ Lo, Hi, Step int64 }

// Forms returns the instruction table with all supported instructions. The caller must not modify
// it.
func Forms() []*Form { return table().forms }

// FormsOf returns the forms of an opcode.
func FormsOf(op string) []*Form { return table().byOp[op] }

type formTable struct {
	forms []*Form
	byOp  map[string][]*Form
}

// table parses the rows of the table once. It panics on a malformed row. Tests parse all rows.
var table = sync.OnceValue(func() *formTable {
	t := &formTable{byOp: map[string][]*Form{}}
	for _, text := range families {
		var section, doc string
		for _, line := range strings.Split(text, "\n") {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if head, ok := strings.CutPrefix(line, "# "); ok {
				section, doc, _ = strings.Cut(head, ": ")
				continue
			}
			f, err := parseForm(line)
			if err != nil {
				panic(fmt.Sprintf("ptx: instruction table: %q: %v", line, err))
			}
			f.Index, f.Doc, f.Section = len(t.forms), doc, section
			t.forms = append(t.forms, f)
			t.byOp[f.Op] = append(t.byOp[f.Op], f)
		}
	}
	return t
})

// parseForm parses a row, such as "8.0 sm_90a wgmma.fence.sync.aligned": version, targets and
// form.
func parseForm(line string) (*Form, error) {
	fields := strings.SplitN(strings.Join(strings.Fields(line), " "), " ", 3)
	if len(fields) < 3 {
		return nil, fmt.Errorf("want version, target and form")
	}
	f := &Form{Text: fields[2]}
	var err error
	if f.Need, err = parseNeed(fields[0], fields[1]); err != nil {
		return nil, err
	}
	head, tail, _ := strings.Cut(f.Text, " ")
	if i := strings.IndexAny(head, ".{"); i >= 0 {
		f.Op, head = head[:i], head[i:]
	} else {
		f.Op, head = head, ""
	}
	for head != "" {
		slot := Slot{Optional: head[0] == '{'}
		var body string
		if slot.Optional {
			body, head, _ = strings.Cut(head[1:], "}")
		} else if i := strings.IndexAny(head[1:], ".{"); i >= 0 {
			body, head = head[:i+1], head[i+1:]
		} else {
			body, head = head, ""
		}
		for _, text := range strings.Split(strings.TrimPrefix(body, "."), ".") {
			if err := slot.parse(text); err != nil {
				return nil, err
			}
			f.Slots = append(f.Slots, slot)
			slot = Slot{Optional: true, Tied: true}
		}
	}
	return f, f.parseOperands(tail)
}

// parse sets s to a slot in the notation of [Form], without its dot and braces.
func (s *Slot) parse(text string) error {
	name, alternatives, renamed := strings.Cut(text, "=")
	if !renamed {
		alternatives = text
	}
	s.Name = name
	for _, a := range strings.Split(alternatives, "|") {
		if set, ok := modifierSets[a]; ok {
			s.Values = append(s.Values, strings.Fields(set)...)
		} else if a != "" {
			s.Values = append(s.Values, a)
		} else {
			return fmt.Errorf("empty modifier in %q", text)
		}
	}
	return nil
}

// parseOperands parses the list of operands of a row.
func (f *Form) parseOperands(text string) error {
	optional := false
	for text != "" {
		text = strings.TrimLeft(text, ", ")
		if strings.HasPrefix(text, "{,") {
			optional, text = true, strings.TrimLeft(text[2:], " ")
		}
		end, depth := 0, 0
		for ; end < len(text); end++ {
			c := text[end]
			if c == '[' || c == '(' || c == '{' && end+1 < len(text) && text[end+1] == '|' {
				depth++
			} else if depth > 0 && (c == ']' || c == ')' || c == '}') {
				depth--
			} else if depth == 0 && (c == ',' || c == '}' || c == '{') {
				break
			}
		}
		o := OperandForm{Optional: optional}
		if err := o.parse(strings.TrimSpace(text[:end])); err != nil {
			return err
		}
		f.Operands = append(f.Operands, o)
		if text = text[end:]; strings.HasPrefix(text, "}") {
			optional, text = false, text[1:]
		}
	}
	return nil
}

// parse sets o to an operand in the notation of [Form].
func (o *OperandForm) parse(s string) error {
	if s == "_" {
		o.Name, o.Kind, o.Dst = s, SinkOperand, true
		return nil
	}
	s, o.If, _ = strings.Cut(s, "?")
	if inner, ok := strings.CutPrefix(s, "["); ok {
		o.Kind = AddressOperand
		inner, coords, tensor := strings.Cut(strings.TrimSuffix(inner, "]"), ", ")
		if o.Coords = tensor; tensor {
			_, o.Len, _ = strings.Cut(coords, "*")
		}
		var space string
		o.Name, space, _ = strings.Cut(inner, ":")
		if space != "" {
			switch o.Space = spaces[space]; space {
			case "generic":
				o.Space = Generic
			case "tensor": // no modifier
				o.Space = Tensor
			}
			if o.Space == NoSpace {
				return fmt.Errorf("no state space %q", space)
			}
		}
		return nil
	}
	if s, o.SecondOptional = strings.CutSuffix(s, "}"); o.SecondOptional {
		s = strings.Replace(s, "{|", "|", 1)
	}
	s, o.Second, _ = strings.Cut(s, "|")
	o.Second, o.SecondSink = strings.CutSuffix(o.Second, "_")
	if before, values, ok := strings.Cut(s, "="); ok {
		// The cut at | has split the alternatives of an immediate: join them again.
		if o.Second != "" {
			values, o.Second = values+"|"+o.Second, ""
		}
		if err := o.parseRanges(values); err != nil {
			return err
		}
		if s = before; !strings.Contains(s, ":") {
			o.Name, o.Kind = s, ConstOperand
			return nil
		}
	}
	s, o.Negated = strings.CutPrefix(s, "!")
	s, o.Minus = strings.CutPrefix(s, "-")
	o.Name, o.Type, _ = strings.Cut(s, ":")
	o.Type, o.Len, _ = strings.Cut(o.Type, "*")
	if name, length, ok := strings.Cut(o.Name, "*"); ok {
		o.Name, o.Len = name, length
	}
	o.Name, o.Sink = strings.CutSuffix(o.Name, "_")
	o.Name, o.Part = strings.CutSuffix(o.Name, "@")
	o.Type, o.Special = strings.CutSuffix(o.Type, "%")
	o.Type, o.Symbol = strings.CutSuffix(o.Type, "&")
	o.Type, o.Wider = strings.CutSuffix(o.Type, "+")
	o.Dst = o.Name == "d" || o.Name == "dred"
	switch o.Type {
	case "label":
		o.Kind, o.Type = LabelOperand, ""
	case "targets":
		o.Kind, o.Type = TargetsOperand, ""
	case "proto":
		o.Kind, o.Type = ProtoOperand, ""
	case "func":
		o.Kind, o.Type = FuncOperand, ""
	case "args":
		o.Kind, o.Type = ArgsOperand, ""
		o.Name = strings.Trim(o.Name, "()")
		o.Dst = o.Name == "d"
	}
	if o.Name == "" {
		return fmt.Errorf("operand %q has no name", s)
	}
	return nil
}

// parseRanges adds ranges such as 0..7|16..64/8 to o.
func (o *OperandForm) parseRanges(values string) error {
	for _, v := range strings.Split(values, "|") {
		bounds, step, _ := strings.Cut(v, "/")
		if step == "" {
			step = "1"
		}
		lo, hi, isRange := strings.Cut(bounds, "..")
		if !isRange {
			hi = lo
		}
		l, err1 := strconv.ParseInt(lo, 10, 64)
		h, err2 := strconv.ParseInt(hi, 10, 64)
		by, err3 := strconv.ParseInt(step, 10, 64)
		if err1 != nil || err2 != nil || err3 != nil || l > h || by < 1 {
			return fmt.Errorf("bad range %q", v)
		}
		o.Ranges = append(o.Ranges, Range{l, h, by})
	}
	return nil
}

// admits reports whether v is an allowed value of the immediate.
func (o *OperandForm) admits(v int64) bool {
	return slices.ContainsFunc(o.Ranges, func(r Range) bool { return r.Lo <= v && v <= r.Hi && (v-r.Lo)%r.Step == 0 })
}
