package check

import (
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// TestByLine merges findings of two instructions of one source line.
func TestByLine(t *testing.T) {
	site := func(index int) *emu.Site {
		return &emu.Site{Index: index, Source: ptx.Pos{File: "a.cu", Line: 7, Col: index}}
	}
	info := &emu.BlockInfo{}
	add := func(fs findings, k key, s Severity) {
		fs.add(info, k, func(f *Finding) { f.Severity = s })
	}
	for _, c := range []struct {
		name   string
		race   Severity // of a second race at the line, after a race that is advice
		uninit bool     // a read of unwritten shared memory at the line is reported
	}{
		{"advice", Advice, true},
		{"an error", Error, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, other := findings{}, site(0)
			add(fs, key{checker: Race, kind: mixedRace, site: site(1), other: other}, Advice)
			add(fs, key{checker: Race, kind: mixedRace, site: site(2), other: other}, c.race)
			add(fs, key{checker: Uninit, kind: unsetShared, site: site(2)}, Error)
			races, uninit := 0, false
			for _, f := range fs.byLine() {
				if f.Checker == Uninit {
					uninit = true
					continue
				}
				if races++; f.Severity != c.race || f.Count != 2 {
					t.Errorf("found a race with severity %v, %d times: want %v, twice", f.Severity, f.Count, c.race)
				}
			}
			if races != 1 || uninit != c.uninit {
				t.Errorf("found %d races, and a read of unwritten memory: %v, want 1 and %v", races, uninit, c.uninit)
			}
		})
	}
}
