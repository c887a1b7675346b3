package ptx

import (
	"strings"
	"testing"
)

// TestForms checks that each row is parsed as written: instructions generated from a row match
// this row and no other, and their operands have types.
func TestForms(t *testing.T) {
	seen := map[string]bool{}
	for k, f := range Forms() {
		if f.Index != k || f.Doc == "" || f.Section == "" || strings.Contains(f.Section, " ") {
			t.Errorf("%s: index %d, doc %q, section %q", f.Text, f.Index, f.Doc, f.Section)
		}
		if _, ok := f.Need.Target.MinVersion(); !ok {
			t.Errorf("%s: no such target %v", f.Text, f.Need.Target)
		}
		if seen[f.Text] {
			t.Errorf("%s: duplicate row", f.Text)
		}
		seen[f.Text] = true
		s := newSampler(uint64(k))
		for _, i := range s.expand(f, 100) {
			err := Bind(i)
			if i.Form == nil {
				t.Errorf("%s: %v", f.Text, err)
				break
			}
			if i.Form != f {
				t.Errorf("%s: %v matches %s instead", f.Text, i, i.Form.Text)
				break
			}
			for n := range i.Args {
				o := i.Operand(n)
				if (o.Kind == ValueOperand) != (i.Type(n) != NoType) {
					t.Errorf("%s: operand %s of %v has type %v", f.Text, o.Name, i, i.Type(n))
				}
				if (o.Kind == AddressOperand) && i.Space(n) == NoSpace {
					t.Errorf("%s: operand %s of %v has no space", f.Text, o.Name, i)
				}
			}
		}
	}
}

// TestUnused checks that each modifier set and each exception is used by some row.
func TestUnused(t *testing.T) {
	var all strings.Builder
	mods := map[string]bool{}
	for _, f := range Forms() {
		all.WriteString(f.Text + "\n")
		for _, slot := range f.Slots {
			for _, v := range slot.Values {
				mods[v], mods[f.Op+"."+v] = true, true
			}
		}
	}
	for name := range modifierSets {
		used := false
		for _, before := range []string{".", "=", "|"} {
			for _, after := range []string{".", "}", "{", "|", " "} {
				used = used || strings.Contains(all.String(), before+name+after)
			}
		}
		if !used {
			t.Errorf("no row names the set %s", name)
		}
	}
	for mod := range modifierNeeds {
		if !mods[mod] {
			t.Errorf("no row has the modifier %s", mod)
		}
	}
}

func TestBadRows(t *testing.T) {
	for _, row := range []string{
		"add.u32 d, a, b", "8.0 add.u32 d", "8.0 sm_x add.u32 d", "8 sm_80 add.u32 d",
		"8.0 sm_80 add.u32| d", "8.0 sm_80 lop3.b32 d, lut=9..1", "8.0 sm_80 ld.u32 d, [a:nowhere]",
		"8.0 sm_80 add.u32 d, :u32",
	} {
		if f, err := parseForm(row); err == nil {
			t.Errorf("%q: read as %+v", row, f)
		}
	}
}

func TestBinding(t *testing.T) {
	m, err := Parse("k", body(`ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
		mul.wide.s32 %rd1, %r1, 5; setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3; cvt.rn.f32.u8 %f1, %h1;
		cp.async.ca.shared.global [%r1], [%rd1], 16, %r2; atom.global.gpu.add.u32 _, [%rd1], 1;`))
	if err == nil {
		err = Verify(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	var is []*Instr
	m.Funcs()[1].Body.Walk(func(s Stmt) {
		if i, ok := s.(*Instr); ok {
			is = append(is, i)
		}
	})
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"ld vec", is[0].Mod("vec"), "v4"}, {"ld nc", is[0].Has("nc"), true}, {"ld space", is[0].Space(1), Global},
		{"ld type", is[0].Type(0), F32}, {"ld cache", is[0].Mod("cache"), ""},
		{"mul d", is[1].Type(0), S64}, {"mul b", is[1].Type(2), S32},
		{"setp cmp", is[2].Mod("cmp"), "lt"}, {"setp bool", is[2].Mod("bool"), "and"}, {"setp c", is[2].Type(3), Pred},
		{"cvt d", is[3].Type(0), F32}, {"cvt a", is[3].Type(1), U8},
		{"cp d", is[4].Space(0), Shared}, {"cp a", is[4].Space(1), Global}, {"cp n", is[4].Operand(3).Name, "n"},
		{"atom scope", is[5].Mod("scope"), "gpu"}, {"atom space", is[5].Space(1), Global},
		{"atom d", is[5].Operand(0).Dst, true},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}
