package emu

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const mbarrierDecls = `	.shared .align 8 .b64 m; .shared .align 16 .b8 s[256];
	.reg .b64 %st; .reg .b32 %v, %a, %n; .reg .pred %q, %r;
	setp.eq.u32 %q, %t0, 0;
`

// TestMbarrierPhases follows one mbarrier through several phases in one thread.
func TestMbarrierPhases(t *testing.T) {
	next := 0
	body := mbarrierDecls + "	mbarrier.init.shared.b64 [m], 3;\n"
	var want []uint32
	expect := func(query string, answer uint32) {
		body += "\t" + query + "\n"
		body += "\tst.global.u32 [%buf+" + strconv.Itoa(4*next) + "], %v;\n"
		want = append(want, answer)
		next++
	}
	complete := func(parity string, answer uint32) {
		expect("mbarrier.test_wait.parity.shared.b64 %r, [m], "+parity+"; selp.u32 %v, 1, 0, %r;", answer)
	}
	pending := func(answer uint32) { expect("mbarrier.pending_count.b64 %v, %st;", answer) }
	do := func(s string) { body += "\t" + s + "\n" }

	complete("1", 1) // the phase before the first
	complete("0", 0)
	do("mbarrier.arrive.shared.b64 %st, [m];")
	pending(3) // arrive returns the state before the arrival
	do("mbarrier.arrive.shared.b64 %st, [m], 2;")
	pending(2)
	complete("0", 1)
	complete("1", 0)
	expect("mbarrier.test_wait.shared.b64 %r, [m], %st; selp.u32 %v, 1, 0, %r;", 1)
	// Bytes can be completed before they are expected.
	do("mbarrier.arrive.expect_tx.shared.b64 %st, [m], 32;")
	do("mbarrier.complete_tx.relaxed.cta.shared.b64 [m], 48;")
	do("mbarrier.arrive.shared.b64 %st, [m], 2;")
	expect("mbarrier.test_wait.shared.b64 %r, [m], %st; selp.u32 %v, 1, 0, %r;", 0)
	do("mbarrier.expect_tx.relaxed.cta.shared.b64 [m], 16;")
	expect("mbarrier.test_wait.shared.b64 %r, [m], %st; selp.u32 %v, 1, 0, %r;", 1)
	complete("1", 1)
	// Later phases do not wait for a thread that dropped out.
	do("mbarrier.arrive_drop.shared.b64 %st, [m];")
	do("mbarrier.arrive.noComplete.shared.b64 %st, [m], 1;")
	complete("0", 0)
	do("mbarrier.arrive.shared.b64 %st, [m], 1;")
	complete("0", 1)
	do("mbarrier.arrive.shared.b64 %st, [m], 2;")
	complete("1", 1)
	do("mbarrier.inval.shared.b64 [m]; mbarrier.init.shared.b64 [m], 1;")
	complete("0", 0)

	got, _, err := runBody(t, body, make([]uint32, len(want)), Launch{Block: Dim3{1, 1, 1}})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v %v, want %v", got, err, want)
	}
}

// transferWord returns a kernel body in which warp 0 writes words and warp 1 reads them after an
// mbarrier.
func transferWord(arrive, wait string) string {
	return mbarrierDecls + `	@%q mbarrier.init.shared.b64 [m], 32;
	bar.sync 0;
	mov.u32 %a, s;
	and.b32 %n, %t0, 31;
	mad.lo.u32 %a, %n, 4, %a;
	setp.lt.u32 %q, %t0, 32;
	@!%q bra READ;
	add.u32 %v, %t0, 5;
	st.shared.u32 [%a], %v;
	` + arrive + `
	bra DONE;
READ:	` + wait + `
	ld.shared.u32 %v, [%a];
	mad.wide.u32 %p, %n, 4, %buf;
	st.global.u32 [%p], %v;
DONE:`
}

func TestMbarrierSynchronizes(t *testing.T) {
	want := make([]uint32, 32)
	for i := range want {
		want[i] = uint32(i) + 5
	}
	for _, c := range []struct {
		name, arrive, wait string
		right              bool
	}{
		{"try_wait", "mbarrier.arrive.shared.b64 _, [m];",
			"LOOP: mbarrier.try_wait.parity.shared.b64 %r, [m], 0; @!%r bra LOOP;", true},
		{"test_wait", "mbarrier.arrive.shared.b64 _, [m];",
			"LOOP: mbarrier.test_wait.parity.shared.b64 %r, [m], 0; @!%r bra LOOP;", true},
		{"generic", "mov.u64 %p, m; cvta.shared.u64 %p, %p; mbarrier.arrive.b64 %st, [%p];",
			"LOOP: mbarrier.test_wait.parity.shared.b64 %r, [m], 0; @!%r bra LOOP;", true},
		{"wait for the wrong parity", "mbarrier.arrive.shared.b64 _, [m];",
			"LOOP: mbarrier.try_wait.parity.shared.b64 %r, [m], 1; @!%r bra LOOP;", false},
		{"no loop around try_wait", "mbarrier.arrive.shared.b64 _, [m];", "mbarrier.try_wait.parity.shared.b64 %r, [m], 0;",
			false},
	} {
		wrong := 0
		for seed := range uint64(20) {
			got, _, err := runBody(t, transferWord(c.arrive, c.wait), make([]uint32, 32),
				Launch{Block: Dim3{64, 1, 1}, Seed: seed, MaxInstructions: 1 << 20})
			if err != nil && (c.right || !errors.Is(err, ErrDeadlock)) {
				t.Fatalf("%s: %v", c.name, err)
			}
			if !slices.Equal(got, want) {
				wrong++
			}
		}
		if c.right && wrong > 0 || !c.right && wrong == 0 {
			t.Errorf("%s: %d of 20 results are wrong", c.name, wrong)
		}
	}
}

func TestMbarrierMisuse(t *testing.T) {
	for _, c := range []struct {
		body string
		want string
		kind error
	}{
		{"mbarrier.arrive.shared.b64 _, [m];", "no mbarrier at 0x0 of block (0,0,0)'s shared memory", ErrMisuse},
		{"mov.u32 %v, 0; mbarrier.init.shared.b64 [m], %v;", "mbarrier count is 0: want 1", ErrMisuse},
		{"mbarrier.init.shared.b64 [m], 1; mbarrier.init.shared.b64 [m], 1;", "0x0 already contains an mbarrier", ErrMisuse},
		{"mbarrier.init.shared.b64 [m], 2; mbarrier.arrive.shared.b64 _, [m], 3;",
			"3 arrivals at an mbarrier whose phase expects 2", ErrMisuse},
		{"mbarrier.init.shared.b64 [m], 2; mbarrier.arrive.noComplete.shared.b64 %st, [m], 2;", "which .noComplete forbids",
			ErrMisuse},
		{"mbarrier.init.shared.b64 [m], 2; mbarrier.expect_tx.relaxed.cta.shared.b64 [m], 1048575; " +
			"mbarrier.expect_tx.relaxed.cta.shared.b64 [m], 1;", "transaction count is 1048576 bytes: want at most 1048575",
			ErrMisuse},
		{"mbarrier.init.shared.b64 [m], 2; st.shared.b64 [m], 7; mbarrier.arrive.shared.b64 _, [m];", "no mbarrier",
			ErrMisuse},
		{"mbarrier.init.b64 [%buf], 2;", "the mbarrier is in global memory: want shared memory", ErrMisuse},
		{"mbarrier.init.shared.b64 [s+4], 2;", "multiple of 8 bytes", ErrAccess},
		{"mbarrier.init.shared.b64 [m], 2; mbarrier.arrive.expect_tx.shared.b64 _, [m], 96; LOOP: " +
			"mbarrier.try_wait.parity.shared.b64 %q, [m], 0; @!%q bra LOOP;",
			"waits at the mbarrier at 0x0 of block (0,0,0)'s shared memory, whose phase of parity 0 expects 1 more arrivals " +
				"and 96 more bytes", ErrDeadlock},
	} {
		_, _, err := runBody(t, mbarrierDecls+c.body, []uint32{0, 0}, Launch{Block: Dim3{1, 1, 1}, MaxInstructions: 1 << 20})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		}
	}
}

// TestRemoteArrivals has the blocks of a cluster arrive at each other's mbarriers.
func TestRemoteArrivals(t *testing.T) {
	body := mbarrierDecls + `	.reg .b32 %rank, %other, %there;
	@%q mbarrier.init.shared.b64 [m], 64;
	barrier.cluster.arrive; barrier.cluster.wait;
	mov.u32 %rank, %cluster_ctarank;
	xor.b32 %other, %rank, 1;
	mov.u32 %a, m;
	mapa.shared::cluster.u32 %there, %a, %other;
	@%q mbarrier.arrive.shared::cluster.b64 _, [%there], 32;
	mbarrier.arrive.release.cluster.shared.b64 _, [%a];
LOOP:	mbarrier.try_wait.parity.acquire.cluster.shared.b64 %r, [m], 0;
	@!%r bra LOOP;
	barrier.cluster.arrive; barrier.cluster.wait;
	mad.lo.u32 %n, %rank, 32, %t0;
	mad.wide.u32 %p, %n, 4, %buf;
	st.global.u32 [%p], 1;`
	launch := Launch{Grid: Dim3{2, 1, 1}, Block: Dim3{32, 1, 1}, Cluster: Dim3{2, 1, 1}, MaxInstructions: 1 << 20}
	for seed := range uint64(10) {
		launch.Seed = seed
		got, _, err := runBody(t, body, make([]uint32, 64), launch)
		if err != nil || slices.Contains(got, 0) {
			t.Fatalf("%v: %v", got, err)
		}
	}
}

// TestCopyArrival checks that cp.async.mbarrier.arrive arrives after the thread's copies.
func TestCopyArrival(t *testing.T) {
	body := mbarrierDecls + `	@%q mbarrier.init.shared.b64 [m], COUNT;
	bar.sync 0;
	mov.u32 %a, s;
	mad.lo.u32 %a, %t0, 4, %a;
	mad.wide.u32 %p, %t0, 4, %buf;
	cp.async.ca.shared.global [%a], [%p], 4;
	cp.async.mbarrier.arriveINC.shared.b64 [m];
	OWN
LOOP:	mbarrier.try_wait.parity.shared.b64 %r, [m], 0;
	@!%r bra LOOP;
	xor.b32 %n, %t0, 17;
	mov.u32 %a, s;
	mad.lo.u32 %a, %n, 4, %a;
	ld.shared.u32 %v, [%a];
	st.global.u32 [%p+128], %v;`
	words := make([]uint32, 64)
	want := make([]uint32, 32)
	for i := range want {
		words[i] = uint32(i) * 3
		want[i^17] = uint32(i) * 3
	}
	for _, c := range [][3]string{{"32", ".noinc", ""}, {"32", "", "mbarrier.arrive.shared.b64 _, [m];"}} {
		text := strings.NewReplacer("COUNT", c[0], "INC", c[1], "OWN", c[2]).Replace(body)
		for seed := range uint64(10) {
			got, _, err := runBody(t, text, words, Launch{Block: Dim3{32, 1, 1}, Seed: seed, MaxInstructions: 1 << 20})
			if err != nil || !slices.Equal(got[32:], want) {
				t.Fatalf("%v: %v %v", c, got[32:], err)
			}
		}
	}
}

// TestBarrierWaitsForMbarrier checks that an aligned barrier waits for lanes of the warp that wait
// at an mbarrier, instead of reporting divergence.
func TestBarrierWaitsForMbarrier(t *testing.T) {
	body := mbarrierDecls + `	.reg .b32 %i;
	@%q mbarrier.init.shared.b64 [m], 1;
	bar.sync 0;
	setp.eq.u32 %r, %t0, 32;
	mov.u32 %i, 0;
	@!%r bra WAIT;
LATE:	add.u32 %i, %i, 1;
	setp.lt.u32 %r, %i, 500;
	@%r bra LATE;
	mbarrier.arrive.shared.b64 _, [m];
WAIT:	@!%q bra MEET;
LOOP:	mbarrier.try_wait.parity.shared.b64 %r, [m], 0;
	@!%r bra LOOP;
MEET:	bar.sync 0;`
	divergent := 0
	watch := observer(func() *Hooks {
		return &Hooks{Barrier: func(b *Barrier) {
			if b.Divergent() {
				divergent++
			}
		}}
	})
	for seed := range uint64(20) {
		if _, _, err := runBody(t, body, []uint32{0},
			Launch{Block: Dim3{64, 1, 1}, Seed: seed, Observers: []Observer{watch}}); err != nil || divergent > 0 {
			t.Fatalf("%d divergent arrivals, %v", divergent, err)
		}
	}
}

// TestDataLikeMbarrier initializes an mbarrier where data are stored that have the bits of one.
func TestDataLikeMbarrier(t *testing.T) {
	word := mbarrier{pending: 1, expected: 1}
	body := mbarrierDecls + "	mov.b64 %st, " + strconv.FormatUint(word.pack(), 10) + `;
	st.shared.b64 [m], %st;
	mbarrier.init.shared.b64 [m], 2;
	mbarrier.arrive.shared.b64 %st, [m];
	mbarrier.pending_count.b64 %v, %st;
	st.global.u32 [%buf], %v;
`
	got, _, err := runBody(t, body, make([]uint32, 1), Launch{Block: Dim3{1, 1, 1}})
	if err != nil || got[0] != 2 {
		t.Errorf("got %v %v, want 2 pending arrivals", got, err)
	}
}

// TestCommitsInOrder waits for the second of two commits and expects that the first has arrived.
func TestCommitsInOrder(t *testing.T) {
	const commit = "	tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "
	body := mbarrierDecls + `	.shared .align 8 .b64 m2;
	mbarrier.init.shared.b64 [m], 1;
	mbarrier.init.shared.b64 [m2], 1;
` + commit + "[m];\n" + commit + `[m2];
WAIT:
	mbarrier.test_wait.parity.shared.b64 %q, [m2], 0;
	@!%q bra WAIT;
	mbarrier.test_wait.parity.shared.b64 %r, [m], 0;
	selp.u32 %v, 1, 0, %r;
	st.global.u32 [%buf], %v;
`
	text := strings.NewReplacer("8.8", "9.0", "sm_90", "sm_110a").Replace(kernelSource(body))
	for seed := range uint64(64) {
		got, _, err := runModule(t, text, make([]uint32, 1), Launch{Block: Dim3{1, 1, 1}, Seed: seed})
		if err != nil || got[0] != 1 {
			t.Fatalf("seed %d: got %v %v, want 1", seed, got, err)
		}
	}
}
