package check

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// Severity says what a finding means.
type Severity uint8

const (
	Error  Severity = iota // the program is wrong
	Advice                 // it may be right, and is slow or suspicious
)

func (s Severity) String() string { return [...]string{Error: "error", Advice: "advice"}[s] }

// Finding is what a checker found at one place, or at a pair of them, in the whole
// launch. Block and threads are those of its first occurrence, in the order
// of the blocks.
type Finding struct {
	Checker  Checker
	Severity Severity
	Site     *emu.Site
	Block    emu.Dim3
	Thread   emu.Dim3
	// Other is the second instruction, of a race or of barriers that do not match,
	// with its block and thread; nil if there is none.
	Other       *emu.Site
	OtherBlock  emu.Dim3
	OtherThread emu.Dim3
	// Count is the number of occurrences: accesses of threads, or, between blocks, places in
	// memory; for Advice about memory, accesses of warps; for barriers, completions. The
	// instructions of one source line share a finding.
	Count int
	// Message is a sentence that says what is wrong and, where that can be guessed,
	// why.
	Message string
}

// String is the finding in a line: place, severity, checker and message.
func (f *Finding) String() string {
	s := fmt.Sprintf("%s: %v: %v: %s", f.Site, f.Severity, f.Checker, f.Message)
	if f.Count > 1 {
		s += fmt.Sprintf(" (%s times)", grouped(int64(f.Count)))
	}
	return s
}

// key is what findings are merged by.
type key struct {
	checker     Checker
	kind        uint8 // of the checker's own
	site, other *emu.Site
	name        string
}

// findings are those of one worker. Which blocks a worker gets is chance, so that the
// lowest block's words count.
type findings map[key]*ranked

type ranked struct {
	Finding
	block int
}

// add counts one occurrence. describe is called for the first one of a block, if no
// lower block has it: it fills in all but Checker, Site, Other, Block and Count.
func (fs findings) add(b *emu.BlockInfo, k key, describe func(*Finding)) {
	f := fs[k]
	if f == nil {
		f = &ranked{block: b.Linear + 1}
		fs[k] = f
	}
	f.Count++
	if b.Linear < f.block {
		f.block = b.Linear
		f.Finding = Finding{Checker: k.checker, Site: k.site, Other: k.other, Block: b.Index, OtherBlock: b.Index, Count: f.Count}
		describe(&f.Finding)
	}
}

func (fs findings) merge(k key, f *ranked) {
	old := fs[k]
	if old == nil {
		c := *f
		fs[k] = &c
		return
	}
	n := old.Count + f.Count
	if f.block < old.block {
		*old = *f
	}
	old.Count = n
}

// byLine merges the findings of instructions that were compiled from one line, as
// those of an unrolled loop are, and keeps the first one's words. It drops what only
// follows from another finding.
func (fs findings) byLine() []Finding {
	lines := map[lineKey]*Finding{}
	for k, f := range fs {
		l := lineKey{checker: k.checker, kind: k.kind, name: k.name}
		l.source, l.site = sourceLine(k.site)
		l.otherSource, l.other = sourceLine(k.other)
		old := lines[l]
		if old == nil {
			old = &f.Finding
			lines[l] = old
			continue
		}
		n := old.Count + f.Count
		if cmp.Or(cmp.Compare(index(f.Site), index(old.Site)), cmp.Compare(index(f.Other), index(old.Other))) < 0 {
			*old = f.Finding
		}
		old.Count = n
	}
	raced := map[lineKey]bool{}
	for l := range lines {
		if l.checker == Race {
			raced[lineKey{source: l.source, site: l.site}] = true
		}
	}
	merged := make([]Finding, 0, len(lines))
	for l, f := range lines {
		// Who reads before the write, for want of a barrier, may also read what nobody
		// has written yet: that is one fault, not two.
		if l.checker == Uninit && l.kind == unsetShared && raced[lineKey{source: l.source, site: l.site}] {
			continue
		}
		merged = append(merged, *f)
	}
	return merged
}

// lineKey is a key with lines of the source for instructions, where they are known.
type lineKey struct {
	checker             Checker
	kind                uint8
	source, otherSource ptx.Pos
	site, other         *emu.Site
	name                string
}

func sourceLine(s *emu.Site) (ptx.Pos, *emu.Site) {
	if s == nil || s.Source.Line == 0 {
		return ptx.Pos{}, s
	}
	return ptx.Pos{File: s.Source.File, Line: s.Source.Line}, nil
}

// Report is what the checkers have to say about a launch.
type Report struct {
	// Findings stand in the order of their instructions.
	Findings []Finding
	// Accesses are the measurements at each instruction that accesses global or
	// shared memory, in the same order.
	Accesses []AccessStats
	// Counts are the launch's counters, without the checker Count all zero.
	Counts Counts
}

// Errors is the number of findings that are errors.
func (r *Report) Errors() int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == Error {
			n++
		}
	}
	return n
}

// String is the findings, one a line.
func (r *Report) String() string {
	var b strings.Builder
	for i := range r.Findings {
		fmt.Fprintln(&b, r.Findings[i].String())
	}
	return b.String()
}

// Report gathers what was found once a launch of p is over. It takes what
// [emu.Program.Run] returned: the instructions' counts, and the error, which shows
// whether there was a deadlock; any other error is the caller's to tell.
func (c *Checks) Report(p *emu.Program, stats emu.Stats, runErr error) *Report {
	return c.report(p.Sites(), stats.Counts, runErr)
}

func (c *Checks) report(sites []*emu.Site, counts []emu.Count, runErr error) *Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := findings{}
	r := &Report{}
	unique := touched{}
	deadlock := errors.Is(runErr, emu.ErrDeadlock)
	for _, w := range c.workers {
		for k, f := range w.found {
			if k.checker != Barrier || k.kind != stuck || deadlock {
				all.merge(k, f)
			}
		}
		r.Accesses = mergeAccesses(r.Accesses, w.instructions)
		unique.merge(w.touched)
		if w.counter != nil {
			r.Counts.merge(w.counter)
		}
	}
	if c.runs[Count] {
		r.Counts.instructions(sites, counts)
		r.Counts.sort()
		r.Counts.DistinctSectors, r.Counts.SectorsRead, r.Counts.SectorsWritten = unique.count()
	}
	if c.runs[Race] && c.launch != nil {
		c.betweenBlocks(sites, all)
	}
	r.Accesses = slices.DeleteFunc(r.Accesses, func(s AccessStats) bool { return s.Site == nil })
	for k, f := range r.advice(&c.opts) {
		all[k] = f
	}
	r.Findings = all.byLine()
	slices.SortFunc(r.Findings, func(f, g Finding) int {
		return cmp.Or(cmp.Compare(index(f.Site), index(g.Site)), cmp.Compare(f.Checker, g.Checker),
			cmp.Compare(index(f.Other), index(g.Other)), strings.Compare(f.Message, g.Message))
	})
	return r
}

func index(s *emu.Site) int {
	if s == nil {
		return -1
	}
	return s.Index
}

// line names an instruction's line in prose: in the source it was compiled from, if
// that is known.
func line(s *emu.Site) string {
	if s == nil {
		return "an unknown place"
	}
	at := s.Source
	if at == (ptx.Pos{}) {
		at = s.Pos
	}
	at.Col = 0
	if at.File == "" {
		return fmt.Sprintf("line %d", at.Line)
	}
	at.File = path.Base(at.File)
	return at.String()
}

// thread is a thread of a block in three dimensions.
func thread(b *emu.BlockInfo, linear int) emu.Dim3 {
	d := b.BlockDim
	return emu.Dim3{X: linear % d.X, Y: linear / d.X % d.Y, Z: linear / (d.X * d.Y)}
}

// place names bytes in memory.
func place(space ptx.Space, addr uint64, alloc *emu.Allocation) string {
	switch {
	case space == ptx.Shared:
		return fmt.Sprintf("offset %#x of shared memory", addr)
	case alloc == nil:
		return fmt.Sprintf("%#x", addr)
	}
	return fmt.Sprintf("offset %#x of %v", addr-alloc.Base, alloc)
}

// grouped writes a number with commas: 1,024.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// amount writes a number of bytes.
func amount(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return grouped(int64(n)) + " bytes"
}
