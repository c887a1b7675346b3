package ptx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// binding is the result of matching an instruction with its form.
type binding struct {
	slots []string       // modifier in each slot of the form; "" if absent
	args  []*OperandForm // form of each argument
	types []Type         // type of each argument
}

// Mnemonic returns the opcode with its modifiers, such as "ld.global.f32".
func (i *Instr) Mnemonic() string {
	if len(i.Mods) == 0 {
		return i.Op
	}
	return i.Op + "." + strings.Join(i.Mods, ".")
}

// Mod returns the modifier in the form's slot of the given name, without the dot. It returns ""
// if the modifier is absent. The instruction must be bound.
func (i *Instr) Mod(slot string) string {
	return i.Form.mod(slot, i.slots)
}

// mod returns the modifier in the slot of the given name, or "" if it is absent.
func (f *Form) mod(slot string, slots []string) string {
	for k := range f.Slots {
		if f.Slots[k].Name == slot {
			return slots[k]
		}
	}
	return ""
}

// Has reports whether i has the modifier.
func (i *Instr) Has(mod string) bool { return slices.Contains(i.Mods, mod) }

// Type returns the type that the form requires of argument k. For a vector this is the type of
// each element. For arguments without a type, such as addresses and labels, it is NoType. The
// instruction must be bound.
func (i *Instr) Type(k int) Type { return i.types[k] }

// Operand returns the form of argument k. The instruction must be bound.
func (i *Instr) Operand(k int) *OperandForm { return i.args[k] }

// Space returns the state space of the address in argument k: that of the operand's form, else
// that of the instruction's modifier, else Generic. The instruction must be bound.
func (i *Instr) Space(k int) Space {
	if s := i.args[k].Space; s != NoSpace {
		return s
	}
	return i.space()
}

// space returns the first state space among i's modifiers, or Generic if there is none.
func (i *Instr) space() Space {
	for _, mod := range i.slots {
		if s, ok := spaces[mod]; ok {
			return s
		}
	}
	return Generic
}

// Bind finds the form that matches i by its modifiers and by the number and kinds of its
// operands. Bind does not resolve names.
//
// The error wraps ErrUnsupported if the table does not contain the opcode or a feature that a
// modifier names, and ErrInvalid if no form accepts the modifiers or the operands.
func Bind(i *Instr) error {
	forms := FormsOf(i.Op)
	if len(forms) == 0 {
		msg := fmt.Sprintf("%s: instruction %q is not supported", i.Mnemonic(), i.Op)
		if feature := unsupportedOps[i.Op]; feature != "" {
			msg += " (" + feature + ")"
		}
		return &Error{Pos: i.Pos, Kind: ErrUnsupported, Msg: msg}
	}
	var accepted []variant // those whose operands do not match
	for _, match := range []matchFunc{(*Form).matchMods, (*Form).matchAnyOrder} {
		for _, f := range forms {
			slots := make([]string, len(f.Slots))
			if !match(f, i.Mods, 0, slots) {
				continue
			}
			b := &binding{slots: slots}
			if f.matchArgs(i, b) {
				i.Form, i.binding = f, b
				return i.combination()
			}
			accepted = append(accepted, variant{f, slots})
		}
	}
	return i.refuse(forms, accepted)
}

// invalid returns an error about i that wraps ErrInvalid.
func (i *Instr) invalid(format string, args ...any) error {
	return &Error{Pos: i.Pos, Kind: ErrInvalid, Msg: i.Mnemonic() + ": " + fmt.Sprintf(format, args...)}
}

// combination checks rules about combinations of modifiers or operands, which rows cannot express.
func (i *Instr) combination() error {
	space := i.space()
	if i.Op == "cvt" && i.Has("sat") {
		from, to := i.Type(1), i.Type(0)
		same := from.Class() == to.Class() && from.Bits() <= to.Bits()
		if same && to.Class() != Float || from.Class() == Unsigned && to.Class() == Signed && from.Bits() < to.Bits() {
			return i.invalid("modifier .sat is not allowed: every .%v is in the range of .%v", from, to)
		}
	}
	minus := func(k int) bool { _, ok := i.Args[k].(*Minus); return ok }
	if i.Op == "vmad" && minus(3) && minus(1) != minus(2) {
		return i.invalid("the product and c are negated: want one of them")
	}
	if i.Has("ashift") && (i.Has("collector::a::fill") || i.Has("collector::a::use")) {
		return i.invalid("modifier .ashift is not allowed with .%s", i.Mod("collector"))
	}
	for k, mod := range i.slots {
		toGlobal := space == Generic || slices.Contains(i.slots, "global") // for a copy, source or destination
		if globalOnly(mod) && !toGlobal {
			return i.invalid("modifier .%s requires .global, not .%v", mod, space)
		}
		if i.Form.Slots[k].Name != "vec" || mod == "" {
			continue
		}
		n, t := int(mod[1]-'0'), i.Form.mainType(i.slots)
		if n*t.Bits() > 128 {
			return i.invalid("a vector of %d %v is larger than 128 bits", n, t)
		}
	}
	return nil
}

// matchFunc assigns mods to the slots of a form from index slot on and reports whether all fit.
type matchFunc func(f *Form, mods []string, slot int, out []string) bool

// matchMods is a matchFunc for modifiers in the form's order.
func (f *Form) matchMods(mods []string, slot int, out []string) bool {
	if slot == len(f.Slots) {
		return len(mods) == 0
	}
	s := &f.Slots[slot]
	if len(mods) > 0 && slices.Contains(s.Values, mods[0]) && !(s.Tied && out[slot-1] == "") {
		out[slot] = mods[0]
		if f.matchMods(mods[1:], slot+1, out) {
			return true
		}
	}
	if s.Optional && !(s.Tied && out[slot-1] != "") {
		out[slot] = ""
		return f.matchMods(mods, slot+1, out)
	}
	return false
}

// matchAnyOrder is a matchFunc for modifiers in another order than the form's. ptxas accepts every
// order with two exceptions: the words of the instruction's name come first, and modifiers of the
// same kind, such as the types of the result and the operand, keep their order.
func (f *Form) matchAnyOrder(mods []string, slot int, out []string) bool {
	var latest [modifierKinds]int // the first slot for the next modifier of each kind
	for _, mod := range mods {
		kind := kindOf(mod)
		k := slot
		if kind != otherKind {
			k = max(k, latest[kind])
		}
		if k = f.freeSlot(mod, k, out); k == len(f.Slots) {
			return false
		}
		out[k], latest[kind] = mod, k+1
	}
	var ordered []string
	for k, mod := range out {
		if f.lacks(k, out) {
			return false
		}
		if mod != "" {
			ordered = append(ordered, mod)
		}
	}
	n := nameWords(f.Op, ordered)
	return slices.Equal(mods[:n], ordered[:n])
}

// freeSlot returns the first slot from index k on that can hold mod and is empty, or the number of
// slots.
func (f *Form) freeSlot(mod string, k int, out []string) int {
	for k < len(f.Slots) && (out[k] != "" || !slices.Contains(f.Slots[k].Values, mod)) {
		k++
	}
	return k
}

// lacks reports whether slot k must be filled, or must be empty because the slot before it is.
func (f *Form) lacks(k int, out []string) bool {
	s := &f.Slots[k]
	return out[k] == "" && !s.Optional || s.Tied && (out[k] == "") != (out[k-1] == "")
}

// modifierKind is the kind of modifiers whose order among each other matters.
type modifierKind uint8

const (
	otherKind modifierKind = iota
	typeKind
	spaceKind
	layoutKind
	priorityKind
	bitKind       // the operations of a matrix product of bits
	modifierKinds // the number of kinds
)

// kindOf returns the kind of a modifier.
func kindOf(mod string) modifierKind {
	if _, ok := ParseType(mod); ok || mod == "u2" || mod == "s2" {
		return typeKind
	}
	switch {
	case spaces[mod] != NoSpace:
		return spaceKind
	case mod == "row" || mod == "col":
		return layoutKind
	case strings.HasPrefix(mod, "L2::evict"):
		return priorityKind
	case mod == "and" || mod == "xor" || mod == "popc":
		return bitKind
	}
	return otherKind
}

// nameWords returns the number of leading modifiers that belong to the name of the instruction,
// such as 2 for mbarrier.arrive.expect_tx.
func nameWords(op string, mods []string) int {
	name, n := op, 0
	for k, mod := range mods {
		if name += "." + mod; instructionNames[name] {
			n = k + 1
		}
	}
	return n
}

// matchArgs assigns the arguments of i to the operands of f and reports whether all fit.
func (f *Form) matchArgs(i *Instr, b *binding) bool {
	b.args = f.operandsFor(len(i.Args), b.slots)
	if len(b.args) != len(i.Args) {
		return false
	}
	for k, o := range b.args {
		if !f.matchArg(o, i.Args[k], b.slots) {
			return false
		}
		b.types = append(b.types, f.typeOf(o, b.slots))
	}
	return true
}

// operandsFor returns the operands of an instruction with n arguments: those that the modifiers
// require, and the first of the optional ones that there are arguments for. The result has another
// length if the form cannot have n arguments.
func (f *Form) operandsFor(n int, slots []string) []*OperandForm {
	required := func(o *OperandForm) bool {
		return o.If == "" && !o.Optional || o.If != "" && slices.Contains(slots, o.If)
	}
	spare := n // arguments left for optional operands
	for k := range f.Operands {
		if required(&f.Operands[k]) {
			spare--
		}
	}
	var all []*OperandForm
	for k := range f.Operands {
		o := &f.Operands[k]
		switch {
		case required(o):
			all = append(all, o)
		case o.If == "" && spare > 0:
			all = append(all, o)
			spare--
		}
	}
	return all
}

// matchArg reports whether arg has the kind that o requires.
func (f *Form) matchArg(o *OperandForm, arg Operand, slots []string) bool {
	switch a := arg.(type) {
	case *Name:
		return o.Kind == ValueOperand && (o.Second == "" || o.SecondOptional) ||
			o.Kind == LabelOperand || o.Kind == FuncOperand || o.Kind == TargetsOperand || o.Kind == ProtoOperand
	case *Imm:
		return o.Kind == ConstOperand || o.Kind == ValueOperand && !o.Dst && f.vectorLen(o, slots) == 0
	case *Vector:
		n := f.vectorLen(o, slots)
		if n == 0 && o.Len == "vec" {
			n = 1 // without .vec, {a} is the same as a
		}
		return o.Kind == ValueOperand && len(a.Elems) > 0 && n == len(a.Elems)
	case *Addr:
		if o.Kind != AddressOperand || o.Coords != (a.Coords != nil) || a.Sampler != nil {
			return false
		}
		return !o.Coords || len(a.Coords.Elems) == f.vectorLen(o, slots)
	case *Sum:
		return o.Symbol
	case *Pair:
		first, second := isSink(a.First), isSink(a.Second)
		return o.Second != "" && (o.Sink || !first) && (o.SecondSink || !second) && !(first && second)
	case *Not:
		return o.Negated
	case *Minus:
		return o.Minus
	case *Args:
		return o.Kind == ArgsOperand
	case *Sink:
		return o.Kind == SinkOperand || o.Sink
	}
	return false
}

// typeOf returns the type of operand o for the modifiers in slots.
func (f *Form) typeOf(o *OperandForm, slots []string) Type {
	if o.Kind != ValueOperand {
		return NoType
	}
	switch o.Type {
	case "":
		return f.mainType(slots)
	case "wide":
		return f.mainType(slots).wide()
	}
	name := o.Type
	if mod := f.mod(name, slots); mod != "" {
		name = mod
	}
	t, _ := ParseType(name)
	return t
}

// mainType returns the type in the slot "type", or else the last type among the modifiers.
func (f *Form) mainType(slots []string) Type {
	last := NoType
	for k, mod := range slots {
		if t, ok := ParseType(mod); ok {
			last = t
			if f.Slots[k].Name == "type" {
				break
			}
		}
	}
	return last
}

// vectorLen returns the length of the vector operand o for the modifiers in slots, or 0 for a
// scalar.
func (f *Form) vectorLen(o *OperandForm, slots []string) int {
	what, divisor, _ := strings.Cut(o.Len, "/")
	what, factor, _ := strings.Cut(what, "*")
	what, fewer, _ := strings.Cut(what, "-")
	switch what {
	case "":
		return 0
	case "vec", "num", "group": // .v4, .x4, .cta_group::2
		mod := f.mod(what, slots)
		n, _ := strconv.Atoi(mod[strings.LastIndexAny(mod, "vx:")+1:])
		if by, err := strconv.Atoi(factor); err == nil {
			n *= by
		}
		return n
	case "dim": // .3d
		if mod := f.mod(what, slots); len(mod) == 2 {
			by, _ := strconv.Atoi(fewer)
			return int(mod[0]-'0') - by
		}
		return 0
	case "N": // .m64n128k16
		_, n, _ := strings.Cut(f.mod("shape", slots), "n")
		n, _, _ = strings.Cut(n, "k")
		cols, _ := strconv.Atoi(n)
		by, _ := strconv.Atoi(divisor)
		if by == 0 {
			return cols
		}
		return cols / by
	default:
		n, _ := strconv.Atoi(what)
		return n
	}
}
