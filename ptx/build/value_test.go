package build_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu"
)

// execute runs a kernel with one thread and returns the words that it wrote.
func execute(t *testing.T, k *build.Kernel, words int, params ...uint64) []uint64 {
	t.Helper()
	m, err := ptx.Parse("kernel.ptx", text(t, k))
	if err != nil {
		t.Fatal(err)
	}
	p, err := emu.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	mem := emu.NewMemory(emu.MemoryOptions{})
	out, err := mem.Alloc(8 * words)
	if err != nil {
		t.Fatal(err)
	}
	args := binary.LittleEndian.AppendUint64(nil, out)
	for _, v := range params {
		args = binary.LittleEndian.AppendUint64(args, v)
	}
	one := emu.Dim3{X: 1, Y: 1, Z: 1}
	if _, err := p.Run(t.Context(), mem, emu.Launch{Entry: m.Funcs()[0].Name, Grid: one, Block: one,
		Params: args}); err != nil {
		t.Fatal(err)
	}
	bytes := make([]byte, 8*words)
	if err := mem.Read(out, bytes); err != nil {
		t.Fatal(err)
	}
	result := make([]uint64, words)
	for i := range result {
		result[i] = binary.LittleEndian.Uint64(bytes[8*i:])
	}
	return result
}

// expression generates random expressions with the builder and evaluates them in Go, for integers
// of 32 or 64 bits.
type expression struct {
	k     *build.Kernel
	rng   *rand.Rand
	t     ptx.Type
	regs  []build.Reg // operands that are unknown to the builder, some in variables
	known []uint64    // values of regs
}

func (e *expression) wrap(v uint64) uint64 {
	switch e.t {
	case ptx.U32:
		return uint64(uint32(v))
	case ptx.S32:
		return uint64(int64(int32(v)))
	}
	return v
}

func (e *expression) signed() bool { return e.t.Class() == ptx.Signed }

func (e *expression) less(a, b uint64) bool {
	if e.signed() {
		return int64(a) < int64(b)
	}
	return a < b
}

// constant returns a Go number as an operand, mostly one that the builder treats specially.
func (e *expression) constant() (build.Value, uint64) {
	n := []int{0, 1, 2, 3, 4, 8, 12, 1 << 20, 1<<31 - 1, e.rng.IntN(1000)}[e.rng.IntN(10)]
	if e.signed() && e.rng.IntN(3) == 0 {
		n = -n
	}
	return n, uint64(n)
}

// register returns an expression that is not a constant. Operations on constants alone have the
// type int, and their results can be outside the range of e.t.
func (e *expression) register(depth int) (build.Value, uint64) {
	if x, v := e.make(depth); isRegister(x) {
		return x, v
	}
	return e.regs[0], e.known[0]
}

func isRegister(x build.Value) bool {
	r, ok := x.(build.Reg)
	return ok && r.Type() != ptx.NoType
}

func (e *expression) make(depth int) (build.Value, uint64) {
	k, t := e.k, e.t
	if depth == 0 {
		if e.rng.IntN(3) == 0 {
			return e.constant()
		}
		n := e.rng.IntN(len(e.regs))
		return e.regs[n], e.known[n]
	}
	x, xv := e.register(depth - 1)
	y, yv := e.make(e.rng.IntN(depth))
	shift := e.rng.IntN(t.Bits())
	c := e.rng.IntN(9) + 1
	switch e.rng.IntN(14) {
	case 0:
		return k.Add(x, y), e.wrap(xv + yv)
	case 1:
		return k.Add(y, x), e.wrap(xv + yv)
	case 2:
		return k.Sub(x, y), e.wrap(xv - yv)
	case 3:
		return k.Mul(x, y), e.wrap(xv * yv)
	case 4:
		z, zv := e.make(e.rng.IntN(depth))
		return k.Mad(x, y, z), e.wrap(xv*yv + zv)
	case 5:
		z, zv := e.register(e.rng.IntN(depth))
		return k.Mad(y, z, x), e.wrap(yv*zv + xv)
	case 6:
		if e.signed() {
			return k.Div(x, c), e.wrap(uint64(int64(xv) / int64(c)))
		}
		return k.Div(x, c), e.wrap(xv / uint64(c))
	case 7:
		if e.signed() {
			return k.Rem(x, c), e.wrap(uint64(int64(xv) % int64(c)))
		}
		return k.Rem(x, c), e.wrap(xv % uint64(c))
	case 8:
		return k.Shl(x, shift), e.wrap(xv << shift)
	case 9:
		if e.signed() {
			return k.Shr(x, shift), e.wrap(uint64(int64(xv) >> shift))
		}
		return k.Shr(x, shift), e.wrap(xv >> shift)
	case 10:
		return k.Xor(k.And(x, y), k.Or(k.Not(x), y)), e.wrap((xv & yv) ^ (^xv | yv))
	case 11:
		if e.less(xv, yv) {
			return k.Select(k.Lt(x, y), k.Add(x, 5), y), e.wrap(xv + 5)
		}
		return k.Select(k.Lt(x, y), k.Add(x, 5), y), yv
	case 12:
		if e.less(xv, yv) {
			return k.Min(x, y), xv
		}
		return k.Min(x, y), yv
	default:
		if e.less(xv, yv) {
			return k.Max(x, y), yv
		}
		return k.Max(x, y), xv
	}
}

// TestExpressions checks that a kernel computes the same values as Go after constant folding,
// strength reduction, and the sharing and moving of subexpressions.
func TestExpressions(t *testing.T) {
	rng := testrand.New(t)
	for n := range 300 {
		for _, typ := range []ptx.Type{ptx.U32, ptx.S32, ptx.U64, ptx.S64} {
			k := build.New("expression")
			out := k.Pointer("out", typ)
			e := &expression{k: k, rng: rng, t: typ}
			for i := range 3 {
				v := []uint64{0, 1, 7, 1 << 31, 1<<32 - 1, 1<<63 + 3, rng.Uint64()}[rng.IntN(7)]
				e.regs = append(e.regs, k.To(typ, k.Param([]string{"a", "b", "c"}[i], ptx.U64)))
				e.known = append(e.known, e.wrap(v))
			}
			params := append([]uint64(nil), e.known...)
			e.regs, e.known = append(e.regs, k.Var("v", typ, e.regs[0])), append(e.known, e.known[0])
			const results = 4
			want := make([]uint64, results)
			write := func(i int) {
				x, v := e.make(1 + rng.IntN(4))
				want[i] = v
				out.At(i * 8 / typ.Bytes()).Store(x)
			}
			write(0)
			k.For(0, 2, func(build.Reg) { write(1) })
			k.If(k.Lt(k.ThreadIdx(build.X), 1), func() { write(2) })
			k.Set(e.regs[3], k.Add(e.regs[3], 1))
			e.known[3] = e.wrap(e.known[3] + 1)
			write(3)
			for i, got := range execute(t, k, results, params...) {
				if got, want := e.wrap(got), e.wrap(want[i]); got != want {
					t.Fatalf("case %d of .%v: result %d is %#x, want %#x of %#x\n%s", n, typ, i, got, want, params, text(t, k))
				}
			}
		}
	}
}

// TestNestedWhen checks that an inner predicate computed from values of the outer block is false
// where the outer one is false. In the loop, its register then holds the result of the iteration
// before.
func TestNestedWhen(t *testing.T) {
	for _, n := range []uint64{1, 2, 3} {
		k := build.New("nested")
		out, limit := k.Pointer("out", ptx.U64), k.To(ptx.U32, k.Param("n", ptx.U64))
		for i := range 6 {
			out.At(i).Store(0)
		}
		k.For(0, 3, func(i build.Reg) {
			k.When(k.Lt(i, limit), func() {
				x := out.At(i).Load()
				k.When(k.Eq(x, 0), func() {
					out.At(i).Store(k.Add(x, 1))
					y := out.At(i).Load()
					k.When(k.Eq(y, 1), func() {
						out.At(k.Add(i, 3)).Store(out.At(i).LoadVecOr0(k.Gt(y, x), 1)[0])
					})
				})
			})
		})
		want := make([]uint64, 6)
		for i := range n {
			want[i], want[3+i] = 1, 1
		}
		if got := execute(t, k, 6, n); !slices.Equal(got, want) {
			t.Errorf("limit %d: got %v, want %v\n%s", n, got, want, text(t, k))
		}
	}
}

// TestByteOffset checks offsets that do not fit in the type of the indices.
func TestByteOffset(t *testing.T) {
	k := build.New("offsets")
	out := k.Pointer("out", ptx.U64)
	i, j := k.To(ptx.U32, k.Param("i", ptx.U64)), k.To(ptx.S32, k.Param("j", ptx.U64))
	m := k.Matrix(out, 1, 1, 1<<32)
	out.Store(m.ByteOffset(i, j))
	out.At(1).Store(m.T().ByteOffset(j, i))
	out.At(2).Store(m.ByteOffset(2, i))
	at := func(row, col uint64) uint64 { return 8 * (row<<32 + col) }
	want := []uint64{at(1<<31, 1<<30), at(1<<31, 1<<30), at(2, 1<<31)}
	if got := execute(t, k, 3, 1<<31, 1<<30); !slices.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

// TestOperandErrors checks operands of types that the operations do not accept.
func TestOperandErrors(t *testing.T) {
	type number float32
	for _, c := range []struct {
		want  string
		write func(k *build.Kernel, n build.Reg)
	}{
		{"operand is a ptx.Type: want a Reg, a Go number or a bool",
			func(k *build.Kernel, n build.Reg) { k.Add(n, ptx.U32) }},
		{"operand is a build.Axis: want a Reg, a Go number or a bool",
			func(k *build.Kernel, n build.Reg) { k.Add(n, build.X) }},
		{"Shl by true: want an integer", func(k *build.Kernel, n build.Reg) { k.Shl(n, true) }},
		{"Shr by a register of type .pred: want an integer",
			func(k *build.Kernel, n build.Reg) { k.Shr(n, k.Lt(n, 3)) }},
		{"Shl by 1.5: want an integer", func(k *build.Kernel, n build.Reg) { k.Shl(n, 1.5) }},
		{"And: constant 4294967296 is not a value of type .s32",
			func(k *build.Kernel, n build.Reg) { k.And(k.To(ptx.S32, n), int64(1<<32)) }},
		{"constant 1.5 has no type: want a float32 or a float64",
			func(k *build.Kernel, n build.Reg) { k.Do("mov.f32", k.Fresh(ptx.F32), number(1.5)) }},
	} {
		k := build.New("k")
		c.write(k, k.Param("n", ptx.U32))
		var all ptx.Errors
		if _, err := k.Build(); !errors.As(err, &all) || len(all) != 1 || all[0].Msg != c.want {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
