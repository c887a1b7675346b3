package frag

import (
	"testing"

	"tilework/ptx"
)

// TestInstructions: each is one of PTX's table, and the lanes together hold every
// element of each of its matrices once.
func TestInstructions(t *testing.T) {
	for _, in := range instructions {
		name := "mma.sync.aligned." + in.Shape() + ".row.col." + in.Sum.String() + "." + in.In.String() + "." + in.In.String() + "." + in.Sum.String()
		text := ".version 8.0\n.target sm_90\n.address_size 64\n.entry k()\n{\n\t.reg .f64 %r<32>;\n\t" + name + " " +
			list(len(in.C())) + ", " + list(len(in.A())) + ", " + list(len(in.B())) + ", " + list(len(in.C())) + ";\n\tret;\n}\n"
		m, err := ptx.Parse(in.Shape(), text)
		if err == nil {
			err = ptx.Verify(m)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if need := m.Need().Target.SM; need != in.SM {
			t.Errorf("%s needs sm_%d, its row says sm_%d", name, need, in.SM)
		}
		for _, x := range []struct {
			name       string
			rows, cols int
			places     []Place
			row, col   func(eight, quad int) int
		}{
			{"A", in.M, in.K, in.A(), func(eight, _ int) int { return eight }, func(_, quad int) int { return quad }},
			{"B", in.K, in.N, in.B(), func(_, quad int) int { return quad }, func(eight, _ int) int { return eight }},
			{"C", in.M, in.N, in.C(), func(eight, _ int) int { return eight }, func(_, quad int) int { return 2 * quad }},
		} {
			held := map[Place]int{}
			for eight := range Eight {
				for quad := range Quad {
					for _, p := range x.places {
						held[Place{p.Row + x.row(eight, quad), p.Col + x.col(eight, quad)}]++
					}
				}
			}
			for i := range x.rows {
				for j := range x.cols {
					if held[Place{i, j}] != 1 {
						t.Errorf("%s: %s[%d,%d] is held %d times", in.Shape(), x.name, i, j, held[Place{i, j}])
					}
				}
			}
			if len(held) != x.rows*x.cols {
				t.Errorf("%s: %d elements of %s are held, it has %d", in.Shape(), len(held), x.name, x.rows*x.cols)
			}
		}
	}
}

// list is a vector operand of n registers.
func list(n int) string {
	s := "{%r0"
	for range n - 1 {
		s += ", %r1"
	}
	return s + "}"
}

func TestBest(t *testing.T) {
	for _, c := range []struct {
		in   ptx.Type
		sm   int
		want string // the shape, or "" for none
	}{
		{ptx.F64, 75, ""}, {ptx.F64, 80, "m8n8k4"}, {ptx.F64, 89, "m8n8k4"}, {ptx.F64, 90, "m16n8k8"}, {ptx.F64, 120, "m16n8k8"}, {ptx.S8, 90, ""},
	} {
		in, ok := Best(c.in, c.sm)
		if ok != (c.want != "") || ok && in.Shape() != c.want {
			t.Errorf("%v on sm_%d: %v %v, want %q", c.in, c.sm, in, ok, c.want)
		}
	}
}

// TestBanks: lanes that shared memory serves together find their elements of fragments
// in banks of their own, however the tile stands.
func TestBanks(t *testing.T) {
	for side := 8; side <= 256; side *= 2 {
		for depth := 16; depth <= 64; depth *= 2 {
			for _, along := range []bool{false, true} {
				s := Shape{Elem: ptx.F64, Side: side, Depth: depth, Stages: 2, AlongK: along}
				pitch, size := s.pitch(), ptx.F64.Bytes()
				count, length := s.lines()
				if pitch < length || pitch*size%16 != 0 || s.Bytes() != 2*count*pitch*size {
					t.Errorf("%+v: rows are %d elements apart, %d bytes in all", s, pitch, s.Bytes())
				}
				banks := map[int]bool{}
				for lane := range Lanes / 2 {
					line, element := lane/Quad, lane%Quad
					if !along {
						line, element = element, line
					}
					banks[(line*pitch+element)%(bankBytes/size)] = true
				}
				if len(banks) != Lanes/2 {
					t.Errorf("%+v: half a warp's elements are in %d banks", s, len(banks))
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		shape        Shape
		vec, threads int
		ok           bool
	}{
		{Shape{Side: 128, Depth: 16}, 2, 256, true},
		{Shape{Side: 128, Depth: 16}, 1, 64, false},               // half a row
		{Shape{Side: 16, Depth: 16, AlongK: true}, 2, 256, false}, // more threads than vectors
		{Shape{Side: 24, Depth: 16}, 2, 32, false},                // 12 vectors a row
		{Shape{Side: 16, Depth: 15, AlongK: true}, 2, 32, false},  // half a vector
		{Shape{Side: 32, Depth: 32, AlongK: true}, 2, 128, true},
	} {
		if err := c.shape.Check(c.vec, c.threads); (err == nil) != c.ok {
			t.Errorf("%+v in vectors of %d by %d threads: %v", c.shape, c.vec, c.threads, err)
		}
	}
}
