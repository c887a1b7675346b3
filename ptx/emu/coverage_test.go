package emu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// TestAllInstructionForms creates instructions of each row of the instruction table, with each
// modifier in each position, and runs each instruction in a kernel of its own. Every instruction
// must run or be in the refusals list. Errors that the isolated instruction causes, such as a
// deadlock, are ignored.
func TestAllInstructionForms(t *testing.T) {
	rng := testrand.New(t)
	done := map[string]int{}
	for _, f := range ptx.Forms() {
		before := done["run"] + done["refused"]
		for _, mods := range combinations(rng, f) {
			text, name, err := sampleKernel(f, mods)
			if errors.Is(err, ptx.ErrInvalid) { // incompatible modifiers
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", f.Text, err)
				continue
			}
			m, err := ptx.Parse(name, text)
			if err != nil {
				t.Fatalf("%s: %v\n%s", f.Text, err, text)
			}
			p, err := Load(m)
			switch {
			case errors.Is(err, ptx.ErrInvalid) && strings.Contains(err.Error(), "more than 128 bits"):
				continue
			case err != nil && !errors.Is(err, ptx.ErrUnsupported):
				t.Errorf("%s: %s: %v", f.Text, name, err)
				continue
			case err != nil:
				if !isRefused(name) {
					t.Errorf("%s: %v", f.Text, err)
				}
				done["refused"]++
				continue
			}
			if isRefused(name) {
				t.Errorf("%s is supported: want no entry in refusals", name)
			}
			mem := NewMemory(MemoryOptions{})
			params := make([]byte, p.functions["k"].paramSize)
			binary.LittleEndian.PutUint64(params, upload(t, mem, make([]byte, 4096)))
			_, err = p.Run(context.Background(), mem, Launch{Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{32, 1, 1},
				Shared: 4096, Params: params, MaxInstructions: 10000})
			// An isolated instruction can wait for other threads or lack its setup.
			if err != nil && !errors.Is(err, ErrTrap) && !errors.Is(err, ErrMisuse) && !errors.Is(err, ErrDeadlock) {
				t.Errorf("%s: %v", name, err)
			}
			done["run"]++
		}
		if done["run"]+done["refused"] == before {
			t.Errorf("%s: no instruction of this form was created", f.Text)
		}
	}
	if done["run"] < 2000 || done["refused"] == 0 {
		t.Errorf("only %v instructions were created", done)
	}
	t.Log(done)
}

func isRefused(name string) bool {
	i := &ptx.Instr{Op: name}
	if op, rest, ok := strings.Cut(name, "."); ok {
		i.Op, i.Mods = op, strings.Split(rest, ".")
	}
	return refused(i) != ""
}

// combinations returns lists of modifiers for a form. They contain each value of each slot at least
// once, in random combinations.
func combinations(rng *rand.Rand, f *ptx.Form) [][]string {
	values := func(s *ptx.Slot) []string {
		if s.Optional {
			return append([]string{""}, s.Values...)
		}
		return s.Values
	}
	pick := func() []string {
		mods := make([]string, len(f.Slots))
		for k := range f.Slots {
			v := values(&f.Slots[k])
			mods[k] = v[rng.IntN(len(v))]
		}
		return mods
	}
	tie := func(mods []string) []string {
		for k := 1; k < len(mods); k++ {
			if f.Slots[k].Tied && (mods[k] == "") != (mods[k-1] == "") {
				mods[k] = choose(mods[k-1] == "", "", f.Slots[k].Values[0])
			}
		}
		return mods
	}
	var all [][]string
	for k := range f.Slots {
		for _, v := range slices.Repeat(values(&f.Slots[k]), 2) {
			mods := pick()
			mods[k] = v
			all = append(all, tie(mods))
		}
	}
	for len(all) < 8 {
		all = append(all, tie(pick()))
	}
	return all
}

// sampleKernel returns a kernel that executes an instruction of the form.
func sampleKernel(f *ptx.Form, mods []string) (text, name string, err error) {
	i := &ptx.Instr{Op: f.Op}
	for _, m := range mods {
		if m != "" {
			i.Mods = append(i.Mods, m)
		}
	}
	slot := func(name string) string {
		for k := range f.Slots {
			if f.Slots[k].Name == name {
				return mods[k]
			}
		}
		return ""
	}
	for k := range f.Operands {
		o := &f.Operands[k]
		if o.If != "" && !slices.Contains(i.Mods, o.If) {
			continue
		}
		i.Args = append(i.Args, sampleOperand(o, slot, len(i.Args)))
	}
	if err := ptx.Bind(i); err != nil {
		return "", i.Mnemonic(), err
	}
	// Bind has determined the types of the registers.
	var decls, sets strings.Builder
	count := 0
	register := func(t ptx.Type, value string) string {
		count++
		name := fmt.Sprintf("%%x%d", count)
		t = t.Info().Storage
		fmt.Fprintf(&decls, "\t.reg .%v %s;\n", t, name)
		switch {
		case value != "":
			fmt.Fprintf(&sets, "\tmov.%v %s, %s;\n", t, name, value)
		case t == ptx.Pred:
			fmt.Fprintf(&sets, "\tsetp.eq.u32 %s, 0, 0;\n", name)
		case t.Bits() == 8:
			fmt.Fprintf(&sets, "\tcvt.u8.u32 %s, %d;\n", name, count)
		case t.Bits() == 128:
			fmt.Fprintf(&sets, "\tmov.b128 %s, {%%z, %%z};\n", name)
		default:
			fmt.Fprintf(&sets, "\tmov.b%d %s, %d;\n", t.Bits(), name, count)
		}
		return name
	}
	var args []string
	for k, arg := range i.Args {
		o := i.Operand(k)
		member := func(value string) string { return register(i.Type(k), value) }
		value := map[string]string{"mask": "-1"}[o.Name]
		switch {
		case o.Kind == ptx.AddressOperand:
			// Addresses in each memory space.
			base := map[ptx.Space]string{ptx.Shared: "sm", ptx.SharedCluster: "sm", ptx.Local: "lo", ptx.Param: "pa"}[i.Space(k)]
			if i.Has("param::func") || i.Op == "st" && i.Space(k) == ptx.Param {
				base = "out"
			}
			if i.Space(k) == ptx.Tensor {
				base = register(ptx.B32, "")
			}
			if base == "" {
				base = "%addr"
			}
			if a := arg.(*ptx.Addr); a.Coords != nil {
				base += ", {" + strings.TrimSuffix(strings.Repeat(register(ptx.S32, "")+", ", len(a.Coords.Elems)), ", ") + "}"
			}
			args = append(args, "["+base+"]")
		case o.Kind == ptx.ConstOperand:
			args = append(args, ptx.Format(arg))
		case o.Kind == ptx.TargetsOperand:
			args = append(args, "TARGETS")
		case o.Kind == ptx.ProtoOperand:
			args = append(args, "P"+callee(i))
		case o.Kind == ptx.LabelOperand:
			args = append(args, "DONE")
		case o.Kind == ptx.FuncOperand:
			args = append(args, choose(i.Has("args"), "f", callee(i)))
		case o.Kind == ptx.ArgsOperand:
			args = append(args, "("+register(ptx.U32, "")+")")
		case o.Kind == ptx.SinkOperand:
			args = append(args, "_")
		default:
			if o.Name != "mask" && (i.Op == "bar" || i.Op == "barrier") {
				value = map[string]string{"a": "1", "b": "32"}[o.Name]
			}
			switch i.Op {
			case "brx":
				value = "0"
			case "call":
				value = callee(i)
			}
			if i.Op == "cp" && o.Name == "n" {
				value = "4"
			}
			switch a := arg.(type) {
			case *ptx.Vector:
				var elems []string
				for range a.Elems {
					elems = append(elems, member(value))
				}
				args = append(args, "{"+strings.Join(elems, ", ")+"}")
			case *ptx.Pair:
				args = append(args, member(value)+"|"+register(ptx.Pred, ""))
			default:
				args = append(args, choose(o.Negated, "!", "")+member(value))
			}
		}
	}
	target := ptx.Target{SM: 90, Suffix: "a"}
	if need := i.Need().Target; !target.Has(need) {
		target = need
	}
	text = fmt.Sprintf(`.version 9.3
.target %v
.address_size 64
.func f0 () { ret; }
.func f1 (.reg .u32 a) { ret; }
.func (.reg .u32 r) g0 () { mov.u32 r, 1; ret; }
.func (.reg .u32 r) g1 (.reg .u32 a) { mov.u32 r, a; ret; }
.visible .entry k (.param .u64 pa)
{
	.reg .b64 %%addr, %%z;
	.shared .align 256 .b8 sm[1024];
	.local .align 256 .b8 lo[1024];
	.param .align 16 .b8 out[64];
Pf0: .callprototype _;
Pf1: .callprototype _ (.reg .u32 a);
Pg0: .callprototype (.reg .u32 r) _;
Pg1: .callprototype (.reg .u32 r) _ (.reg .u32 a);
TARGETS: .branchtargets DONE;
%s	ld.param.u64 %%addr, [pa];
	mov.u64 %%z, 0;
%s	%s %s;
DONE:
	ret;
}
`, target, decls.String(), sets.String(), i.Mnemonic(), strings.Join(args, ", "))
	if i.Op == "ld" && i.Space(1) == ptx.Param && !i.Has("param::func") {
		text = strings.Replace(text, ".param .u64 pa", ".param .align 256 .b8 pa[256]", 1)
		text = strings.Replace(text, "ld.param.u64 %addr, [pa];", "", 1)
	}
	return text, i.Mnemonic(), nil
}

// callee returns the name of a function with the signature that i requires.
func callee(i *ptx.Instr) string {
	result, args := false, false
	for k := range i.Args {
		if o := i.Operand(k); o.Kind == ptx.ArgsOperand {
			result, args = result || o.Dst, args || !o.Dst
		}
	}
	return choose(result, "g", "f") + choose(args, "1", "0")
}

// sampleOperand returns an operand of the required kind, from which Bind determines its type.
func sampleOperand(o *ptx.OperandForm, slot func(string) string, n int) ptx.Operand {
	name := &ptx.Name{Name: fmt.Sprintf("x%d", n)}
	length := 0
	size, divisor, _ := strings.Cut(o.Len, "/")
	size, factor, _ := strings.Cut(size, "*")
	size, fewer, _ := strings.Cut(size, "-")
	switch size {
	case "":
	case "vec", "num", "dim", "group":
		length, _ = strconv.Atoi(strings.Trim(slot(size), "vxdcta_group:"))
		if n, err := strconv.Atoi(factor); err == nil {
			length *= n
		}
		if n, err := strconv.Atoi(fewer); err == nil {
			length -= n
		}
	case "N":
		_, cols, _ := strings.Cut(slot("shape"), "n")
		cols, _, _ = strings.Cut(cols, "k")
		length, _ = strconv.Atoi(cols)
		if n, _ := strconv.Atoi(divisor); n > 0 {
			length /= n
		}
	default:
		length, _ = strconv.Atoi(size)
	}
	elems := func() *ptx.Vector {
		v := &ptx.Vector{}
		for range length {
			v.Elems = append(v.Elems, name)
		}
		return v
	}
	switch o.Kind {
	case ptx.ConstOperand:
		return &ptx.Imm{Kind: ptx.Int, Bits: uint64(o.Ranges[0].Lo)}
	case ptx.AddressOperand:
		a := &ptx.Addr{Base: name}
		if o.Coords {
			a.Coords = elems()
		}
		return a
	case ptx.ArgsOperand:
		return &ptx.Args{List: []ptx.Operand{name}}
	case ptx.SinkOperand:
		return &ptx.Sink{}
	case ptx.ValueOperand:
		switch {
		case length > 0:
			return elems()
		case o.Second != "":
			return &ptx.Pair{First: name, Second: name}
		case o.Negated:
			return &ptx.Not{X: name}
		}
	}
	return name
}

// TestInlinedLines checks the source lines of instructions in inlined functions. Those of another
// file have the line of the call in the kernel's file.
func TestInlinedLines(t *testing.T) {
	p := loadText(t, "k.ptx", `.version 8.0
.target sm_80
.address_size 64
.file 1 "k.cu"
.file 2 "header.hpp"
.entry k()
{
	.reg .b32 %r;
	.loc 1 10 3
	mov.u32 %r, 1;
	.loc 1 20 5, function_name $L__info_string0, inlined_at 1 11 7
	mov.u32 %r, 2;
	.loc 2 30 1, function_name $L__info_string1, inlined_at 1 12 7
	mov.u32 %r, 3;
	.loc 2 31 1, function_name $L__info_string2+4, inlined_at 2 30 1
	mov.u32 %r, 4;
	.loc 2 32 1, function_name $L__info_string2, inlined_at 1 20 5
	mov.u32 %r, 5;
	.loc 2 33 1
	mov.u32 %r, 6;
	.loc 2 34 1, function_name $L__info_string2, inlined_at 2 34 1
	ret;
}
`)
	var got []string
	for _, s := range p.Sites()[:7] {
		got = append(got, s.Source.String())
	}
	want := "k.cu:10:3 k.cu:20:5 k.cu:12:7 k.cu:12:7 k.cu:20:5 header.hpp:33:1 header.hpp:34:1"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("lines are %s, want %s", s, want)
	}
}
