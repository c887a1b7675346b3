package check

import (
	"slices"
	"strings"
	"testing"

	"tilework/ptx/emu"
)

// TestEqualCopies stores the shared memory of two blocks to the same place, by bulk copies. Equal
// bytes are advice.
func TestEqualCopies(t *testing.T) {
	const body = `add.u32 %c, %c, 1;
	st.shared.u32 [%r1], VALUE;
	fence.proxy.async.shared::cta;
	bar.sync 0;
	setp.ne.u32 %q0, %t, 0; @%q0 bra on;
	mov.u32 %r2, s;
	cp.async.bulk.global.shared::cta.bulk_group [%p], [%r2], 256;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
on:	mov.u32 %r3, 0;`
	for value, want := range map[string]Severity{"%t": Advice, "%c": Error} {
		p := program{text: hopper(strings.ReplaceAll(body, "VALUE", value)), grid: emu.Dim3{X: 2, Y: 1, Z: 1},
			block: emu.Dim3{X: 64, Y: 1, Z: 1}, args: []any{make([]int32, 64)}}
		r, _, err := p.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) != 1 || r.Findings[0].Checker != Race || r.Findings[0].Severity != want {
			t.Errorf("blocks store %s: found %v, want a race of severity %v", value, r, want)
		}
	}
}

// TestInvalidatedMbarrier reuses the memory of an mbarrier. The barrier of the block orders the
// waits of all threads before its invalidation.
func TestInvalidatedMbarrier(t *testing.T) {
	const body = `setp.ne.u32 %q0, %t, 0;
	@!%q0 mbarrier.init.shared.b64 [s], 64;
	bar.sync 0;
	mbarrier.arrive.shared.b64 _, [s];
wait:	mbarrier.try_wait.parity.shared.b64 %q1, [s], 0;
	@!%q1 bra wait;
	ORDER
	@%q0 bra on;
	mbarrier.inval.shared.b64 [s];
	st.shared.u32 [s], 5;
on:	mov.u32 %r3, 0;`
	for order, ordered := range map[string]bool{"bar.sync 0;": true, "": false} {
		var found []bool
		for seed := range uint64(4) {
			p := program{text: hopper(strings.ReplaceAll(body, "ORDER", order)), grid: emu.Dim3{X: 1, Y: 1, Z: 1},
				block: emu.Dim3{X: 64, Y: 1, Z: 1}, args: []any{make([]int32, 64)}, seed: seed, instructions: 1e6}
			r, _, err := p.run(t)
			found = append(found, err != nil || len(r.Findings) > 0)
			if ordered && found[seed] {
				t.Errorf("seed %d: found %v, %v; want nothing", seed, r, err)
			}
		}
		if !ordered && slices.Contains(found, false) {
			t.Errorf("without a barrier, found faults for the seeds %v, want all", found)
		}
	}
}

// TestMbarrierScopes lets the blocks of a cluster arrive at one mbarrier, with different scopes.
// The scope limits the order of other memory. The arrivals and the waits do not race.
func TestMbarrierScopes(t *testing.T) {
	const body = `mov.u32 %r2, %cluster_ctarank;
	setp.eq.u32 %q0, %r2, 0;
	mov.u32 %r1, s;
	mapa.shared::cluster.u32 %r1, %r1, 0;
	@%q0 mbarrier.init.shared::cta.b64 [s], 2;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	@!%q0 bra remote;
	LOCAL
wait:	mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %q1, [s], 0;
	@!%q1 bra wait;
	bra on;
remote:	mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];
on:	mov.u32 %r3, 0;`
	for _, local := range []string{
		"mbarrier.arrive.release.cta.shared::cta.b64 _, [s];",
		"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [s], 0; mbarrier.arrive.shared::cta.b64 _, [s];",
	} {
		for seed := range uint64(4) {
			text := strings.ReplaceAll(hopper(body), "LOCAL", local)
			p := program{text: strings.Replace(text, "{", ".reqnctapercluster 2 {", 1), grid: emu.Dim3{X: 2, Y: 1, Z: 1},
				block: emu.Dim3{X: 1, Y: 1, Z: 1}, args: []any{make([]int32, 64)}, seed: seed, instructions: 1e6}
			if r, _, err := p.run(t); err != nil || len(r.Findings) > 0 {
				t.Errorf("%s seed %d: found %v, %v; want nothing", local, seed, r, err)
			}
		}
	}
}

// hopper returns the kernel of small for sm_90.
func hopper(body string) string { return strings.Replace(small(body), "sm_80", "sm_90", 1) }
