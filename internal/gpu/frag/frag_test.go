package frag

import (
	"strings"
	"testing"

	"tilework/ptx"
)

// TestInstructions checks that each instruction is in PTX's table, and that the lanes of a warp
// together hold every element of each of its matrices once.
func TestInstructions(t *testing.T) {
	for _, in := range instructions {
		name := "mma.sync.aligned." + in.Shape() + ".row.col." + in.Sum.String() + "." + in.In.String() + "." +
			in.In.String() + "." + in.Sum.String()
		reg, each := in.Register()
		text := ".version 8.4\n.target sm_90\n.address_size 64\n.entry k()\n{\n" +
			"\t.reg ." + reg.String() + " %r<32>;\n\t.reg ." + in.Sum.String() + " %s<32>;\n\t" + name + " " +
			list("%s", len(in.C())) + ", " + list("%r", len(in.A())) + ", " + list("%r", len(in.B())) + ", " +
			list("%s", len(in.C())) + ";\n\tret;\n}\n"
		m, err := ptx.Parse(in.Shape(), text)
		if err == nil {
			err = ptx.Verify(m)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if need := m.Need().Target.SM; need != in.SM {
			t.Errorf("%s needs sm_%d: the list of instructions has sm_%d", name, need, in.SM)
		}
		for _, x := range []struct {
			name         string
			rows, cols   int
			places       []Place
			down, across int // elements of a register, along the rows and the columns
			row, col     func(eight, quad int) int
		}{
			{"A", in.M, in.K, in.A(), 1, each, func(eight, _ int) int { return eight },
				func(_, quad int) int { return each * quad }},
			{"B", in.K, in.N, in.B(), each, 1, func(_, quad int) int { return each * quad },
				func(eight, _ int) int { return eight }},
			{"C", in.M, in.N, in.C(), 1, 1, func(eight, _ int) int { return eight }, func(_, quad int) int { return 2 * quad }},
		} {
			held := map[Place]int{}
			for eight := range Eight {
				for quad := range Quad {
					for _, p := range x.places {
						for e := range x.down * x.across {
							held[Place{p.Row + x.row(eight, quad) + e%x.down, p.Col + x.col(eight, quad) + e%x.across}]++
						}
					}
				}
			}
			for i := range x.rows {
				for j := range x.cols {
					if held[Place{i, j}] != 1 {
						t.Errorf("%s: %s[%d,%d] is held %d times, want 1", in.Shape(), x.name, i, j, held[Place{i, j}])
					}
				}
			}
			if len(held) != x.rows*x.cols {
				t.Errorf("%s: lanes hold %d elements of %s, want %d", in.Shape(), len(held), x.name, x.rows*x.cols)
			}
		}
	}
}

// list returns a vector operand of n registers.
func list(name string, n int) string {
	return "{" + strings.TrimSuffix(strings.Repeat(name+"0, ", n), ", ") + "}"
}

func TestBest(t *testing.T) {
	for _, c := range []struct {
		in   ptx.Type
		sm   int
		want string // the shape, or "" for none
	}{
		{ptx.F64, 75, ""}, {ptx.F64, 80, "m8n8k4"}, {ptx.F64, 89, "m8n8k4"}, {ptx.F64, 90, "m16n8k8"},
		{ptx.F64, 120, "m16n8k8"},
		{ptx.S8, 75, ""}, {ptx.S8, 80, "m16n8k32"}, {ptx.BF16, 80, "m16n8k16"}, {ptx.TF32, 86, "m16n8k8"}, {ptx.E4M3, 86, ""},
		{ptx.E5M2, 89, "m16n8k32"}, {ptx.U8, 90, ""},
	} {
		in, ok := Best(c.in, c.sm)
		if ok != (c.want != "") || ok && in.Shape() != c.want {
			t.Errorf("%v on sm_%d: %v %v, want %q", c.in, c.sm, in, ok, c.want)
		}
	}
}

// TestBanks checks that half a warp loads its elements of fragments without bank conflicts from
// K-major and MN-major tiles.
func TestBanks(t *testing.T) {
	for side := 8; side <= 256; side *= 2 {
		for depth := 16; depth <= 64; depth *= 2 {
			for _, kMajor := range []bool{false, true} {
				s := TileShape{Elem: ptx.F64, Side: side, Depth: depth, Stages: 2, KMajor: kMajor}
				pitch, size := s.pitch(), ptx.F64.Bytes()
				count, length := s.rows()
				if pitch < length || pitch*size%16 != 0 || s.Bytes() != 2*count*pitch*size {
					t.Errorf("%+v: pitch of %d elements, %d bytes in all", s, pitch, s.Bytes())
				}
				banks := map[int]bool{}
				for lane := range Lanes / 2 {
					line, element := lane/Quad, lane%Quad
					if !kMajor {
						line, element = element, line
					}
					banks[(line*pitch+element)%(BankBytes/size)] = true
				}
				if len(banks) != Lanes/2 {
					t.Errorf("%+v: half a warp's elements are in %d banks, want %d", s, len(banks), Lanes/2)
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		shape        TileShape
		vec, threads int
		ok           bool
	}{
		{TileShape{Elem: ptx.F64, Side: 128, Depth: 16}, 2, 256, true},
		{TileShape{Elem: ptx.F64, Side: 128, Depth: 16}, 1, 64, false},              // 64 threads copy half a row
		{TileShape{Elem: ptx.F64, Side: 16, Depth: 16, KMajor: true}, 2, 256, true}, // more threads than vectors
		{TileShape{Elem: ptx.F64, Side: 24, Depth: 16}, 2, 32, false},               // 12 vectors a row
		{TileShape{Elem: ptx.F64, Side: 16, Depth: 15, KMajor: true}, 2, 32, false}, // half a vector
		{TileShape{Elem: ptx.F64, Side: 32, Depth: 32, KMajor: true}, 2, 128, true},
		{TileShape{Elem: ptx.F16, Side: 16, Depth: 4, KMajor: true}, 8, 128, false}, // a vector is longer than a row
		{TileShape{Elem: ptx.S8, Side: 256, Depth: 64}, 16, 256, true},
	} {
		if err := c.shape.Check(c.vec, c.threads); (err == nil) != c.ok {
			t.Errorf("%+v in vectors of %d by %d threads: %v", c.shape, c.vec, c.threads, err)
		}
	}
}
