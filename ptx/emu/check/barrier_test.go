package check

import (
	"fmt"
	"strings"
	"testing"

	"tilework/ptx/emu"
)

// The parts of kernels of small. Each sum that a thread makes depends on its neighbour's word.
const (
	below40 = "setp.lt.u32 %q0, %t, 40;\n"
	below32 = "setp.lt.u32 %q0, %t, 32;\n"
	result  = "st.global.u32 [%d1], %t;\n"
)

// schedules is the number of seeds each kernel runs with: the findings must not depend on the
// order in which warps run.
const schedules = 8

// barrierFindings runs a kernel of small with 64 threads, in clusters of the given number of
// blocks, and returns its findings about barriers, in short: severity and line.
func barrierFindings(t *testing.T, body string, seed uint64) (short, long string) {
	t.Helper()
	p := &program{
		text: small(body), grid: emu.Dim3{X: 2, Y: 1, Z: 1}, block: emu.Dim3{X: 64, Y: 1, Z: 1}, seed: seed,
		args: []any{make([]int32, 256)}, options: Options{Only: []Checker{Barrier}}, instructions: 1 << 20,
	}
	if strings.Contains(body, "cluster") {
		p.text = strings.Replace(p.text, "sm_80", "sm_90", 1)
	}
	r, _, err := p.run(t)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var list []string
	for _, f := range r.Findings {
		list = append(list, fmt.Sprintf("%v %d", f.Severity, f.Site.Pos.Line-bodyLine))
	}
	return strings.Join(list, ", "), r.String()
}

// bodyLine is the line of a kernel of small before its body.
var bodyLine = strings.Count(small(""), "\n") - 3

// TestBarriersThatThreadsMiss plants the mistakes with barriers that students make. In each,
// the barrier completes, as those who miss it exit.
func TestBarriersThatThreadsMiss(t *testing.T) {
	for _, c := range []struct{ name, body, want, says string }{
		{"if around the barrier", below40 + "@!%q0 bra on;\nbar.sync 0;\non:\n" + result, "error 3",
			"threads (0,0,0) to (39,0,0) reach this barrier, but threads (40,0,0) to (63,0,0) go past it and exit at test.ptx:24: all threads of the block must reach it"},
		{"if around the last barrier", result + below40 + "@!%q0 bra on;\nbar.sync 0;\non:", "error 4", "threads (40,0,0) to (63,0,0) go past it"},
		{"guarded barrier", below40 + "@%q0 bar.sync 0;", "error 2", "threads (40,0,0) to (63,0,0) go past it"},
		{"if around the barrier for whole warps", below32 + "@!%q0 bra on;\nbar.sync 0;\non:\n" + result, "error 3",
			"threads (0,0,0) to (31,0,0) reach this barrier, but threads (32,0,0) to (63,0,0) go past it"},
		{"one thread", "setp.eq.u32 %q0, %t, 7;\n@%q0 bar.sync 0;\n" + result, "error 2",
			"thread (7,0,0) reaches this barrier, but 63 of the threads (0,0,0) to (63,0,0) go past it"},
		{"loop that lanes leave apart", "mov.u32 %r2, 0;\nagain: bar.sync 0;\nadd.u32 %r2, %r2, 20;\nsetp.lt.u32 %q0, %r2, %t;\n@%q0 bra again;\n" + result,
			"error 2", "threads (21,0,0) to (63,0,0) reach this barrier, but threads (0,0,0) to (20,0,0) go past it"},
		{"loop that warps leave apart", "shr.u32 %r3, %t, 5;\nagain: bar.sync 0;\nsub.u32 %r3, %r3, 1;\nsetp.ge.s32 %q0, %r3, 0;\n@%q0 bra again;\n" + result,
			"error 2", "threads (32,0,0) to (63,0,0) reach this barrier, but threads (0,0,0) to (31,0,0) go past it"},
		{"loop with its test on top", "shr.u32 %r3, %t, 5;\nagain: setp.eq.u32 %q0, %r3, 0;\n@%q0 bra on;\nbar.sync 0;\nsub.u32 %r3, %r3, 1;\nbra again;\non:",
			"error 4", "threads (32,0,0) to (63,0,0) reach this barrier, but threads (0,0,0) to (31,0,0) go past it"},
		{"reduction", below40 + "@!%q0 bra on;\nbar.red.popc.u32 %r2, 1, %q0;\non:\n" + result, "error 3", "all threads of the block"},
		{"arrival", below40 + "@!%q0 bra on;\nbar.arrive 1, 96;\non:\n" + result, "error 3", "all threads of the warp"},
		{"barrier with a thread count", below40 + "@!%q0 bra on;\nbar.sync 1, 64;\non:\n" + result, "error 3", "all threads of the warp"},
		{"barrier.sync.aligned", below40 + "@!%q0 bra on;\nbarrier.sync.aligned 0;\non:\n" + result, "error 3", "go past it"},
		{"barrier of the cluster", below40 + "@!%q0 bra on;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\non:\n" + result,
			"error 3, error 4", "threads (32,0,0) to (39,0,0) reach this barrier, but threads (40,0,0) to (63,0,0) go past it"},
		{"early return", below40 + "@!%q0 bra end;\nst.shared.u32 [%r1], %t;\nbar.sync 0;\n" + result + "end:", "advice 4",
			"but threads (40,0,0) to (63,0,0) leave the kernel at test.ptx:19 without it"},
		{"early return of parts and whole warps", "setp.ge.u32 %q0, %t, 8;\n@%q0 ret;\nbar.sync 0;\n" + result, "advice 3",
			"threads (0,0,0) to (7,0,0) reach this barrier, but threads (8,0,0) to (63,0,0) leave the kernel at test.ptx:19 without it"},
		{"early return before two barriers", below40 + "@!%q0 ret;\nbar.sync 0;\nbar.sync 0;\n" + result, "advice 3, advice 4", ""},
		{"if, and a barrier after it", below32 + "@!%q0 bra on;\nbar.sync 0;\non:\nbar.sync 0;\n" + result, "error 5", "same __syncthreads()"},
	} {
		for seed := range uint64(schedules) {
			got, all := barrierFindings(t, c.body, seed)
			if got != c.want || !strings.Contains(all, c.says) {
				t.Errorf("%s, seed %d: found %q, want %q that says %q\n%v", c.name, seed, got, c.want, c.says, all)
			}
		}
	}
}

// TestBarriersThatNobodyMisses runs kernels whose threads meet as they should.
func TestBarriersThatNobodyMisses(t *testing.T) {
	for name, body := range map[string]string{
		"if before the barrier":     below40 + "@!%q0 bra on; st.shared.u32 [%r1], %t; on: bar.sync 0;" + result,
		"return after the barrier":  below40 + "bar.sync 0; @!%q0 ret;" + result,
		"if that a block takes":     "setp.eq.u32 %q0, %c, 0; @!%q0 bra on; bar.sync 0; on:" + result,
		"loop that a block takes":   "mov.u32 %r2, 0; again: bar.sync 0; add.u32 %r2, %r2, 1; setp.le.u32 %q0, %r2, %c; @%q0 bra again;" + result,
		"break in a loop":           "mov.u32 %r2, 0; again: setp.gt.u32 %q0, %r2, 5; @%q0 bra on; bar.sync 0; add.u32 %r2, %r2, 1; bra again; on:" + result,
		"some of the warps":         below32 + "@!%q0 bra on; bar.sync 1, 32; on:" + result,
		"roles":                     below32 + "@!%q0 bra consume; bar.arrive 1, 64; bar.sync 2, 64; bra on; consume: bar.sync 1, 64; bar.arrive 2, 64; on:" + result,
		"a role that ends early":    "bar.sync 0;" + below32 + "@%q0 bra produce; bar.sync 1, 64; bar.sync 3, 32; ret; produce: bar.arrive 1, 64;",
		"lanes of a warp":           below40 + "@!%q0 bra on; activemask.b32 %r2; bar.warp.sync %r2; on:" + result,
		"barrier.sync in an if":     below40 + "@!%q0 bra on; barrier.sync 0; on:" + result,
		"barrier.sync at two lines": below40 + "@!%q0 bra other; barrier.sync 0; bra on; other: barrier.sync 0; on:" + result,
		"cluster, not aligned":      below40 + "@!%q0 bra on; barrier.cluster.arrive; barrier.cluster.wait; on:" + result,
		"cluster":                   "barrier.cluster.arrive.aligned;" + below40 + "@!%q0 bra on; " + result + "on: barrier.cluster.wait.aligned;",
	} {
		for seed := range uint64(schedules) {
			if _, all := barrierFindings(t, body, seed); all != "" {
				t.Errorf("%s, seed %d: found\n%s", name, seed, all)
			}
		}
	}
}

// TestBarrierOfPartialBlock checks that the lanes of the last warp that are no threads are
// not missed.
func TestBarrierOfPartialBlock(t *testing.T) {
	p := &program{
		text: small("bar.sync 0;" + result), grid: emu.Dim3{X: 1, Y: 1, Z: 1}, block: emu.Dim3{X: 5, Y: 9, Z: 1},
		args: []any{make([]int32, 256)}, options: Options{Only: []Checker{Barrier}},
	}
	if r, _, err := p.run(t); err != nil || len(r.Findings) > 0 {
		t.Errorf("found %v, error %v", r, err)
	}
}
