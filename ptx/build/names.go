package build

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tilework/ptx"
)

// Named sets the name of a register in the PTX and returns r. It has no effect on constants.
func (k *Kernel) Named(name string, r Reg) Reg {
	if k.identifier(name) && r.v != nil && r.v.node != nil {
		r.v.name = name
	}
	return r
}

// identifier reports whether name is a valid identifier in PTX, and fails if it is not.
func (k *Kernel) identifier(name string) bool {
	ok := name != ""
	for i, c := range name {
		ok = ok && (c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
			i > 0 && c >= '0' && c <= '9')
	}
	if !ok {
		k.fail("name %q: want letters, digits, _ and $, not starting with a digit", name)
	}
	return ok
}

// prefixes holds the prefix of unnamed registers of each type.
var prefixes = map[ptx.Type]string{
	ptx.Pred: "p", ptx.U8: "c", ptx.S8: "cs", ptx.B8: "cb", ptx.U16: "h", ptx.S16: "hs", ptx.B16: "hb", ptx.F16: "hf",
	ptx.U32: "r", ptx.S32: "s", ptx.B32: "b", ptx.F16x2: "hh", ptx.F32: "f",
	ptx.U64: "rd", ptx.S64: "sd", ptx.B64: "bd", ptx.F64: "fd", ptx.B128: "q",
}

// declare assigns names to the registers in body and returns their declarations: numbered
// registers by type, followed by named ones.
func (k *Kernel) declare(body []ptx.Stmt) []*ptx.Var {
	var numbered, named []*ptx.Var
	byType := map[ptx.Type]*ptx.Var{}
	taken := map[string]bool{}
	eachName(body, func(n *ptx.Name) {
		v := k.values[n]
		if v == nil || n.Name != "" {
			return
		}
		t := v.typ.Info().Storage
		if v.name != "" {
			n.Name = "%" + unique(v.name, taken)
			named = append(named, &ptx.Var{Space: ptx.RegSpace, Type: t, Name: n.Name})
			return
		}
		d := byType[t]
		if d == nil {
			d = &ptx.Var{Space: ptx.RegSpace, Type: t, Name: "%" + prefixes[t]}
			byType[t] = d
			numbered = append(numbered, d)
		}
		n.Name = fmt.Sprintf("%s%d", d.Name, d.Count)
		d.Count++
	})
	return append(numbered, grouped(named)...)
}

// grouped combines consecutive declarations of name0, name1, … into ranges.
func grouped(vars []*ptx.Var) []*ptx.Var {
	var out []*ptx.Var
	for _, v := range vars {
		if n := len(out) - 1; n >= 0 && out[n].Type == v.Type && v.Name == out[n].Name+fmt.Sprint(out[n].Count) &&
			out[n].Count > 0 {
			out[n].Count++
			continue
		}
		if stem, ok := strings.CutSuffix(v.Name, "0"); ok && strings.TrimRight(stem, "0123456789") == stem {
			v.Name, v.Count = stem, 1
		}
		out = append(out, v)
	}
	return out
}

// specials holds the names of the special registers.
var specials = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range ptx.SpecialRegisters() {
		m[name] = true
	}
	return m
}()

// unique returns name, with a suffix if another register already has that name.
func unique(name string, taken map[string]bool) string {
	if stem := strings.TrimRight(name, "0123456789"); stem != name &&
		slices.Contains(slices.Collect(maps.Values(prefixes)), stem) {
		name += "_" // avoids the names of numbered registers
	}
	if specials["%"+name] {
		name += "_"
	}
	free := name
	for n := 2; taken[free]; n++ {
		free = fmt.Sprintf("%s_%d", name, n)
	}
	taken[free] = true
	return free
}
