package check

import (
	"fmt"
	"strings"
	"testing"

	"tilework/ptx/emu"
)

// Parts of the bodies of kernels for small.
const (
	below40 = "setp.lt.u32 %q0, %t, 40;\n"
	below32 = "setp.lt.u32 %q0, %t, 32;\n"
	result  = "st.global.u32 [%d1], %t;\n"
)

// schedules is the number of seeds that each kernel runs with. The findings must not depend on
// the order in which warps run.
const schedules = 8

// barrierFindings runs a kernel of small with two blocks of 64 threads, and returns a summary of
// its barrier findings, with severity and line, and the report.
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

// bodyLine is the number of the line before the body in a kernel of small.
var bodyLine = strings.Count(small(""), "\n") - 3

// TestMissedBarriers runs kernels with common mistakes. The barriers complete, because the
// threads that miss them exit.
func TestMissedBarriers(t *testing.T) {
	for _, c := range []struct{ name, body, want, says string }{
		{"if around the barrier", below40 + "@!%q0 bra on;\nbar.sync 0;\non:\n" + result, "error 3",
			"threads (0,0,0) to (39,0,0) reach this barrier, but threads (40,0,0) to (63,0,0) skip it and exit at " +
				"test.ptx:24: want all threads of the block to reach it"},
		{"if around the last barrier", result + below40 + "@!%q0 bra on;\nbar.sync 0;\non:", "error 4",
			"threads (40,0,0) to (63,0,0) skip it"},
		{"guarded barrier", below40 + "@%q0 bar.sync 0;", "error 2", "threads (40,0,0) to (63,0,0) skip it"},
		{"if around the barrier for whole warps", below32 + "@!%q0 bra on;\nbar.sync 0;\non:\n" + result, "error 3",
			"threads (0,0,0) to (31,0,0) reach this barrier, but threads (32,0,0) to (63,0,0) skip it"},
		{"one thread", "setp.eq.u32 %q0, %t, 7;\n@%q0 bar.sync 0;\n" + result, "error 2",
			"thread (7,0,0) reaches this barrier, but 63 of the threads (0,0,0) to (63,0,0) skip it"},
		{"loop with different counts in a warp", "mov.u32 %r2, 0;\nagain: bar.sync 0;\nadd.u32 %r2, %r2, 20;\n" +
			"setp.lt.u32 %q0, %r2, %t;\n@%q0 bra again;\n" + result,
			"error 2", "threads (21,0,0) to (63,0,0) reach this barrier, but threads (0,0,0) to (20,0,0) skip it"},
		{"loop with different counts per warp", "shr.u32 %r3, %t, 5;\nagain: bar.sync 0;\nsub.u32 %r3, %r3, 1;\n" +
			"setp.ge.s32 %q0, %r3, 0;\n@%q0 bra again;\n" + result,
			"error 2", "threads (32,0,0) to (63,0,0) reach this barrier, but threads (0,0,0) to (31,0,0) skip it"},
		{"loop with the test at the top", "shr.u32 %r3, %t, 5;\nagain: setp.eq.u32 %q0, %r3, 0;\n@%q0 bra on;\n" +
			"bar.sync 0;\nsub.u32 %r3, %r3, 1;\nbra again;\non:",
			"error 4", "threads (32,0,0) to (63,0,0) reach this barrier, but threads (0,0,0) to (31,0,0) skip it"},
		{"reduction", below40 + "@!%q0 bra on;\nbar.red.popc.u32 %r2, 1, %q0;\non:\n" + result, "error 3",
			"all threads of the block"},
		{"arrival", below40 + "@!%q0 bra on;\nbar.arrive 1, 96;\non:\n" + result, "error 3", "all threads of the warp"},
		{"barrier with a thread count", below40 + "@!%q0 bra on;\nbar.sync 1, 64;\non:\n" + result, "error 3",
			"all threads of the warp"},
		{"barrier.sync.aligned", below40 + "@!%q0 bra on;\nbarrier.sync.aligned 0;\non:\n" + result, "error 3", "skip it"},
		{"barrier of the cluster", below40 + "@!%q0 bra on;\nbarrier.cluster.arrive.aligned;\n" +
			"barrier.cluster.wait.aligned;\non:\n" + result,
			"error 3, error 4", "threads (32,0,0) to (39,0,0) reach this barrier, but threads (40,0,0) to (63,0,0) skip it"},
		{"early return", below40 + "@!%q0 bra end;\nst.shared.u32 [%r1], %t;\nbar.sync 0;\n" + result + "end:", "advice 4",
			"but threads (40,0,0) to (63,0,0) leave the kernel at test.ptx:19 without reaching it"},
		{"early return of partial and whole warps", "setp.ge.u32 %q0, %t, 8;\n@%q0 ret;\nbar.sync 0;\n" + result, "advice 3",
			"threads (0,0,0) to (7,0,0) reach this barrier, but threads (8,0,0) to (63,0,0) leave the kernel at test.ptx:19 " +
				"without reaching it"},
		{"early return before two barriers", below40 + "@!%q0 ret;\nbar.sync 0;\nbar.sync 0;\n" + result,
			"advice 3, advice 4", ""},
		{"barrier in an if and after it", below32 + "@!%q0 bra on;\nbar.sync 0;\non:\nbar.sync 0;\n" + result, "error 5",
			"same __syncthreads()"},
	} {
		for seed := range uint64(schedules) {
			got, all := barrierFindings(t, c.body, seed)
			if got != c.want || !strings.Contains(all, c.says) {
				t.Errorf("%s, seed %d: found %q, want %q and a report that contains %q\n%v", c.name, seed, got, c.want, c.says, all)
			}
		}
	}
}

// TestCorrectBarriers runs kernels that use barriers correctly.
func TestCorrectBarriers(t *testing.T) {
	for name, body := range map[string]string{
		"if before the barrier":       below40 + "@!%q0 bra on; st.shared.u32 [%r1], %t; on: bar.sync 0;" + result,
		"return after the barrier":    below40 + "bar.sync 0; @!%q0 ret;" + result,
		"if with a uniform condition": "setp.eq.u32 %q0, %c, 0; @!%q0 bra on; bar.sync 0; on:" + result,
		"loop with a uniform count": "mov.u32 %r2, 0; again: bar.sync 0; add.u32 %r2, %r2, 1; setp.le.u32 %q0, %r2, %c; " +
			"@%q0 bra again;" + result,
		"break in a loop": "mov.u32 %r2, 0; again: setp.gt.u32 %q0, %r2, 5; @%q0 bra on; bar.sync 0; add.u32 " +
			"%r2, %r2, 1; bra again; on:" + result,
		"barrier of one warp": below32 + "@!%q0 bra on; bar.sync 1, 32; on:" + result,
		"producer and consumer": below32 + "@!%q0 bra consume; bar.arrive 1, 64; bar.sync 2, 64; bra on; consume: " +
			"bar.sync 1, 64; bar.arrive 2, 64; on:" + result,
		"producer that exits early": "bar.sync 0;" +
			below32 + "@%q0 bra produce; bar.sync 1, 64; bar.sync 3, 32; ret; produce: bar.arrive 1, 64;",
		"bar.warp.sync in an if": below40 + "@!%q0 bra on; activemask.b32 %r2; bar.warp.sync %r2; on:" + result,
		"barrier.sync in an if":  below40 + "@!%q0 bra on; barrier.sync 0; on:" + result,
		"barrier.sync at two lines": below40 + "@!%q0 bra other; barrier.sync 0; bra on; other: barrier.sync 0; on:" +
			result,
		"cluster barrier, not aligned": below40 + "@!%q0 bra on; barrier.cluster.arrive; barrier.cluster.wait; on:" + result,
		"cluster barrier": "barrier.cluster.arrive.aligned;" + below40 + "@!%q0 bra on; " +
			result + "on: barrier.cluster.wait.aligned;",
	} {
		for seed := range uint64(schedules) {
			if _, all := barrierFindings(t, body, seed); all != "" {
				t.Errorf("%s, seed %d: found\n%s", name, seed, all)
			}
		}
	}
}

// TestMemberMasks runs instructions with a full member mask that only some lanes execute. It is an
// error if the others skip the instruction, and none if they returned before it.
func TestMemberMasks(t *testing.T) {
	const below20 = "setp.lt.u32 %q0, %t, 20; "
	shuffle := "shfl.sync.idx.b32 %r3, %t, 0, 31, -1; "
	for _, c := range []struct {
		name, body string
		dim        int
		says       string
	}{
		{"all lanes", shuffle, 32, ""},
		{"if", below20 + "@!%q0 bra on; " + shuffle + "on: " + result, 32, "threads (0,0,0) to (19,0,0) execute this " +
			"instruction with the member mask 0xffffffff, but threads (20,0,0) to (31,0,0) skip it and exit"},
		{"guard", below20 + "@%q0 " + shuffle + result, 32, "skip it and exit"},
		{"bar.warp.sync", below20 + "@!%q0 bra on; bar.warp.sync -1; on: " + result, 32, "skip it and exit"},
		{"uneven loop", "mov.u32 %r4, %t; again: " + shuffle + "add.u32 %r4, %r4, 8; setp.lt.u32 %q0, %r4, 32; " +
			"@%q0 bra again; " + result, 32, "skip it and exit"},
		{"early return", below20 + "@!%q0 ret; " + shuffle + result, 32, ""},
		{"mask of the lanes", below20 + "@!%q0 bra on; shfl.sync.idx.b32 %r3, %t, 0, 31, 0xfffff; on: " + result, 32, ""},
		{"small block", shuffle, 20, ""},
	} {
		p := &program{
			text: small(c.body), grid: emu.Dim3{X: 1, Y: 1, Z: 1}, block: emu.Dim3{X: c.dim, Y: 1, Z: 1},
			args: []any{make([]int32, 256)}, options: Options{Only: []Checker{Barrier}},
		}
		for p.seed = range uint64(schedules) {
			r, _, err := p.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if (len(r.Findings) > 0) != (c.says != "") || !strings.Contains(r.String(), c.says) {
				t.Errorf("%s, seed %d: found %q, want %q", c.name, p.seed, r, c.says)
			}
		}
	}
}

// TestPartialWarp checks that lanes of the last warp without a thread do not count as missing.
func TestPartialWarp(t *testing.T) {
	p := &program{
		text: small("bar.sync 0;" + result), grid: emu.Dim3{X: 1, Y: 1, Z: 1}, block: emu.Dim3{X: 5, Y: 9, Z: 1},
		args: []any{make([]int32, 256)}, options: Options{Only: []Checker{Barrier}},
	}
	if r, _, err := p.run(t); err != nil || len(r.Findings) > 0 {
		t.Errorf("found %v, error %v, want neither", r, err)
	}
}
