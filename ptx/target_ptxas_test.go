package ptx

import (
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestTargetsAgainstPtxas compares the architectures that support a sample of each row of the table
// with those of the assembler. Without TILEWORK_FULL, the seed selects one architecture in three.
func TestTargetsAgainstPtxas(t *testing.T) {
	t.Parallel()
	path, seed := findPtxas(t), testrand.Seed(t)
	var bound []*Instr
	for _, instrs := range samples(t, 1) {
		for _, i := range instrs {
			if !i.Has("param") { // the registers of the samples are no parameters
				bound = append(bound, i)
			}
		}
	}
	for _, row := range targets {
		if !testkit.Full() && !testrand.OneIn(3, seed, row.Target) {
			continue
		}
		if archOf(t, path, row.Target) != row.Target { // too old for the assembler
			continue
		}
		s, need := newSampler(1), Need{Version: 93, Target: row.Target}
		var instrs []*Instr
		for _, i := range bound {
			instrs = append(instrs, s.instr(i.Form, i.slots))
		}
		rejected := s.assemble(t, path, need, append(instrs, noCode))
		for k, i := range instrs {
			if ours, theirs := s.accepts(need, i), rejected[k] == ""; ours != theirs {
				t.Errorf("%v accepts it: %v, the assembler: %v %s\n\t%v\n\tform %s", row.Target, ours, theirs, rejected[k], i,
					bound[k].Form.Text)
			}
		}
	}
}
