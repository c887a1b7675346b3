package ptx

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// sampler generates instructions from forms, and the registers that they use.
type sampler struct {
	rng  *rand.Rand
	regs map[string]Type // registers used so far
}

func newSampler(seed uint64) *sampler {
	return &sampler{rand.New(rand.NewPCG(seed, 0)), map[string]Type{}}
}

// expand returns instructions of form f. Each modifier of each slot occurs at least once, and
// random combinations of slots fill up the result to most instructions.
func (s *sampler) expand(f *Form, most int) []*Instr {
	choices := make([][]string, len(f.Slots))
	all := 1
	for k, slot := range f.Slots {
		choices[k] = slot.Values
		if slot.Optional {
			choices[k] = append([]string{""}, slot.Values...)
		}
		all = min(all*len(choices[k]), most+1)
	}
	var out []*Instr
	add := func(pick func(k int) int) {
		mods := make([]string, len(f.Slots))
		for k := range mods {
			mods[k] = choices[k][pick(k)]
			if f.Slots[k].Tied && (mods[k] == "") != (mods[k-1] == "") {
				mods[k] = ""
				if mods[k-1] != "" {
					mods[k] = f.Slots[k].Values[0]
				}
			}
		}
		out = append(out, s.instr(f, mods))
	}
	if all <= most {
		// Enumerate all combinations.
		at := make([]int, len(choices))
		for {
			add(func(k int) int { return at[k] })
			k := 0
			for ; k < len(at); k++ {
				if at[k]++; at[k] < len(choices[k]) {
					break
				}
				at[k] = 0
			}
			if k == len(at) {
				return out
			}
		}
	}
	for slot := range choices {
		for value := range choices[slot] {
			add(func(k int) int {
				if k == slot {
					return value
				}
				return 0
			})
		}
	}
	for len(out) < most {
		add(func(k int) int { return s.rng.IntN(len(choices[k])) })
	}
	return out
}

// instr returns an instruction of form f with the given modifiers and with registers of exactly
// the right types.
func (s *sampler) instr(f *Form, slots []string) *Instr {
	i := &Instr{Op: f.Op}
	present := map[string]bool{}
	for _, mod := range slots {
		if mod != "" {
			i.Mods = append(i.Mods, mod)
			present[mod] = true
		}
	}
	for n := range f.Operands {
		o := &f.Operands[n]
		if o.If != "" && !present[o.If] || o.If == "" && o.Optional && s.rng.IntN(2) == 0 {
			continue
		}
		i.Args = append(i.Args, s.arg(f, o, slots))
	}
	return i
}

// videoSamples holds selectors of video instructions, for the result and for an operand.
var videoSamples = map[string][2]string{"": {"h1", "b2"}, "2": {"h0", "h31"}, "4": {"b20", "b7012"}}

func (s *sampler) arg(f *Form, o *OperandForm, slots []string) Operand {
	length := f.vectorLen(o, slots)
	switch o.Kind {
	case ConstOperand:
		return &Imm{Int, uint64(o.Ranges[s.rng.IntN(len(o.Ranges))].Lo)}
	case LabelOperand:
		return &Name{Name: "L"}
	case TargetsOperand:
		return &Name{Name: "T"}
	case ProtoOperand:
		return &Name{Name: "P"}
	case FuncOperand:
		return &Name{Name: "callee"}
	case ArgsOperand:
		return &Args{[]Operand{s.reg(U32, 0)}}
	case SinkOperand:
		return &Sink{}
	case AddressOperand:
		a := &Addr{Base: s.reg(U64, 0)}
		if o.Space == Tensor {
			a.Base = s.reg(B32, 0)
		}
		if o.Coords {
			a.Coords = &Vector{s.vector(S32, length)}
		}
		return a
	}
	t := f.typeOf(o, slots).Info().Storage
	if length > 0 {
		return &Vector{s.vector(t, length)}
	}
	first := s.reg(t, 0)
	if o.Part && s.rng.IntN(2) == 0 {
		parts := videoSamples[strings.TrimLeft(f.Op, "abcdefghijklmnopqrstuvwxyz")]
		if first.Member = parts[1]; o.Dst {
			first.Member = parts[0]
		}
	}
	if o.Minus && s.rng.IntN(2) == 0 {
		return &Minus{first}
	}
	if o.Second != "" && (!o.SecondOptional || s.rng.IntN(2) == 0) {
		return &Pair{first, s.reg(Pred, 1)}
	}
	if o.Negated && s.rng.IntN(2) == 0 {
		return &Not{first}
	}
	return first
}

// perturbed returns a random instruction with one operand replaced by another one that is
// plausible there. It returns nil if the instruction has no operand to replace.
func (s *sampler) perturbed() *Instr {
	f := Forms()[s.rng.IntN(len(Forms()))]
	slots := make([]string, len(f.Slots))
	for k, slot := range f.Slots {
		if slot.Tied && slots[k-1] == "" || slot.Optional && !slot.Tied && s.rng.IntN(2) == 0 {
			continue
		}
		slots[k] = slot.Values[s.rng.IntN(len(slot.Values))]
	}
	i := s.instr(f, slots)
	if f.Op == "call" || Bind(i) != nil || len(i.Args) == 0 {
		return nil
	}
	k := s.rng.IntN(len(i.Args))
	if i.args[k].Kind != ValueOperand {
		return nil
	}
	other := s.other(i.types[k])
	switch a := i.Args[k].(type) {
	case *Vector:
		a.Elems[s.rng.IntN(len(a.Elems))] = other
	case *Pair:
		a.First = other
	default:
		i.Args[k] = other
	}
	return i
}

// other returns a random operand that resembles one of type t.
func (s *sampler) other(t Type) Operand {
	switch s.rng.IntN(10) {
	case 0:
		return &Sink{}
	case 1:
		return &Name{Name: "%tid", Member: "x"}
	case 2:
		return &Imm{Int, s.rng.Uint64() >> s.rng.IntN(64)}
	case 3:
		return &Imm{Int, -(s.rng.Uint64() >> (1 + s.rng.IntN(63)))}
	case 4:
		return &Imm{F32Bits, uint64(s.rng.Uint32())}
	case 5:
		return &Imm{F64Bits, s.rng.Uint64()}
	}
	for {
		// The assembler is inconsistent about registers of type .f16x2.
		other := Types()[s.rng.IntN(len(Types()))]
		if other.Declarable() && other != F16x2 && (other.Bits() == t.Bits() || s.rng.IntN(4) == 0) {
			return s.reg(other, 0)
		}
	}
}

func (s *sampler) vector(t Type, n int) []Operand {
	elems := make([]Operand, n)
	for k := range elems {
		elems[k] = s.reg(t, k)
	}
	return elems
}

func (s *sampler) reg(t Type, k int) *Name {
	name := fmt.Sprintf("%%%v_%d", t, k)
	s.regs[name] = t
	return &Name{Name: name}
}

// module returns a module with a kernel that declares the registers used so far and executes
// instrs, one per line.
func (s *sampler) module(need Need, instrs []*Instr) *Module {
	body := &Block{}
	byType := map[Type]int{}
	for _, t := range s.regs {
		byType[t]++
	}
	for _, t := range Types() {
		if n := byType[t]; n > 0 {
			body.Stmts = append(body.Stmts, &Var{Space: RegSpace, Type: t, Name: fmt.Sprintf("%%%v_", t), Count: 256})
		}
	}
	if slices.ContainsFunc(instrs, func(i *Instr) bool { return i.Op == "brx" }) {
		body.Stmts = append(body.Stmts, &Targets{Name: "T", List: []*Name{{Name: "L"}}})
	}
	for _, i := range instrs {
		body.Stmts = append(body.Stmts, i)
	}
	body.Stmts = append(body.Stmts, &Label{Name: "L"}, &Instr{Op: "ret"})
	return &Module{Version: need.Version, Target: need.Target, AddressSize: 64, Decls: []Decl{
		&Func{Name: "callee", Body: &Block{Stmts: []Stmt{&Instr{Op: "ret"}}}},
		&Func{Name: "kernel", Linkage: "visible", Entry: true, Body: body},
	}}
}
