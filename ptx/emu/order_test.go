package emu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/ptx"
)

// TestModifierOrder checks that an instruction computes the same with its modifiers in another
// order.
func TestModifierOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	f32, u32 := ptx.F32, ptx.U32
	for _, c := range []struct {
		manual, other string
		result        ptx.Type
		args          []ptx.Type
	}{
		{"fma.rz.ftz.sat.f32 %d, %a, %b, %c", "fma.f32.sat.rz.ftz %d, %a, %b, %c", f32, repeat(f32, 3)},
		{"cvt.rzi.ftz.sat.u8.f32 %d, %a", "cvt.u8.sat.f32.ftz.rzi %d, %a", ptx.U8, repeat(f32, 1)},
		{"set.lt.ftz.s32.f32 %d, %a, %b", "set.s32.ftz.f32.lt %d, %a, %b", u32, repeat(f32, 2)},
		{"setp.geu.f32 %d, %a, %b", "setp.f32.geu %d, %a, %b", ptx.Pred, repeat(f32, 2)},
		{"prmt.b32.f4e %d, %a, %b, %c", "prmt.f4e.b32 %d, %a, %b, %c", u32, repeat(u32, 3)},
		{"bfind.shiftamt.s32 %d, %a", "bfind.s32.shiftamt %d, %a", u32, repeat(u32, 1)},
		{"vote.sync.ballot.b32 %d, %a, -1", "vote.ballot.sync.b32 %d, %a, -1", u32, repeat(ptx.Pred, 1)},
		{"mov.b32 %d, %a", "mov.b32 {%d}, %a", u32, repeat(u32, 1)},
		{"mov.b64 %d, %a", "{ mov.b64 %d, {%a}; }", ptx.U64, repeat(ptx.U64, 1)},
	} {
		args := sampleArgs(rng, c.args)
		want, got := evaluate(t, c.manual, c.result, c.args, args), evaluate(t, c.other, c.result, c.args, args)
		if !slices.Equal(got, want) {
			t.Errorf("%s computes %x, %s computes %x", c.other, got, c.manual, want)
		}
	}
}

// TestNegatedOperands checks negated predicates in every operand that can have them.
func TestNegatedOperands(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	bit := func(v bool) uint64 { return choose[uint64](v, 1, 0) }
	pred := repeat(ptx.Pred, 2)
	for text, want := range map[string]func(a, b bool) bool{
		"and.pred %d, !%a, %b":                               func(a, b bool) bool { return !a && b },
		"or.pred %d, %a, !%b":                                func(a, b bool) bool { return a || !b },
		"xor.pred %d, !%a, !%b":                              func(a, b bool) bool { return a != b },
		"not.pred %d, !%a":                                   func(a, _ bool) bool { return a },
		"mov.pred %d, !%a":                                   func(a, _ bool) bool { return !a },
		"setp.eq.or.u32 %d, 0, 1, !%b":                       func(_, b bool) bool { return !b },
		"setp.eq.and.u32 %d|_, 0, 0, !%a":                    func(a, _ bool) bool { return !a },
		"lop3.or.b32 _|%d, 0, 0, 0, 0, !%a":                  func(a, _ bool) bool { return !a },
		"{ selp.u32 %w, 1, 0, !%a; setp.ne.u32 %d, %w, 0; }": func(a, _ bool) bool { return !a },
	} {
		args := sampleArgs(rng, pred)
		for k, got := range evaluate(t, text, ptx.Pred, pred, args) {
			if a, b := args[k][0] != 0, args[k][1] != 0; got != bit(want(a, b)) {
				t.Errorf("%s with %v and %v is %d", text, a, b, got)
			}
		}
	}
}
