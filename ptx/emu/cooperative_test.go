package emu

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// gridSync is grid.sync() of cooperative groups as nvcc compiles it. The block %c is one of %n.
const gridSync = `{
	.reg .pred %q; .reg .b32 %hi, %lo, %nb, %old, %new; .reg .b64 %at;
	bar.sync 0;
	setp.ne.u32 %q, %t0, 0; @%q bra WAIT;
	mov.u32 %hi, %envreg1; mov.u32 %lo, %envreg2; mov.b64 %at, {%lo, %hi};
	sub.u32 %nb, 0x80000001, %n; setp.ne.u32 %q, %c, 0; @%q mov.u32 %nb, 1;
	atom.add.release.gpu.u32 %old, [%at+4], %nb;
POLL:
	ld.acquire.gpu.u32 %new, [%at+4];
	xor.b32 %new, %new, %old; setp.ge.s32 %q, %new, 0; @%q bra POLL;
WAIT:
	bar.sync 0;
}
`

// gridDecls sets %c and %n, and %p to the word of the block.
const gridDecls = `.reg .b32 %c, %n, %v, %k, %from; .reg .b64 %x; .reg .pred %more;
	mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x; mad.wide.u32 %p, %c, 4, %buf;
`

// TestGridBarrier passes a value from block to block, one at each grid barrier.
func TestGridBarrier(t *testing.T) {
	const blocks, rounds = 5, 4
	body := gridDecls + `mov.u32 %k, 0;
LOOP:
	add.u32 %from, %c, 1; rem.u32 %from, %from, %n; mad.wide.u32 %x, %from, 4, %buf;
	ld.global.u32 %v, [%x];
` + gridSync + `
	mad.lo.u32 %v, %v, 3, %c; st.global.u32 [%p], %v;
` + strings.NewReplacer("WAIT", "WAIT2", "POLL", "POLL2").Replace(gridSync) + `
	add.u32 %k, %k, 1; setp.lt.u32 %more, %k, 4; @%more bra LOOP;`
	want := []uint32{7, 1, 8, 2, 8}
	for range rounds {
		next := make([]uint32, blocks)
		for i := range next {
			next[i] = want[(i+1)%blocks]*3 + uint32(i)
		}
		want = next
	}
	for seed := range uint64(10) {
		got, _, err := runBody(t, body, []uint32{7, 1, 8, 2, 8},
			Launch{Grid: Dim3{blocks, 1, 1}, Block: Dim3{64, 1, 1}, Seed: seed})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %v, %v, want %v", seed, got, err, want)
		}
	}
}

// TestGridBarrierFaults runs grid barriers that a block skips: a deadlock, and an error of the
// block that traps.
func TestGridBarrierFaults(t *testing.T) {
	grid := Launch{Grid: Dim3{4, 1, 1}, Block: Dim3{64, 1, 1}, MaxInstructions: 1 << 26}
	skip := gridDecls + "setp.eq.u32 %more, %c, 2; @%more exit;" + gridSync
	if _, _, err := runBody(t, skip, make([]uint32, 4), grid); !errors.Is(err, ErrDeadlock) ||
		!strings.Contains(err.Error(), "polls at k.ptx:") {
		t.Errorf("error %v, want a deadlock that names the place", err)
	}
	trap := gridDecls + "setp.ne.u32 %more, %c, 2; @%more bra ON; trap; ON:" + gridSync
	if _, _, err := runBody(t, trap, make([]uint32, 4), grid); !errors.Is(err, ErrTrap) {
		t.Errorf("error %v, want a trap", err)
	}
	// The grid is too large to wait for all its blocks. It runs as without a cooperative launch.
	grid.Grid.X = maxResident
	if _, _, err := runBody(t, ".reg .b32 %x; .reg .pred %q; mov.u32 %x, %envreg2; setp.ne.u32 %q, %x, 0; @%q trap;",
		make([]uint32, 1), grid); err != nil {
		t.Error(err)
	}
}
