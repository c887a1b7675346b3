package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// exchangeBody returns a kernel body in which each thread of a block writes a word of shared
// memory, executes wait, and reads the word of the thread 37 positions further.
func exchangeBody(wait string) string {
	return `	.shared .b32 s[128]; .reg .b32 %a, %i, %v; .reg .b64 %o;
	mov.u32 %a, s;
	mad.lo.u32 %i, %t0, 4, %a;
	mul.lo.u32 %v, %t0, 3;
	st.shared.u32 [%i], %v;
` + wait + `
	add.u32 %i, %t0, 37;
	and.b32 %i, %i, 127;
	mad.lo.u32 %i, %i, 4, %a;
	ld.shared.u32 %v, [%i];
	mad.wide.u32 %p, %t0, 4, %buf;
	st.global.u32 [%p], %v;`
}

// TestMissingBarrier checks that a kernel without a required barrier computes wrong results for
// some seed, and that a correct kernel never does.
func TestMissingBarrier(t *testing.T) {
	want := make([]uint32, 128)
	for i := range want {
		want[i] = uint32((i + 37) % 128 * 3)
	}
	for wait, right := range map[string]bool{
		"bar.sync 0;": true, "barrier.sync 3;": true, "bar.sync 2, 128;": true, "": false, "membar.cta;": false,
		"bar.warp.sync -1;": false,
		"setp.lt.u32 %q, %t0, 64; @%q bar.sync 0, 64; @!%q bar.sync 1, 64;":                false,
		"setp.lt.u32 %q, %t0, 64; @%q bra LOW; bar.sync 0; bra ON;\nLOW: bar.sync 0;\nON:": true,
	} {
		wrong := 0
		for seed := range uint64(20) {
			got, _, err := runBody(t, ".reg .pred %q;"+exchangeBody(wait), make([]uint32, 128),
				Launch{Block: Dim3{128, 1, 1}, Seed: seed})
			if err != nil {
				t.Fatalf("%q: %v", wait, err)
			}
			if !slices.Equal(got, want) {
				wrong++
			}
		}
		if right && wrong > 0 || !right && wrong == 0 {
			t.Errorf("wait %q: %d of 20 results are wrong", wait, wrong)
		}
	}
}

// TestProducerConsumer has two warps that fill a shared memory buffer repeatedly and two warps that
// read it. Each pair waits at one barrier and only arrives at the other.
func TestProducerConsumer(t *testing.T) {
	const rounds = 9
	body := fmt.Sprintf(`	.shared .b32 s[64]; .reg .b32 %%a, %%n, %%v, %%sum; .reg .pred %%q;
	and.b32 %%a, %%t0, 63;
	mov.u32 %%v, s;
	mad.lo.u32 %%a, %%a, 4, %%v;
	mov.u32 %%n, 0;
	mov.u32 %%sum, 0;
	setp.ge.u32 %%q, %%t0, 64;
	@%%q bra CONSUME;
PRODUCE:	bar.sync 2, 128;
	mad.lo.u32 %%v, %%n, 1000, %%t0;
	st.shared.u32 [%%a], %%v;
	bar.arrive 1, 128;
	add.u32 %%n, %%n, 1;
	setp.lt.u32 %%q, %%n, %d;
	@%%q bra PRODUCE;
	bra DONE;
CONSUME:	bar.arrive 2, 128;
	bar.sync 1, 128;
	ld.shared.u32 %%v, [%%a];
	add.u32 %%sum, %%sum, %%v;
	add.u32 %%n, %%n, 1;
	setp.lt.u32 %%q, %%n, %d;
	@%%q bra CONSUME;
DONE:	mad.wide.u32 %%p, %%t0, 4, %%buf;
	st.global.u32 [%%p], %%sum;`, rounds, rounds)
	for seed := range uint64(10) {
		got, _, err := runBody(t, body, make([]uint32, 128), Launch{Block: Dim3{128, 1, 1}, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for i, sum := range got {
			want := uint32(0)
			if i >= 64 {
				want = rounds*(rounds-1)/2*1000 + rounds*uint32(i-64)
			}
			if sum != want {
				t.Fatalf("seed %d: thread %d has %d, want %d", seed, i, sum, want)
			}
		}
	}
}

func TestBarrierReductions(t *testing.T) {
	body := `	.reg .pred %q, %all, %any; .reg .b32 %v, %b;
	setp.lt.u32 %q, %t0, 70;
	bar.red.popc.u32 %v, 1, %q;
	bar.red.and.pred %all, 1, %q;
	bar.red.or.pred %any, 1, !%q;
	selp.b32 %b, 1000, 0, %all;
	add.u32 %v, %v, %b;
	selp.b32 %b, 2000, 0, %any;
	add.u32 %v, %v, %b;
	mad.wide.u32 %p, %t0, 4, %buf;
	st.global.u32 [%p], %v;`
	got, _, err := runBody(t, body, make([]uint32, 100), Launch{Block: Dim3{100, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v != 2070 {
			t.Fatalf("thread %d has %d, want 70 and 2000", i, v)
		}
	}
}

func TestBarrierMisuse(t *testing.T) {
	for _, c := range []struct {
		body, want string
		kind       error
	}{
		{"mov.u32 %v, 16; bar.sync %v;", "barrier number is 16: want 0 to 15", ErrMisuse},
		{"mov.u32 %v, 48; bar.sync 1, %v;", "barrier 1 for 48 threads: want a positive multiple of 32", ErrMisuse},
		{"setp.lt.u32 %q, %t0, 32; @%q bar.sync 1, 64; @!%q bar.sync 1, 96;", "threads: other threads arrived at it for",
			ErrMisuse},
		{"bar.sync 1, 96;", "bar.sync waits at barrier 1, where 64 of 96 threads have arrived", ErrDeadlock},
		{"setp.lt.u32 %q, %t0, 32; @%q bar.sync 1; @!%q bar.sync 2;",
			"waits at barrier 2, where 32 of 64 threads have arrived", ErrDeadlock},
		{"setp.lt.u32 %q, %t0, 32; @%q bar.arrive 1, 64; @%q bra OUT; bar.sync 1, 96; OUT:", "", ErrMisuse},
		{"setp.lt.u32 %q, %t0, 5; @%q bra LOW; bar.warp.sync 0xffffffff; bra ON; LOW: bar.sync 3, 64; ON:",
			"waits for lanes 0x0000001f", ErrDeadlock},
		{"setp.lt.u32 %q, %t0, 5; @%q shfl.sync.idx.b32 %v, %v, 0, 31, 1;", "not in its own member mask 0x00000001",
			ErrMisuse},
		{"setp.lt.u32 %q, %t0, 5; @%q movmatrix.sync.aligned.m8n8.trans.b16 %v, %v; @!%q bar.sync 1, 96;",
			"waits for lanes 0xffffffe0", ErrDeadlock},
		{"setp.ge.u32 %q, %t0, 5; @%q exit; movmatrix.sync.aligned.m8n8.trans.b16 %v, %v;",
			"lanes 0xffffffe0 of the warp do not execute the instruction", ErrMisuse},
	} {
		_, _, err := runBody(t, ".reg .pred %q; .reg .b32 %v; mov.u32 %v, 0;"+c.body, make([]uint32, 1),
			Launch{Block: Dim3{64, 1, 1}})
		if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		}
	}
}

// TestDivergentBarriers checks that arrivals of diverged lanes are reported and that barriers do
// not wait for exited threads.
func TestDivergentBarriers(t *testing.T) {
	for body, want := range map[string]int{
		"bar.sync 0;": 0,
		"setp.lt.u32 %q, %t0, 5; @%q bra LOW; bar.sync 0; bra ON; LOW: bar.sync 0; ON:":           2,
		"setp.lt.u32 %q, %t0, 5; @%q exit; bar.sync 0;":                                           0,
		"setp.lt.u32 %q, %t0, 40; @%q exit; bar.sync 0;":                                          0,
		"and.b32 %v, %t0, 1; setp.eq.u32 %q, %v, 0; @%q bar.sync 0; @!%q bar.sync 0;":             4,
		"setp.lt.u32 %q, %t0, 32; @%q bra LOW; bar.sync 0; bra ON; LOW: bar.sync 0; ON:":          0,
		"and.b32 %v, %t0, 1; setp.eq.u32 %q, %v, 0; @%q bra L; add.u32 %v, %v, 5; L: bar.sync 0;": 0,
	} {
		divergent, complete := 0, 0
		watch := observer(func() *Hooks {
			return &Hooks{Barrier: func(b *Barrier) {
				if b.Kind == BarrierComplete {
					complete++
				} else if b.Divergent() {
					divergent++
				}
			}}
		})
		_, _, err := runBody(t, ".reg .pred %q; .reg .b32 %v;"+body, make([]uint32, 1),
			Launch{Block: Dim3{64, 1, 1}, Observers: []Observer{watch}})
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if divergent != want || complete == 0 {
			t.Errorf("%s: %d divergent arrivals, want %d; %d completions", body, divergent, want, complete)
		}
	}
}
