package emu

import (
	"errors"
	"slices"
	"testing"
)

// TestShufflesMeet runs shuffles with the same member mask in two and in three branches. Each lane
// reads the value that the other lane shuffles, wherever that is.
func TestShufflesMeet(t *testing.T) {
	const decls = `.reg .pred %q, %a, %b; .reg .b32 %v, %w, %x; mad.wide.u32 %p, %t0, 4, %buf; ld.global.u32 %v, [%p];
	add.u32 %w, %v, 1000; mov.u32 %x, 7; setp.lt.u32 %a, %t0, 10; setp.lt.u32 %b, %t0, 20;
`
	body := decls + `@%a bra A; @%b bra B;
	shfl.sync.bfly.b32 %x|%q, %v, 16, 31, -1; add.u32 %x, %x, 1; bra ON;
A:	shfl.sync.bfly.b32 %v, %w, 16, 31, -1; mov.u32 %x, %v; bra ON;
B:	shfl.sync.bfly.b32 %w, %w, 16, 31, -1; add.u32 %x, %w, 2;
ON: st.global.u32 [%p], %x;`
	in := make([]uint32, 32)
	want := make([]uint32, 32)
	shuffled := func(lane int) uint32 {
		if lane < 20 {
			return in[lane] + 1000
		}
		return in[lane]
	}
	for i := range in {
		in[i] = uint32(i * i)
	}
	for i := range want {
		want[i] = shuffled(i ^ 16)
		if i >= 20 {
			want[i]++
		} else if i >= 10 {
			want[i] += 2
		}
	}
	for seed := range uint64(20) {
		got, _, err := runBody(t, body, slices.Clone(in), Launch{Block: Dim3{32, 1, 1}, Seed: seed})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %v, %v, want %v", seed, got, err, want)
		}
	}
	// Shuffles of another kind do not meet.
	body = decls + `@%a bra A;
	shfl.sync.bfly.b32 %x, %v, 16, 31, -1; bra ON;
A:	shfl.sync.idx.b32 %x, %v, 16, 31, -1;
ON: st.global.u32 [%p], %x;`
	if _, _, err := runBody(t, body, slices.Clone(in), Launch{Block: Dim3{32, 1, 1}}); !errors.Is(err, ErrDeadlock) {
		t.Errorf("error %v, want a deadlock", err)
	}
}
