package build_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/build"
)

// text returns the PTX of k. It checks that the PTX parses, verifies and prints as itself.
func text(t *testing.T, k *build.Kernel) string {
	t.Helper()
	m, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	s := m.String()
	again, err := ptx.Parse("kernel.ptx", s)
	if err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	if err := ptx.Verify(again); err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	if got := again.String(); got != s {
		t.Fatalf("PTX changes in a round trip: got\n%s\nwant\n%s", got, s)
	}
	return s
}

// snapshot compares a kernel's PTX with a file in testdata. TILEWORK_UPDATE=1 rewrites the file.
func snapshot(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".ptx")
	if os.Getenv("TILEWORK_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (TILEWORK_UPDATE=1 rewrites it): got\n%s", path, got)
	}
}

// instructions returns the kernel's labels and instructions, except ret and loads of parameters.
func instructions(t *testing.T, k *build.Kernel) []string {
	t.Helper()
	var list []string
	text(t, k)
	m, _ := k.Build()
	m.Funcs()[0].Body.Walk(func(s ptx.Stmt) {
		switch s := s.(type) {
		case *ptx.Instr:
			if s.Op != "ret" && !strings.HasPrefix(s.Mnemonic(), "ld.param") {
				list = append(list, s.String())
			}
		case *ptx.Label:
			list = append(list, s.Name+":")
		}
	})
	return list
}

// snapshots lists kernels that together use all features of the builder.
var snapshots = []struct {
	name  string
	write func() *build.Kernel
}{
	{"axpy", func() *build.Kernel {
		k := build.New("axpy", "y = a*x + y")
		k.Threads(256, 1, 1)
		n, a := k.Param("n", ptx.U32), k.Param("a", ptx.F32)
		x, y := k.Pointer("x", ptx.F32).ReadOnly(), k.Pointer("y", ptx.F32)
		i := k.Named("i", k.Mad(k.BlockIdx(build.X), 256, k.ThreadIdx(build.X)))
		k.If(k.Lt(i, n), func() {
			y.At(i).Store(k.Mad(a, x.At(i).Load(), y.At(i).Load()))
		})
		return k
	}},
	{"flow", func() *build.Kernel {
		k := build.New("flow")
		k.Threads(128, 1, 1)
		k.MinBlocks(2)
		n, out := k.Param("n", ptx.S32), k.Pointer("out", ptx.S32)
		sum := k.Var("sum", ptx.S32, 0)
		k.For(0, n, func(i build.Reg) {
			k.Comment("odd ones count twice")
			k.If(k.Eq(k.And(i, 1), 1), func() {
				k.Set(sum, k.Add(sum, k.Mul(i, 2)))
			}).Else(func() {
				k.Set(sum, k.Add(sum, i))
			})
			k.When(k.Gt(sum, 1000), func() { k.Set(sum, k.Sub(sum, 1000)) })
		})
		left := k.Var("left", ptx.S32, n)
		k.While(func() build.Reg { return k.Gt(left, 0) }, func() {
			k.Set(left, k.Shr(left, 1))
			k.FMA(sum, left, 3)
		})
		k.ForStep(0, 10, 4, func(i build.Reg) { out.At(k.Add(i, 1)).Store(k.To(ptx.S32, i)) })
		k.If(k.Lt(n, 0), func() { k.Return() })
		out.Store(sum)
		return k
	}},
	{"types", func() *build.Kernel {
		k := build.New("types", "every conversion, both ways through float32")
		in := k.Pointer("in", ptx.F16)
		bf, s8, f64 := k.Pointer("bf", ptx.BF16), k.Pointer("s8", ptx.S8), k.Pointer("f64", ptx.F64)
		s := k.Var("s", ptx.F32, 0)
		k.Set(s, k.Add(k.To(ptx.F32, in.Load()), k.To(ptx.F32, bf.Load())))
		k.Set(s, k.Add(s, k.To(ptx.F32, s8.Load())))
		k.Set(s, k.Mul(s, k.To(ptx.F32, f64.Load())))
		in.At(1).Store(k.To(ptx.F16, s))
		bf.At(1).Store(k.To(ptx.BF16, s))
		s8.At(1).Store(k.To(ptx.S32, s))
		f64.At(1).Store(k.To(ptx.F64, s))
		f64.At(2).Store(0.5)
		in.At(2).Store(0)
		s8.At(2).Store(k.To(ptx.S32, k.Bits(ptx.U32, k.Exp2(k.Neg(k.Abs(s))))))
		f64.At(k.Param("far", ptx.S32)).StoreVec(1, 2.5)
		return k
	}},
	{"tensor", func() *build.Kernel {
		k := build.New("tensor", "one m16n8k16 product of shared tiles, copied there asynchronously")
		k.Threads(32, 1, 1)
		a, b, c := k.Pointer("A", ptx.F16), k.Pointer("B", ptx.F16), k.Pointer("C", ptx.F32)
		as, bs := k.Shared("As", ptx.F16, 16, 24), k.SharedDynamic("Bs", ptx.F16, 16, 8)
		lane := k.Named("lane", k.LaneID())
		row, half := k.Rem(lane, 16), k.Div(lane, 16)
		k.CopyAsync(as.At(row, k.Mul(half, 8)), a.At(k.Mad(row, 16, k.Mul(half, 8))), 16, 16)
		k.When(k.Eq(half, 0), func() { k.CopyAsync(bs.At(row, 0), b.At(k.Mul(row, 8)), 16, k.Param("valid", ptx.U32)) })
		k.CopyCommit()
		k.CopyWait(0)
		k.Barrier()
		acc := k.Vars("acc", ptx.F32, 4, 0)
		k.MMA("m16n8k16", ptx.F16, acc, k.LoadMatrices(as.At(row, k.Mul(half, 8)), 4, false),
			k.LoadMatrices(bs.At(row, 0), 2, true))
		quad, pair := k.Div(lane, 4), k.Mul(k.Rem(lane, 4), 2)
		c.At(k.Mad(quad, 8, pair)).StoreVec(acc[0], acc[1])
		c.At(k.Mad(k.Add(quad, 8), 8, pair)).StoreVec(acc[2], acc[3])
		return k
	}},
	{"lines", func() *build.Kernel {
		k := build.New("lines")
		k.LineInfo()
		out := k.Pointer("out", ptx.U32)
		out.Store(k.ThreadIdx(build.Z))
		return k
	}},
}

func TestSnapshots(t *testing.T) {
	for _, s := range snapshots {
		t.Run(s.name, func(t *testing.T) {
			got := text(t, s.write())
			if s.name == "lines" { // line numbers change with this file
				if !strings.Contains(got, `.file 1 "build_test.go"`) || strings.Count(got, ".loc 1 ") != 2 {
					t.Errorf("want a .file and two .loc:\n%s", got)
				}
				return
			}
			snapshot(t, s.name, got)
		})
	}
}

// TestOptimizations checks that constants are folded, that a value is computed at most once and
// outside the loops in which it is invariant, and that unused values are removed.
func TestOptimizations(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(k *build.Kernel, n build.Reg, out build.Ptr)
		want  string
	}{
		{"constant folding", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.At(k.Mul(k.Add(1, 2), k.Sub(8, 4))).Store(k.Mad(n, k.Rem(9, 4), k.Div(7, 8)))
		}, "st.global.u32 [%out_g+48], %n;"},
		{"strength reduction", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.Store(k.Rem(k.Div(k.Mul(n, 8), 4), 16))
		}, "shl.b32 %r0, %n, 3; shr.u32 %r1, %r0, 2; and.b32 %r2, %r1, 15; st.global.u32 [%out_g], %r2;"},
		{"identities", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.Store(k.Add(k.Mad(n, 0, 5), k.Mul(1, k.Sub(k.Shl(n, 0), 0))))
		}, "add.u32 %r0, %n, 5; st.global.u32 [%out_g], %r0;"},
		{"common subexpressions", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.At(n).Store(k.Add(n, 3))
			out.At(n).At(1).Store(k.Add(n, 3))
		}, "mad.wide.u32 %rd0, %n, 4, %out_g; add.u32 %r0, %n, 3; st.global.u32 [%rd0], %r0; st.global.u32 [%rd0+4], %r0;"},
		{"dead code", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			k.Mul(k.Add(n, 1), n)
			out.Store(7)
		}, "mov.u32 %r0, 7; st.global.u32 [%out_g], %r0;"},
		{"loop-invariant code", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			k.For(0, 4, func(i build.Reg) {
				k.For(0, 4, func(j build.Reg) {
					out.At(k.Add(k.Mul(i, n), k.Mul(n, n))).Store(j)
				})
			})
		}, "mul.lo.u32 %r0, %n, %n; mov.u32 %i, 0; L1_loop: mul.lo.u32 %r1, %i, %n; add.u32 %r2, %r1, %r0; mad.wide.u32 " +
			"%rd0, %r2, 4, %out_g; " +
			"mov.u32 %i_2, 0; L2_loop: st.global.u32 [%rd0], %i_2; add.u32 %i_2, %i_2, 1; setp.lt.u32 %p0, %i_2, 4; @%p0 bra " +
			"L2_loop; " +
			"add.u32 %i, %i, 1; setp.lt.u32 %p1, %i, 4; @%p1 bra L1_loop;"},
		{"variables", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			v := k.Var("v", ptx.U32, n)
			before := k.Add(v, 0)
			k.For(0, 2, func(build.Reg) { k.Set(v, k.Mul(v, 3)) })
			out.Store(k.Add(before, k.Mul(v, 3)))
		}, "mov.u32 %v, %n; mov.u32 %r0, %v; mov.u32 %i, 0; L1_loop: mul.lo.u32 %r1, %v, 3; mov.u32 %v, %r1; add.u32 %i, " +
			"%i, 1; " +
			"setp.lt.u32 %p0, %i, 2; @%p0 bra L1_loop; mul.lo.u32 %r2, %v, 3; add.u32 %r3, %r0, %r2; st.global.u32 [%out_g], " +
			"%r3;"},
		{"constant conditions", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			k.If(k.Lt(3, 4), func() { out.Store(1) }).Else(func() { out.Store(2) })
			k.If(k.Not(k.Or(k.Lt(n, 2), true)), func() { out.Store(3) }).Else(func() { out.Store(4) })
			k.When(k.And(k.Ne(1, 1), k.Lt(n, 2)), func() { out.Store(5) })
			k.For(3, 3, func(build.Reg) { out.Store(6) })
		}, "mov.u32 %r0, 1; st.global.u32 [%out_g], %r0; mov.u32 %r1, 4; st.global.u32 [%out_g], %r1;"},
		{"constants of 16-bit types", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			h, b := out.As(ptx.F16), out.As(ptx.BF16)
			v := k.Var("v", ptx.F16, 1)
			h.Store(1)
			h.At(1).Store(k.Add(v, 1.5))
			h.At(2).Store(k.Select(k.Lt(v, 1), v, 2))
			b.At(3).Store(-1)
		}, "mov.b16 %v, 15360; mov.b16 %hf0, 15360; st.global.b16 [%out_g], %hf0; mov.b16 %hf1, 15872; " +
			"add.rn.f16 %hf2, %v, %hf1; st.global.b16 [%out_g+2], %hf2; setp.lt.f16 %p0, %v, %hf0; mov.b16 %hf3, 16384; " +
			"selp.b16 %hf4, %v, %hf3, %p0; st.global.b16 [%out_g+4], %hf4; mov.b16 %hb0, 49024; " +
			"st.global.b16 [%out_g+6], %hb0;"},
		{"untyped bits", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			b := k.Var("b", ptx.B32, n)
			k.FMA(b, 3, 5)
			out.Store(k.To(ptx.U32, k.Max(b, k.Rem(k.Div(b, 3), 5))))
		}, "mov.b32 %b, %n; mad.lo.u32 %b, 3, 5, %b; div.u32 %b0, %b, 3; rem.u32 %b1, %b0, 5; max.u32 %b2, %b, %b1; " +
			"st.global.u32 [%out_g], %b2;"},
		{"equal constants of two types", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.As(ptx.F16).Store(0)
			out.As(ptx.BF16).At(2).Store(k.Add(k.Var("w", ptx.BF16, 1), 0))
		}, "mov.b16 %hf0, 0; st.global.b16 [%out_g], %hf0; mov.b16 %w, 16256; mov.b16 %hb0, 0; " +
			"add.rn.bf16 %hb1, %w, %hb0; st.global.b16 [%out_g+4], %hb1;"},
		{"equal instructions of two types", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.Store(k.And(n, 1))
			out.As(ptx.S32).At(1).Store(k.And(k.To(ptx.S32, n), 1))
		}, "and.b32 %r0, %n, 1; st.global.u32 [%out_g], %r0; and.b32 %s0, %n, 1; st.global.s32 [%out_g+4], %s0;"},
		{"masks of signed values", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			s := k.To(ptx.S32, n)
			out.As(ptx.S32).Store(k.Xor(1<<31+1, k.Or(k.And(s, 1<<31), 1<<32-1)))
		}, "and.b32 %s0, %n, -2147483648; or.b32 %s1, %s0, -1; xor.b32 %s2, -2147483647, %s1; " +
			"st.global.s32 [%out_g], %s2;"},
		{"large constants", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			k.If(k.Lt(1<<53, 1<<53+1), func() { out.Store(n) })
		}, "st.global.u32 [%out_g], %n;"},
		{"predicated", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			k.When(k.Lt(n, 9), func() {
				k.When(k.Ne(n, 4), func() { out.At(n).Store(out.At(k.Add(n, 1)).LoadVecOr0(k.Lt(n, 8), 1)[0]) })
			})
		}, "setp.lt.u32 %p0, %n, 9; setp.ne.u32 %p1, %n, 4; and.pred %p2, %p1, %p0; mad.wide.u32 %rd0, %n, 4, %out_g; " +
			"add.u32 %r0, %n, 1; " +
			"mad.wide.u32 %rd1, %r0, 4, %out_g; setp.lt.u32 %p3, %n, 8; and.pred %p4, %p3, %p2; @%p2 mov.u32 %r1, 0; " +
			"@%p4 ld.global.u32 %r1, [%rd1]; @%p2 st.global.u32 [%rd0], %r1;"},
		{"large offsets", func(k *build.Kernel, n build.Reg, out build.Ptr) {
			out.At(int64(1 << 40)).Store(n)
			out.At(k.To(ptx.U64, n)).Store(n)
		}, "add.u64 %rd0, %out_g, 4398046511104; st.global.u32 [%rd0], %n; cvt.u64.u32 %rd1, %n; mad.lo.u64 %rd2, %rd1, 4, " +
			"%out_g; st.global.u32 [%rd2], %n;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := build.New("k")
			c.write(k, k.Param("n", ptx.U32), k.Pointer("out", ptx.U32))
			got := strings.TrimPrefix(strings.Join(instructions(t, k), " "), "cvta.to.global.u64 %out_g, %out; ")
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", strings.ReplaceAll(got, "; ", ";\n"), strings.ReplaceAll(c.want, "; ", ";\n"))
			}
		})
	}
}

// TestNames checks the names of registers whose own names are taken, or whose types are rare.
func TestNames(t *testing.T) {
	k := build.New("k")
	out := k.Pointer("out", ptx.U32)
	clock, r0 := k.Param("clock", ptx.U32), k.Param("r0", ptx.U32)
	out.Store(k.Add(clock, r0))
	for _, typ := range []ptx.Type{ptx.B8, ptx.U8, ptx.S8} {
		k.Do("ld.global."+typ.String(), k.Fresh(typ), out)
	}
	want := "cvta.to.global.u64 %out_g, %out; add.u32 %r0, %clock_, %r0_; st.global.u32 [%out_g], %r0; " +
		"ld.global.b8 %cb0, [%out_g]; ld.global.u8 %c0, [%out_g]; ld.global.s8 %cs0, [%out_g];"
	if got := strings.Join(instructions(t, k), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestGoNumbers checks that numbers of all Go types are constants.
func TestGoNumbers(t *testing.T) {
	k := build.New("k")
	n := k.Param("n", ptx.U32)
	for _, x := range []build.Value{7, int8(7), int64(7), uint(7), uint8(7), uint64(7)} {
		if sum, ok := k.Add(1, x).Int(); !ok || sum != 8 {
			t.Errorf("1 + %T(7) = %v, want 8", x, k.Add(1, x))
		}
	}
	k.Add(n, float32(1))
	if _, err := k.Build(); err == nil || !strings.Contains(err.Error(), "Add: constant 1 is not a value of type .u32") {
		t.Errorf("adding a float32 to a .u32: got error %v", err)
	}
}

// TestNeed checks that a kernel requires only the version and target that its instructions need.
func TestNeed(t *testing.T) {
	for _, c := range []struct {
		use  func(k *build.Kernel)
		want string
	}{
		{func(*build.Kernel) {}, "6.3 sm_75"},
		{func(k *build.Kernel) { k.CopyCommit() }, "7.0 sm_80"},
		{func(k *build.Kernel) { k.Do("fence.proxy.async") }, "8.0 sm_90"},
		{func(k *build.Kernel) { k.Do("wgmma.fence.sync.aligned") }, "8.0 sm_90a"},
	} {
		k := build.New("k")
		c.use(k)
		m, err := k.Build()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(m.Version, " ", m.Target); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestLineInfoOfFiles checks that lines are those of the named files, from which a function of
// another file is called.
func TestLineInfoOfFiles(t *testing.T) {
	k := build.New("k")
	k.LineInfo("build_test.go")
	out := k.Pointer("out", ptx.U32)
	want := line() + 1
	nothing(func() { out.Store(k.ThreadIdx(build.X)) })
	got := text(t, k)
	if at := fmt.Sprintf(".loc 1 %d ", want); !strings.Contains(got, at) || strings.Contains(got, ".file 2") {
		t.Errorf("want %s and one file:\n%s", at, got)
	}
	k = build.New("k")
	k.LineInfo("other.go")
	k.Pointer("out", ptx.U32).Store(1)
	if got := text(t, k); !strings.Contains(got, `.file 1 "build_test.go"`) {
		t.Errorf("want the innermost call without a call from other.go:\n%s", got)
	}
}

// line returns the line number of its caller.
func line() int {
	_, _, n, _ := runtime.Caller(1)
	return n
}

// TestErrors checks that each mistake yields one error, at the line that makes it.
func TestErrors(t *testing.T) {
	k := build.New("k")
	p, n, x := k.Pointer("out", ptx.F32), k.Param("n", ptx.U32), k.Param("x", ptx.F32)
	var want []string
	var lines []int
	expect := func(text string, _ any) {
		_, _, n, _ := runtime.Caller(1)
		want, lines = append(want, text), append(lines, n)
	}
	expect("Threads(33, 33, 1): a block of 1089 threads, want at most 1024", nothing(func() { k.Threads(33, 33, 1) }))
	expect("Threads(0, 1, 1): want 1 to 1024, 1 to 1024 and 1 to 64", nothing(func() { k.Threads(0, 1, 1) }))
	expect("Threads(1, 1, 65): want 1 to 1024, 1 to 1024 and 1 to 64", nothing(func() { k.Threads(1, 1, 65) }))
	expect("Threads(4294967296, 4294967296, 1): want 1 to 1024, 1 to 1024 and 1 to 64",
		nothing(func() { k.Threads(1<<32, 1<<32, 1) }))
	expect("Threads is called twice", nothing(func() { k.Threads(32, 1, 1); k.Threads(64, 1, 1) }))
	expect("MinBlocks(0): want at least 1", nothing(func() { k.MinBlocks(0) }))
	expect("Cluster(4294967296, 4294967296, 1): want 1 to 8 blocks", nothing(func() { k.Cluster(1<<32, 1<<32, 1) }))
	expect("Add of .u32 and .f32: want the same type, convert one of them with To", k.Add(n, x))
	expect("Lt of .u32 and .s32: want the same type, convert one of them with To", k.Lt(n, k.To(ptx.S32, n)))
	expect("Mul: constant 0.5 is not a value of type .u32", k.Mul(n, 0.5))
	expect("Add: constant 4294967296 is not a value of type .u32", k.Add(n, int64(1<<32)))
	expect("Div by zero", k.Div(n, 0))
	expect("Rem by zero", k.Rem(n, 0))
	expect("Rem of floating-point numbers: want integers", k.Rem(x, 2))
	expect("And of a value of type .f32: want an integer, convert it with Bits", k.And(x, x))
	expect("Xor of 1.5 and 2: want integers", k.Xor(1.5, 2))
	expect("Shl of true and 2: want integers", k.Shl(true, 2))
	expect("Shr by -1: want at least 0", k.Shr(n, -1))
	expect("Not of 1.5: want an integer or a predicate", k.Not(1.5))
	expect("Lt: constant 2147483648 is not a value of type .s32", k.Lt(k.To(ptx.S32, n), 1<<31))
	expect("constant 0.5: want a value of type .f16x2", k.Var("halves", ptx.F16x2, 0.5))
	expect("operand is a string: want a Reg, a Go number or a bool", k.Add(n, "1"))
	expect("constant 18446744073709551615: want at most 1<<63 - 1", k.Add(n, uint64(math.MaxUint64)))
	expect("operand is a zero Reg", k.Add(build.Reg{}, n))
	expect("Set writes n, which is not a variable: declare it with Var", nothing(func() { k.Set(n, 1) }))
	expect("FMA of .u32 into a variable of type .f32: want the same type, convert with To",
		nothing(func() { k.FMA(k.Var("v", ptx.F32, 0), n, n) }))
	expect("If: the condition is n, want a predicate", k.If(n, func() {}))
	expect("If inside When: use If instead of When",
		nothing(func() { k.When(k.Lt(n, 1), func() { k.If(k.Lt(n, 2), func() {}) }) }))
	expect("For from -1 to 4 in steps of 1: want constants in the range of .u32",
		nothing(func() { k.For(-1, 4, func(build.Reg) {}) }))
	expect("For from 0 to 4294967295 in steps of 2: want constants in the range of .u32",
		nothing(func() { k.ForStep(0, 1<<32-1, 2, func(build.Reg) {}) }))
	expect("For: the step is 0, want a positive constant of type .u32",
		nothing(func() { k.ForStep(0, n, 0, func(build.Reg) {}) }))
	expect("For: the bounds have type .f32, want integers", nothing(func() { k.For(0, x, func(build.Reg) {}) }))
	expect("While: the condition is a constant, want a predicate computed at run time",
		nothing(func() { k.While(func() build.Reg { return k.Lt(1, 2) }, func() {}) }))
	expect("store of n to memory of type .f32: want a value of type .f32, convert it with To",
		nothing(func() { p.Store(n) }))
	expect("vector of 3 elements of type .f32: want 1, 2 or 4 elements in at most 16 bytes", p.LoadVec(3))
	expect("index has type .f32: want an integer", p.At(x))
	expect("shared array s has 0×4 elements of type .f32: want at least 1×1, and fewer than 2^27 elements",
		k.Shared("s", ptx.F32, 0, 4))
	tooLarge := "shared array s has 4294967296×4294967296 elements of type .f32: " +
		"want at least 1×1, and fewer than 2^27 elements"
	expect(tooLarge, k.Shared("s", ptx.F32, 1<<32, 1<<32))
	expect("add.u32: found 2 operands: want 3 (a register, a register or a number, a register or a number)",
		nothing(func() { k.Do("add.u32", k.Fresh(ptx.U32), n) }))
	expect("mov.u32 writes n, which is not a variable: declare it with Var", nothing(func() { k.Do("mov.u32", n, 1) }))
	expect("frobnicate.u32: instruction \"frobnicate\" is not supported", nothing(func() { k.Do("frobnicate.u32", n) }))
	expect("comment \"a·b\": want a single line of ASCII", nothing(func() { k.Comment("a·b") }))
	expect("name \"a b\": want letters, digits, _ and $, not starting with a digit", k.Named("a b", n))
	expect("a variable cannot have type .none", k.Fresh(ptx.NoType))
	var inner build.Reg
	k.If(k.Lt(n, 1), func() { inner = k.Named("inner", k.Add(n, 9)) })
	expect("inner is used outside the block that created it: declare it with Var before the block", k.Add(inner, 1))

	_, err := k.Build()
	var got ptx.Errors
	if !errors.As(err, &got) {
		t.Fatalf("Build: %v", err)
	}
	if !errors.Is(err, ptx.ErrInvalid) {
		t.Errorf("%v does not wrap ErrInvalid", err)
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("no error %q", want[i])
		case i >= len(want):
			t.Errorf("unexpected error: %v", got[i])
		case got[i].Msg != want[i]:
			t.Errorf("error %d is %q, want %q", i, got[i].Msg, want[i])
		case filepath.Base(got[i].Pos.File) != "build_test.go":
			t.Errorf("error %q is at %s, want build_test.go", want[i], got[i].Pos)
		case got[i].Pos.Line != lines[i] && got[i].Pos.Line != lines[i]+1: // the call or its second line
			t.Errorf("error %q is at line %d, want %d or the next one", want[i], got[i].Pos.Line, lines[i])
		}
	}
}

// TestManyErrors checks that the message says whether errors were left out.
func TestManyErrors(t *testing.T) {
	const limit = 50
	for _, count := range []int{1, 30, limit, limit + 1} {
		k := build.New("k")
		n := k.Param("n", ptx.U32)
		for i := range count {
			k.Shr(n, -1-i)
		}
		_, err := k.Build()
		var all ptx.Errors
		if !errors.As(err, &all) || len(all) != min(count, limit) {
			t.Fatalf("%d errors: got %d, want %d", count, len(all), min(count, limit))
		}
		want := ""
		if count > limit {
			want = "further errors are not listed"
		}
		if _, got, _ := strings.Cut(err.Error(), "\n"); got != want { // equal errors share the first line
			t.Errorf("%d errors: %q after the first line, want %q", count, got, want)
		}
	}
}

// nothing calls f. It makes a call without a result usable as an argument.
func nothing(f func()) any {
	f()
	return nil
}

// TestVerifierErrors checks that errors found by ptx.Verify have the Go line, too.
func TestVerifierErrors(t *testing.T) {
	k := build.New("k")
	k.Param("n", ptx.U32)
	at := line() + 1
	k.Param("n", ptx.U32)
	_, err := k.Build()
	var got ptx.Errors
	if !errors.As(err, &got) || got[0].Pos.Line != at || !strings.Contains(got[0].Msg, "already declared") {
		t.Errorf("got %v, want an error at line %d", err, at)
	}
}

// TestElse checks that an Else directly follows its If and occurs only once.
func TestElse(t *testing.T) {
	for name, write := range map[string]func(k *build.Kernel, n build.Reg){
		"later": func(k *build.Kernel, n build.Reg) {
			b := k.If(k.Lt(n, 1), func() {})
			k.Barrier()
			b.Else(func() {})
		},
		"twice": func(k *build.Kernel, n build.Reg) {
			b := k.If(k.Lt(n, 1), func() {})
			b.Else(func() {})
			b.Else(func() {})
		},
	} {
		k := build.New("k")
		write(k, k.Param("n", ptx.U32))
		if _, err := k.Build(); err == nil || !strings.Contains(err.Error(), "Else does not directly follow its If") {
			t.Errorf("%s: got error %v, want one about Else", name, err)
		}
	}
}
