package emu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestMissingThreads checks the missing threads in barrier events: their lanes, the instruction at
// which they wait or exited, and whether they exited after the barrier. The result must not depend
// on the schedule.
func TestMissingThreads(t *testing.T) {
	const (
		below40 = "setp.lt.u32 %q, %t0, 40; "
		store   = "st.global.u32 [%buf], 1; "
	)
	for _, c := range []struct{ name, body, want string }{
		{"all arrive", below40 + "@%q bra ON; " + store + "ON: bar.sync 0;", ""},
		{"branch around the barrier", below40 + "@!%q bra ON; bar.sync 0;\nON: " + store, "warp 1 ffffff00 skipped at ret"},
		{"only the barrier skipped", below40 + "@!%q bra ON; bar.sync 0;\nON:", "warp 1 ffffff00 skipped at bra"},
		{"guarded barrier", below40 + "@%q bar.sync 0;", "warp 1 ffffff00 skipped at ret"},
		{"barrier in a function", below40 + "@!%q bra ON; call wait, (); ON: " + store, "warp 1 ffffff00 skipped at ret"},
		{"early return", below40 + "@!%q ret; bar.sync 0; " + store, "warp 1 ffffff00 returned at ret"},
		{"branch to the end", below40 + "@!%q bra END; bar.sync 0; " + store + "END:", "warp 1 ffffff00 returned at bra"},
		{"work, then the end", below40 + "@%q bra ON; " + store + "bra END; ON: bar.sync 0; " + store + "END:",
			"warp 1 ffffff00 returned at bra"},
		{"exit in a function", below40 + "@%q bra ON; call leave, (); ON: bar.sync 0; " + store,
			"warp 1 ffffff00 returned at call"},
		{"whole warp branches around the barrier", "setp.lt.u32 %q, %t0, 32; @!%q bra ON; bar.sync 0;\nON: " + store,
			"warp 1 ffffffff skipped at ret"},
		{"early return of a whole warp", "setp.lt.u32 %q, %t0, 32; @!%q ret; bar.sync 0; " + store,
			"warp 1 ffffffff returned at ret"},
		{"partial and whole warps", "setp.lt.u32 %q, %t0, 8; @!%q ret; bar.sync 0; " + store,
			"warp 0 ffffff00 returned at ret, warp 1 ffffffff returned at ret"},
		{"loop that lanes leave at different times",
			"mov.u32 %v, 0; L: bar.sync 0; add.u32 %v, %v, 31; setp.le.u32 %q, %v, %t0; @%q bra L;",
			"warp 0 7fffffff skipped at bra, warp 0 80000000 skipped at bra, warp 1 3fffffff skipped at bra"},
		{"loop with the condition first", "mov.u32 %v, 0; L: setp.gt.u32 %q, %v, %t0; @%q bra END; bar.sync 0; add.u32 %v, " +
			"%v, 32; bra L; END:",
			"warp 0 ffffffff skipped at bra"},
		{"bar.arrive of a partial warp", below40 + "@!%q bra ON; bar.arrive 1, 96;\nON: " + store,
			"warp 1 ffffff00 skipped at ret"},
		{"reduction of a partial warp", below40 + "@!%q bra ON; bar.red.popc.u32 %v, 1, %q;\nON: " + store,
			"warp 1 ffffff00 skipped at ret"},
		{"barrier.sync.aligned", below40 + "@!%q bra ON; barrier.sync.aligned 0;\nON: " + store,
			"warp 1 ffffff00 skipped at ret"},
		{"aligned cluster barrier", below40 + "@!%q bra ON; barrier.cluster.arrive.aligned; " +
			"barrier.cluster.wait.aligned;\nON: " + store,
			"warp 1 ffffff00 skipped at ret"},
		{"two barrier instructions", below40 + "@%q bra LOW; bar.sync 0; bra ON; LOW: bar.sync 0; ON:",
			"warp 1 000000ff waiting at bar.sync, warp 1 ffffff00 waiting at bar.sync"},
		{"unaligned barrier", below40 + "@!%q bra ON; barrier.sync 0;\nON: " + store, ""},
		{"unaligned cluster barrier", below40 + "@!%q bra ON; barrier.cluster.arrive; barrier.cluster.wait;\nON: " + store,
			""},
		{"barrier of some warps", "setp.lt.u32 %q, %t0, 32; @!%q bra ON; bar.sync 1, 32;\nON: " + store, ""},
	} {
		functions := ".func wait() { bar.sync 0; ret; }\n.func leave() { exit; }\n"
		for seed := range uint64(8) {
			seen := map[string]bool{}
			note := func(missing []Missing) {
				for _, m := range missing {
					state := "waiting"
					if m.Exited {
						state = map[bool]string{true: "skipped", false: "returned"}[m.Skipped]
					}
					seen[fmt.Sprintf("warp %d %08x %s at %s", m.Warp, m.Mask, state, m.Site.Opcode)] = true
				}
			}
			watch := observer(func() *Hooks {
				return &Hooks{Barrier: func(b *Barrier) { note(b.Missing) }, ClusterSync: func(c *ClusterSync) { note(c.Missing) }}
			})
			text := strings.Replace(kernelSource(".reg .pred %q; .reg .b32 %v; "+c.body), ".visible .entry",
				functions+".visible .entry", 1)
			if _, _, err := runModule(t, text, make([]uint32, 1),
				Launch{Block: Dim3{64, 1, 1}, Seed: seed, Observers: []Observer{watch}}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(seen)), ", "); got != c.want {
				t.Errorf("%s, seed %d: missing %q, want %q", c.name, seed, got, c.want)
			}
		}
	}
}
