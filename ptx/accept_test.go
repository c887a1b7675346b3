package ptx

import (
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// variants returns instructions that differ from i in one respect: the position of a modifier, a
// missing modifier, a missing or repeated operand, or the kind of an operand. With results set,
// sinks and pairs are among the kinds.
func (s *sampler) variants(i *Instr, results bool) []*Instr {
	var out []*Instr
	seen := map[string]bool{i.String(): true}
	add := func(mods []string, args []Operand) {
		v := &Instr{Op: i.Op, Mods: mods, Args: args}
		if text := v.String(); !seen[text] {
			seen[text] = true
			out = append(out, v)
		}
	}
	for from, mod := range i.Mods {
		rest := slices.Delete(slices.Clone(i.Mods), from, from+1)
		add(rest, i.Args)
		for to := range i.Mods {
			add(slices.Insert(slices.Clone(rest), to, mod), i.Args)
		}
	}
	for k, arg := range i.Args {
		add(i.Mods, slices.Delete(slices.Clone(i.Args), k, k+1))
		add(i.Mods, slices.Insert(slices.Clone(i.Args), k, arg))
		others := s.otherKinds(i.Op, arg)
		if k == 0 && results {
			others = append(others, s.otherResults(i.Op, arg)...)
		}
		for _, other := range others {
			args := slices.Clone(i.Args)
			args[k] = other
			add(i.Mods, args)
		}
	}
	return out
}

// otherKinds returns operands of other kinds than arg, an operand of op.
func (s *sampler) otherKinds(op string, arg Operand) []Operand {
	switch a := arg.(type) {
	case *Name:
		all := []Operand{&Vector{[]Operand{a}}, &Imm{Int, 1}, &Imm{F32Bits, 0x3f800000}, &Addr{Base: a},
			&Name{Name: "%tid", Member: "x"}}
		if s.regs[a.Name] == Pred {
			all = append(all, &Not{a})
		}
		if op[0] == 'v' { // video instructions
			for _, member := range []string{"", "b0", "h1", "b10", "h10", "b3210"} {
				all = append(all, &Name{Name: a.Name, Member: member})
			}
			all = append(all, &Minus{&Name{Name: a.Name, Member: a.Member}})
		}
		return all
	case *Minus:
		return []Operand{a.X, &Imm{Int, 1}}
	case *Vector:
		all := []Operand{&Vector{append(slices.Clone(a.Elems), a.Elems[0])}}
		if !strings.HasSuffix(op, "mma") { // the assembler crashes
			all = append(all, a.Elems[0])
		}
		for _, e := range []Operand{&Sink{}, &Imm{Int, 1}} {
			elems := slices.Clone(a.Elems)
			elems[0] = e
			all = append(all, &Vector{elems})
		}
		return all
	case *Pair:
		return []Operand{a.First}
	case *Not:
		return []Operand{a.X, &Imm{Int, 1}}
	case *Imm:
		return []Operand{s.reg(U32, 0), &Imm{Int, a.Bits + 1}}
	case *Addr:
		return []Operand{a.Base, &Addr{Base: a.Base, Offset: 16, Coords: a.Coords},
			&Addr{Base: a.Base, Offset: -16, Coords: a.Coords}}
	case *Sink:
		return []Operand{s.reg(U64, 0)}
	}
	return nil
}

// otherResults returns sinks and pairs in the place of arg. Each one that the assembler rejects is
// a syntax error, and takes a run of the assembler.
func (s *sampler) otherResults(op string, arg Operand) []Operand {
	switch a := arg.(type) {
	case *Name:
		return []Operand{&Sink{}, &Pair{a, s.reg(Pred, 1)}, &Pair{&Sink{}, s.reg(Pred, 1)}, &Pair{a, &Sink{}}}
	case *Vector:
		if !strings.HasSuffix(op, "mma") { // the assembler crashes
			return []Operand{&Sink{}}
		}
	case *Pair:
		return []Operand{&Pair{&Sink{}, a.Second}, &Pair{a.First, &Sink{}}, &Pair{&Sink{}, &Sink{}}}
	}
	return nil
}

// accepts reports whether Parse and Verify accept i.
func (s *sampler) accepts(need Need, i *Instr) bool {
	m, err := Parse("k", s.module(need, []*Instr{i}).String())
	return err == nil && Verify(m) == nil
}

// TestAcceptanceAgainstPtxas varies the modifiers and operands of each row of the table. Parse and
// Verify must accept exactly the instructions that the assembler accepts, except for those in
// lenient and strict. Without TILEWORK_FULL, the seed selects one variant in three.
func TestAcceptanceAgainstPtxas(t *testing.T) {
	t.Parallel()
	path := findPtxas(t)
	perForm, every, seed := testkit.Cases(1, 4), testkit.Cases(3, 1), testrand.Seed(t)
	compared, both, reasons := 0, 0, map[string]int{}
	for need, instrs := range samples(t, perForm) {
		s := newSampler(1)
		var all []*Instr
		taken, seen := map[*Form]int{}, map[string]bool{}
		for _, i := range instrs {
			if taken[i.Form]++; taken[i.Form] <= perForm {
				for _, v := range s.variants(s.instr(i.Form, i.slots), !seen[i.Op]) {
					if testrand.OneIn(uint64(every), seed, v) {
						all = append(all, v)
					}
				}
				seen[i.Op] = true
			}
		}
		for chunk := range slices.Chunk(all, 1000) { // a syntax error repeats a whole run
			rejected := s.assemble(t, path, need, append(slices.Clip(chunk), noCode))
			compared += len(chunk)
			for k, i := range chunk {
				ours, theirs := s.accepts(need, i), rejected[k] == ""
				switch reason := tolerated(i, ours); {
				case ours && theirs:
					both++
				case ours == theirs:
				case reason != "":
					reasons[reason]++
				case ours:
					t.Errorf("accepted with %v, %v, but not by the assembler: %s", need.Version, need.Target, rejected[k])
				default:
					t.Errorf("not accepted with %v, %v, but by the assembler: %v", need.Version, need.Target, i)
				}
			}
		}
	}
	t.Logf("%d instructions compared, %d accepted by both; differences: %v", compared, both, reasons)
	if compared < 15000/every || both < 3000/every {
		t.Errorf("%d instructions compared and %d accepted, want more", compared, both)
	}
}

// tolerated returns why Verify may differ from the assembler about i, or "". ours reports whether
// Verify accepts i.
func tolerated(i *Instr, ours bool) string {
	holds := func(kind func(o Operand) bool) bool { return slices.ContainsFunc(i.Args, kind) }
	number := func(o Operand) bool { _, ok := o.(*Imm); return ok }
	float := func(o Operand) bool { m, ok := o.(*Imm); return ok && m.Kind == F32Bits }
	special := func(o Operand) bool { n, ok := o.(*Name); return ok && n.Name == "%tid" }
	vector := func(o Operand) bool { _, ok := o.(*Vector); return ok }
	discarded := func(o Operand) bool { p, ok := o.(*Pair); return ok && isSink(p.Second) }
	unusual := func(o Operand) bool {
		v, ok := o.(*Vector)
		return ok && slices.ContainsFunc(v.Elems, func(e Operand) bool { return isSink(e) || number(e) })
	}
	single := func(o Operand) bool { v, ok := o.(*Vector); return ok && len(v.Elems) == 1 }
	matrix := strings.HasSuffix(i.Op, "mma") || i.Op == "tcgen05"
	switch {
	case ours && i.Op == "setp" && holds(number):
		return "a constant as the third operand of setp.bf16"
	case ours && i.Has("kind::f8f6f4") && i.Has("sp::ordered_metadata") && holds(single):
		return "metadata in a vector, in code that replaces an instruction of sm_100"
	case ours:
		return ""
	case holds(discarded):
		return "a second result that is discarded"
	case matrix && holds(unusual):
		return "a matrix with sinks or constants"
	case i.Has("b128") && (holds(number) || holds(unusual)):
		return "a constant of 128 bits"
	case i.Op == "mov" && holds(special):
		return "a special register of another width"
	case i.Op == "mov" && holds(unusual):
		return "a sink that is read"
	case i.Op == "mbarrier" && holds(vector):
		return "a count in a vector"
	case i.Op == "tcgen05" && i.Has("red"):
		return "a reduction in a vector"
	case i.Op == "atom" && len(i.Args) == 4, i.Op == "tcgen05" && i.Has("mma") && len(i.Args) > 5:
		return "an operand without a use"
	case i.Op == "st" && len(i.Args) == 2 || i.Op == "cp" && !holds(number):
		return "an mbarrier or address without brackets, or none"
	case holds(float):
		return "the bits of a float as an integer"
	case i.Op == "mapa" || i.Op == "getctarank":
		return "a generic address of 32 bits"
	case i.Op == "testp" || i.Op == "mad" || i.Op == "cvt":
		return "a modifier that the manual requires is missing"
	}
	return ""
}
