package ptx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Form is one row of the instruction table: an opcode, the modifiers that may
// follow it, and its operands.
//
// Rows are written as in the manual, with what its prose says about operands put
// behind their names:
//
//	add{.rnd}{.ftz}{.sat}.f32 d, a, b
//
// A modifier slot is a literal (.f32), the name of a set (.rnd), alternatives of
// both (.hi|lo), or a set under another name (.dtype=int); { } makes it optional,
// or several slots together. An operand is
//
//	d          a register; what is named d is written, all else is read
//	           (wgmma.mma_async alone reads its d too)
//	a          a register or an immediate of the instruction's type
//	a:u32      … of another type: a type's name, or the slot that holds it,
//	           or wide (twice the instruction's type)
//	a:type+    … or a wider register
//	a:type&    … or the address of a variable
//	a:type%    … or a special register
//	d_         may also be the sink
//	a:f32*4    a vector of 4; *vec: as many as the slot vec says, *N/2: half of
//	           the n in the shape, *dim: as many as the tensor has dimensions
//	a=0..7     an immediate, and its range; a=4|8|16: one of these; a=0..64/8: every eighth
//	a:u32=0..7 a register, or an immediate in the range
//	d|p, d{|p} two results, the second a predicate
//	!a:pred    a predicate that ! may negate
//	[a]        an address in the slot space's state space, generic if there is none
//	[a:shared] an address in that state space
//	[a:global, c*dim]  the address of a tensor map and coordinates
//	f:func  t:label  (a):args   a function, a label, a list of arguments
//	_          the sink and nothing else
//	{, b}      optional
//	a?x        present if and only if the modifier x is
type Form struct {
	Index    int    // in Forms
	Op       string // "ld"
	Text     string // the row itself
	Slots    []Slot
	Operands []OperandForm
	Need     Need   // what the form itself asks for; modifiers may ask for more
	Doc      string // one line
	Section  string // anchor in the manual
}

// Slot is a place for a modifier.
type Slot struct {
	Name     string   // of the set; of a literal or of alternatives, their text
	Values   []string // in the table's order
	Optional bool
	Tied     bool // present if and only if the slot before is
}

// OperandKind is what may stand in an operand's place.
type OperandKind uint8

const (
	ValueOperand   OperandKind = iota // register, immediate or vector of these
	ConstOperand                      // immediate only
	AddressOperand                    // [a]
	LabelOperand                      // of a branch
	FuncOperand                       // of a call
	ArgsOperand                       // (a, b)
	SinkOperand                       // _
)

// OperandForm is one operand of a form.
type OperandForm struct {
	Name           string
	Kind           OperandKind
	Dst            bool   // written rather than read
	Type           string // of a value: type, slot, "wide"; empty for the instruction's type
	Space          Space  // of an address: NoSpace leaves it to the instruction
	Len            string // of a vector: a number, "vec", "dim", "N/2"; empty for a scalar
	Wider          bool
	Symbol         bool
	Special        bool
	Sink           bool   // of the first result; the second of a pair may always be the sink
	Negated        bool   // ! may stand before it
	Second         string // name of the second result, behind |
	SecondOptional bool   // it may be left out
	Coords         bool   // of a tensor's address
	Optional       bool
	If             string  // the modifier that the operand comes and goes with
	Ranges         []Range // that an immediate is in; none leaves it to the type
}

// Range is the values that an immediate may have: every Step from Lo to Hi.
type Range struct{ Lo, Hi, Step int64 }

// Forms is the instruction table: every instruction that this package knows, as
// everything else about instructions ranges over it. The caller must not change it.
func Forms() []*Form { return table().forms }

// FormsOf lists the forms of an opcode.
func FormsOf(op string) []*Form { return table().byOp[op] }

type formTable struct {
	forms []*Form
	byOp  map[string][]*Form
}

// table reads the rows once. A row that cannot be read is a mistake in this
// package, so it panics; the tests read them all.
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

// parseForm reads "8.0 sm_90a wgmma.fence.sync.aligned": version, target, form.
func parseForm(line string) (*Form, error) {
	fields := strings.SplitN(strings.Join(strings.Fields(line), " "), " ", 3)
	if len(fields) < 3 {
		return nil, fmt.Errorf("want version, target and form")
	}
	f := &Form{Text: fields[2]}
	var ok1, ok2 bool
	f.Need.Version, ok1 = ParseVersion(fields[0])
	f.Need.Target, ok2 = ParseTarget(fields[1])
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("bad version or target")
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
			if o.Space = spaces[space]; space == "generic" {
				o.Space = Generic
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
	if before, values, ok := strings.Cut(s, "="); ok {
		// The alternatives of a constant stand behind | too.
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
	o.Name, o.Type, _ = strings.Cut(s, ":")
	o.Type, o.Len, _ = strings.Cut(o.Type, "*")
	if name, length, ok := strings.Cut(o.Name, "*"); ok {
		o.Name, o.Len = name, length
	}
	o.Name, o.Sink = strings.CutSuffix(o.Name, "_")
	o.Type, o.Special = strings.CutSuffix(o.Type, "%")
	o.Type, o.Symbol = strings.CutSuffix(o.Type, "&")
	o.Type, o.Wider = strings.CutSuffix(o.Type, "+")
	o.Dst = o.Name == "d"
	switch o.Type {
	case "label":
		o.Kind, o.Type = LabelOperand, ""
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

// admits reports whether the immediate may be v.
func (o *OperandForm) admits(v int64) bool {
	return slices.ContainsFunc(o.Ranges, func(r Range) bool { return r.Lo <= v && v <= r.Hi && (v-r.Lo)%r.Step == 0 })
}
