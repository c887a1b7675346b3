package ptx

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tilework/internal/testkit/testrand"
)

// TestSnapshots compares printed modules with the files in testdata/print. Run it with
// TILEWORK_UPDATE=1 to rewrite them, and review the difference before you commit it.
func TestSnapshots(t *testing.T) {
	inputs, err := filepath.Glob("testdata/print/*.in.ptx")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	for _, in := range inputs {
		text, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Parse(filepath.Base(in), string(text))
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		got := m.String()
		out := in[:len(in)-len(".in.ptx")] + ".out.ptx"
		if os.Getenv("TILEWORK_UPDATE") != "" {
			if err := os.WriteFile(out, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: printed\n%s\nwant\n%s", in, got, want)
		}
		if err := Verify(m); err != nil {
			t.Errorf("%v", err)
		}
		checkRoundTrip(t, m)
	}
}

// TestRandomRoundTrip prints and parses random modules that contain all forms.
func TestRandomRoundTrip(t *testing.T) {
	s := newSampler(testrand.Seed(t))
	for range 50 {
		var instrs []*Instr
		for len(instrs) < 60 {
			f := Forms()[s.rng.IntN(len(Forms()))]
			all := s.expand(f, 4)
			instrs = append(instrs, all[s.rng.IntN(len(all))])
		}
		m := s.module(need("8.0", "sm_90a"), instrs)
		s.decorate(m)
		checkRoundTrip(t, m)
	}
}

// decorate adds declarations, comments, scopes, guards and constants to a module.
func (s *sampler) decorate(m *Module) {
	value := func() Operand {
		switch s.rng.IntN(4) {
		case 0:
			return &Imm{F32Bits, uint64(s.rng.Uint32())}
		case 1:
			return &Imm{F64Bits, s.rng.Uint64()}
		case 2:
			return &Sum{&Name{Name: "symbol"}, int64(s.rng.IntN(99) + 1)}
		}
		return &Imm{Int, uint64(s.rng.Int64() - s.rng.Int64())}
	}
	for k := range s.rng.IntN(8) {
		v := &Var{Linkage: "visible", Space: Global, Type: U32, Name: fmt.Sprintf("v%d", k), Align: 1 << s.rng.IntN(8)}
		if s.rng.IntN(2) == 0 {
			v.Dims = []int{-1, 2}
			v.Init = &Init{List: []*Init{{List: []*Init{{Value: value()}, {Value: value()}}}, {List: []*Init{{Value: value()}}}}}
		}
		m.Decls = append(m.Decls, v, &Comment{Text: "about " + v.Name, Trailing: s.rng.IntN(2) == 0})
	}
	m.Decls = append(m.Decls,
		&Var{Space: Global, Type: B8, Name: "bytes", Dims: []int{2}, Init: &Init{List: []*Init{
			{Value: &Sum{&Name{Name: "v0"}, 8}, Generic: true, Mask: 0xFF}, {Value: &Name{Name: "v0"}, Mask: 0xFF00}}}},
		&File{Index: 1, Path: "a b/c.cu"},
		&Func{Name: "k", Entry: true, Linkage: "visible", Attrs: []Attr{{"maxntid", []int{256, 1, 1}}, {"noreturn", nil}},
			Params: []*Var{
				{Space: Param, Type: U64, Name: "p", Ptr: &Ptr{Space: Global, Align: 16}},
				{Space: Param, Type: B8, Align: 64, Name: "map", Dims: []int{128}}},
			Body: &Block{Stmts: []Stmt{
				&Comment{Text: "the start", Trailing: true},
				&Loc{File: 1, Line: 2, Col: 3},
				&Pragma{Text: "nounroll"},
				&Block{Stmts: []Stmt{&Comment{Text: "alone"}, &Label{Name: "$here"}, &Comment{Text: "at a label", Trailing: true}}},
				&Instr{Op: "mov", Mods: []string{"b64"}, Guard: &Guard{Neg: true, Pred: &Name{Name: "%p"}},
					Args: []Operand{&Vector{[]Operand{&Name{Name: "%r"}, &Sink{}}}, value()}},
				&Instr{Op: "call", Mods: []string{"uni"}, Args: []Operand{
					&Args{[]Operand{&Name{Name: "ret0"}}}, &Name{Name: "callee"}, &Args{[]Operand{value(), &Name{Name: "x"}}}}},
			}}})
}

// TestImmediates checks that immediates keep their bits in all notations.
func TestImmediates(t *testing.T) {
	for text, want := range map[string]Imm{
		"0":                    {Int, 0},
		"-1":                   {Int, ^uint64(0)},
		"0xFF":                 {Int, 255},
		"0b101":                {Int, 5},
		"017":                  {Int, 15},
		"12U":                  {Int, 12},
		"9223372036854775807":  {Int, 1<<63 - 1},
		"-9223372036854775808": {Int, 1 << 63},
		"9223372036854775808":  {Uint, 1 << 63},
		"0xFFFFFFFFFFFFFFFF":   {Uint, 1<<64 - 1},
		"0f3F800000":           {F32Bits, 0x3F800000},
		"-0f3F800000":          {F32Bits, 0xBF800000},
		"0fFFC00001":           {F32Bits, 0xFFC00001},
		"0d7FF0000000000001":   {F64Bits, 0x7FF0000000000001},
		"1.5":                  {F64Bits, 0x3FF8000000000000},
		"-2.5e-1":              {F64Bits, 0xBFD0000000000000},
	} {
		m, err := Parse("k", header+".entry k() { mov.b64 %rd1, "+text+"; }")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		i := m.Funcs()[0].Body.Stmts[0].(*Instr)
		if got := *i.Args[1].(*Imm); got != want {
			t.Errorf("%s: parsed as %+v, want %+v", text, got, want)
		}
		checkRoundTrip(t, m)
	}
}
