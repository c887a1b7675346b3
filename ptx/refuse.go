package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// variant is a form with a modifier in each slot, or "" in an empty one.
type variant struct {
	form  *Form
	slots []string
}

func (v *variant) mnemonic() string {
	text := v.form.Op
	for _, mod := range v.slots {
		if mod != "" {
			text += "." + mod
		}
	}
	return text
}

// refuse returns the error for an instruction that none of forms accepts. Accepted are the variants
// that accept its modifiers but not its operands.
func (i *Instr) refuse(forms []*Form, accepted []variant) error {
	near := nearest(forms, i.Mods)
	for _, mod := range i.Mods {
		if feature := unsupportedFeature(mod); feature != "" {
			msg := fmt.Sprintf("%s: modifier .%s is not supported (%s)", i.Mnemonic(), mod, feature)
			if near.mnemonic() != i.Mnemonic() {
				msg += ": the nearest supported instruction is " + near.mnemonic()
			}
			return &Error{Pos: i.Pos, Kind: ErrUnsupported, Msg: msg}
		}
	}
	if len(accepted) > 0 {
		return i.invalid("%s", i.wrongOperand(accepted))
	}
	left := slices.Clone(near.slots)
	for _, mod := range i.Mods {
		k := slices.Index(left, mod)
		if k < 0 {
			return i.invalid("modifier .%s is not allowed: the nearest supported instruction is %s", mod, near.mnemonic())
		}
		left[k] = ""
	}
	wrong := "a modifier is missing"
	if strings.Join(left, "") == "" {
		wrong = "the modifiers are in the wrong order"
	}
	return i.invalid("%s: the nearest supported instruction is %s", wrong, near.mnemonic())
}

// nearest returns the variant that keeps most of mods and adds the fewest others.
func nearest(forms []*Form, mods []string) variant {
	var best variant
	most, fewest := -1, 0
	for _, f := range forms {
		v := variant{f, make([]string, len(f.Slots))}
		kept, added := 0, 0
		var dropped []string
		for _, mod := range mods {
			if k := f.freeSlot(mod, 0, v.slots); k < len(v.slots) {
				v.slots[k] = mod
				kept++
			} else {
				dropped = append(dropped, mod)
			}
		}
		for k := range v.slots {
			switch s := &f.Slots[k]; {
			case !f.lacks(k, v.slots):
			case v.slots[k] == "":
				v.slots[k] = s.like(dropped)
				added++
			default: // the slot before it is empty
				v.slots[k-1] = f.Slots[k-1].like(dropped)
				added++
			}
		}
		if kept > most || kept == most && added < fewest {
			best, most, fewest = v, kept, added
		}
	}
	return best
}

// like returns a value of the slot: one with the same digits as one of mods, such as u32 for q32,
// or the first one.
func (s *Slot) like(mods []string) string {
	for _, mod := range mods {
		digits := strings.TrimLeft(mod, "abcdefghijklmnopqrstuvwxyz")
		for _, value := range s.Values {
			if digits != "" && strings.HasSuffix(value, digits) {
				return value
			}
		}
	}
	return s.Values[0]
}

// wrongOperand describes the first operand that does not match, for the variant that matches most
// operands.
func (i *Instr) wrongOperand(accepted []variant) string {
	best, furthest := "", -1
	for _, v := range accepted {
		want := v.form.operandsFor(len(i.Args), v.slots)
		k := 0
		for k < min(len(want), len(i.Args)) && v.form.matchArg(want[k], i.Args[k], v.slots) {
			k++
		}
		if k <= furthest {
			continue
		}
		furthest = k
		switch {
		case len(want) != len(i.Args):
			var texts []string
			for _, o := range want {
				texts = append(texts, v.form.operandText(o, v.slots))
			}
			best = fmt.Sprintf("found %d operands: want %d (%s)", len(i.Args), len(want), strings.Join(texts, ", "))
		case k == len(want):
			best = "the operands do not fit together"
		default:
			best = fmt.Sprintf("operand %d is %s: want %s", k+1, foundText(i.Args[k]), v.form.operandText(want[k], v.slots))
		}
	}
	return best
}

// operandText describes the operands that a form accepts in one place.
func (f *Form) operandText(o *OperandForm, slots []string) string {
	n := f.vectorLen(o, slots)
	text := ""
	switch {
	case o.Kind == AddressOperand && o.Coords:
		text = fmt.Sprintf("the address of a tensor map with %d coordinates", n)
	case o.Kind == AddressOperand:
		text = "an address in brackets"
	case o.Kind == ConstOperand && len(o.Ranges) > 0:
		text = fmt.Sprintf("a number (%s)", rangeText(o.Ranges))
	case o.Kind == ConstOperand:
		text = "a number"
	case o.Kind == LabelOperand:
		text = "a label"
	case o.Kind == TargetsOperand:
		text = "a list of labels"
	case o.Kind == ProtoOperand:
		text = "a prototype"
	case o.Kind == FuncOperand:
		text = "a function"
	case o.Kind == ArgsOperand:
		text = "a list of arguments in parentheses"
	case o.Kind == SinkOperand:
		return "_"
	case n > 0:
		text = fmt.Sprintf("a vector of %d registers", n)
	case o.Dst || o.Second != "":
		text = "a register"
	default:
		text = "a register or a number"
	}
	if o.Second != "" && !o.SecondOptional {
		text += " and a predicate, as d|p"
	}
	if o.Sink {
		text += " or _"
	}
	return text
}

// foundText describes an operand.
func foundText(arg Operand) string {
	switch a := arg.(type) {
	case *Name:
		return a.Name
	case *Imm:
		return "a number"
	case *Vector:
		return fmt.Sprintf("a vector of %d", len(a.Elems))
	case *Addr:
		if a.Coords != nil {
			return fmt.Sprintf("an address with %d coordinates", len(a.Coords.Elems))
		}
		return "an address"
	case *Pair:
		return "a pair of results"
	case *Not:
		return "a negated predicate"
	case *Minus:
		return "a negated register"
	case *Args:
		return "a list of arguments"
	case *Sink:
		return "_"
	}
	return "an expression"
}

// unsupportedOps names the feature of instructions that the table does not contain.
var unsupportedOps = func() map[string]string {
	m := map[string]string{}
	for feature, ops := range map[string]string{
		"textures": "tex tld4 txq",
		"surfaces": "suld sust sured suq istypep",
		"multimem": "multimem",
	} {
		for _, op := range strings.Fields(ops) {
			m[op] = feature
		}
	}
	return m
}()

// unsupportedFeature returns the feature that a modifier belongs to if no row has the feature, or
// an empty string.
func unsupportedFeature(mod string) string {
	for _, f := range []struct{ prefix, feature string }{
		{"sp", "sparse matrices"},
		{"s2f6x2", "fixed-point numbers"}, {"scaled::n2", "conversions with scales"},
		{"im2col_no_offs", "im2col stores of TMA"}, {"im2col::w", "mode im2col::w of TMA"},
		{"tile::gather", "gather mode of TMA"}, {"tile::scatter", "scatter mode of TMA"},
		{"cta_group::", "pairs of blocks"}, {"rs", "stochastic rounding"},
	} {
		if mod == f.prefix || len(f.prefix) > 2 && strings.HasPrefix(mod, f.prefix) || strings.HasPrefix(mod, f.prefix+"::") {
			return f.feature
		}
	}
	return ""
}
