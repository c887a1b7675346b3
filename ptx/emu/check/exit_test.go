package check

import (
	"strings"
	"testing"

	"tilework/ptx/emu"
)

// arriving is a kernel for clusters of two blocks. The threads of block 0 arrive at the first of
// two mbarriers of block 1. END ends the kernel.
const arriving = `.reg .b32 %rank;
	setp.ne.u32 %q0, %t, 0;
	@!%q0 mbarrier.init.shared::cta.b64 [s], 64;
	@!%q0 mbarrier.init.shared::cta.b64 [s+8], 64;
	fence.mbarrier_init.release.cluster;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	mov.u32 %rank, %cluster_ctarank;
	setp.ne.u32 %q1, %rank, 0;
	mov.u32 %r2, s;
	mapa.shared::cluster.u32 %r2, %r2, 1;
	@!%q1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
	END
	mov.u32 %r3, 0;`

// waitPhase waits for the first phase of the mbarrier at offset OFF in block 1.
const waitPhase = "@!%q1 bra DONE; WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q2, [s+OFF], 0; " +
	"@!%q2 bra WAIT; DONE: "

// TestExitBeforeArrival checks that a block must not exit before the arrivals of another block are
// ordered before its exit. The result does not depend on the schedule.
func TestExitBeforeArrival(t *testing.T) {
	const (
		relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
		second  = "@!%q1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2+8]; "
	)
	wait := func(off string) string { return strings.ReplaceAll(waitPhase, "OFF", off) }
	for _, c := range []struct {
		name, end string
		ok        bool
	}{
		{"relaxed barrier", relaxed, false},
		{"relaxed barrier and a barrier of each block", "bar.sync 0; " + relaxed, false},
		{"barrier", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", true},
		{"barrier with .release", "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", true},
		{"relaxed barrier of block 0 only", "@!%q1 barrier.cluster.arrive.relaxed; @%q1 barrier.cluster.arrive; " +
			"barrier.cluster.wait;", false},
		{"relaxed barrier of block 1 only", "@%q1 barrier.cluster.arrive.relaxed; @!%q1 barrier.cluster.arrive; " +
			"barrier.cluster.wait;", true},
		{"fence before the relaxed barrier", "fence.acq_rel.cluster; " + relaxed, true},
		{"fence.sc before the relaxed barrier", "fence.sc.cluster; " + relaxed, true},
		{"fence of the block's scope", "fence.acq_rel.cta; " + relaxed, false},
		{"fence of thread 0 after a barrier", "bar.sync 0; @!%q0 fence.acq_rel.cluster; " + relaxed, true},
		{"fence of thread 0 before a barrier", "@!%q0 fence.acq_rel.cluster; bar.sync 0; " + relaxed, false},
		{"wait for the phase", wait("0") + relaxed, true},
		{"wait of one thread", strings.Replace(wait("0"), "@!%q1", "@%q0 bra DONE; @!%q1", 1) + relaxed, true},
		{"wait for a later arrival", second + wait("8") + relaxed, true},
		{"wait for an earlier arrival", wait("0") + second + relaxed, false},
		{"exit without a barrier of the other block", wait("0"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(10) {
				p := program{text: cluster2(strings.ReplaceAll(arriving, "END", c.end)), grid: emu.Dim3{X: 2, Y: 1, Z: 1},
					block: emu.Dim3{X: 64, Y: 1, Z: 1}, args: []any{make([]int32, 64)}, seed: seed, instructions: 1e6}
				r, _, err := p.run(t)
				switch {
				case err != nil:
					t.Fatalf("seed %d: %v", seed, err)
				case c.ok && len(r.Findings) > 0:
					t.Fatalf("seed %d: found %v, want nothing", seed, r)
				case c.ok:
				case len(r.Findings) != 1 || r.Errors() != 1 || r.Findings[0].Checker != Race:
					t.Fatalf("seed %d: found %v, want one error of the race checker", seed, r)
				case !strings.HasPrefix(r.Findings[0].Message, "block (1,0,0) exits although the arrival of thread ("):
					t.Fatalf("seed %d: found %v, want the exit of block (1,0,0)", seed, r)
				}
			}
		})
	}
}

// TestExitAfterOwnArrivals checks that arrivals of a block's own threads and of the only block of a
// cluster do not count.
func TestExitAfterOwnArrivals(t *testing.T) {
	for _, blocks := range []int{1, 2} {
		text := strings.ReplaceAll(arriving, "END", "")
		text = strings.ReplaceAll(text, "%r2, 1;", "%r2, %rank;")
		p := program{text: cluster2(text), grid: emu.Dim3{X: 2, Y: 1, Z: 1}, block: emu.Dim3{X: 64, Y: 1, Z: 1},
			args: []any{make([]int32, 64)}}
		if blocks == 1 {
			p.text = hopper(text)
		}
		if r, _, err := p.run(t); err != nil || len(r.Findings) > 0 {
			t.Errorf("clusters of %d blocks: found %v, %v; want nothing", blocks, r, err)
		}
	}
}

// TestAllowExit checks that an exit before an arrival is advice where the rule is allowed to be
// violated.
func TestAllowExit(t *testing.T) {
	text := strings.ReplaceAll(arriving, "END", "barrier.cluster.arrive.relaxed; barrier.cluster.wait;")
	p := program{text: cluster2(text), grid: emu.Dim3{X: 2, Y: 1, Z: 1}, block: emu.Dim3{X: 64, Y: 1, Z: 1},
		args: []any{make([]int32, 64)}, options: Options{Allow: []Rule{ExitedBlock}}}
	if r, _, err := p.run(t); err != nil || len(r.Findings) != 1 || r.Errors() != 0 {
		t.Errorf("found %v, %v; want one advice", r, err)
	}
}

// cluster2 returns the kernel of hopper for clusters of two blocks.
func cluster2(body string) string {
	return strings.Replace(hopper(body), "{", ".reqnctapercluster 2 {", 1)
}
