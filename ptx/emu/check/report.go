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

// Severity is the severity of a finding.
type Severity uint8

const (
	Error  Severity = iota // the program is faulty
	Advice                 // the program may be correct, but is slow or suspicious
)

func (s Severity) String() string { return [...]string{Error: "error", Advice: "advice"}[s] }

// Finding is a fault or a measurement at one instruction, or at a pair of instructions, in the
// whole launch. Block and Thread are those of the first occurrence in the order of blocks.
type Finding struct {
	Checker  Checker
	Severity Severity
	Site     *emu.Site
	Block    emu.Dim3
	Thread   emu.Dim3
	// Other is the second instruction of a race or of a barrier mismatch, or nil.
	// OtherBlock and OtherThread belong to it.
	Other       *emu.Site
	OtherBlock  emu.Dim3
	OtherThread emu.Dim3
	// Count is the number of occurrences. It counts accesses of threads, or memory locations for
	// races between blocks, accesses of warps for Advice about memory, and completions for
	// barriers. Instructions that were compiled from the same source line share a finding.
	Count int
	// Message states the fault, with threads, addresses and lines, and the correct usage or the
	// likely fix.
	Message string
}

// String returns the finding on one line: position, severity, checker and message.
func (f *Finding) String() string {
	s := fmt.Sprintf("%s: %v: %v: %s", f.Site, f.Severity, f.Checker, f.Message)
	if f.Count > 1 {
		s += fmt.Sprintf(" (%s times)", grouped(int64(f.Count)))
	}
	return s
}

// key identifies findings to merge.
type key struct {
	checker     Checker
	kind        uint8 // constant defined by the checker
	site, other *emu.Site
	name        string // register, for Uninit
}

// findings holds the findings of one worker. Workers get blocks in a random order. For a
// deterministic report, the message of the lowest block is kept.
type findings map[key]*ranked

// ranked is a finding with the linear index of its block.
type ranked struct {
	Finding
	block int
}

// add counts one occurrence of the finding k in block b. It calls describe, to set the severity,
// threads and message, if there is no occurrence in the same or a lower block yet.
func (fs findings) add(b *emu.BlockInfo, k key, describe func(*Finding)) {
	f := fs[k]
	if f == nil {
		f = &ranked{block: b.Linear + 1}
		fs[k] = f
	}
	f.Count++
	if b.Linear < f.block {
		f.block = b.Linear
		f.Finding = Finding{Checker: k.checker, Site: k.site, Other: k.other, Block: b.Index, OtherBlock: b.Index,
			Count: f.Count}
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
	if f.Severity < old.Severity || f.Severity == old.Severity && f.block < old.block {
		*old = *f
	}
	old.Count = n
}

// byLine merges the findings of instructions that were compiled from the same source line, as in
// unrolled loops. It keeps the most severe finding, and of several the one of the first
// instruction. It drops findings that are consequences of others.
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
		if cmp.Or(cmp.Compare(f.Severity, old.Severity), cmp.Compare(index(f.Site), index(old.Site)),
			cmp.Compare(index(f.Other), index(old.Other))) < 0 {
			*old = f.Finding
		}
		old.Count = n
	}
	raced := map[lineKey]bool{}
	for l, f := range lines {
		if l.checker == Race && f.Severity == Error {
			raced[lineKey{source: l.source, site: l.site}] = true
			l.kind = toleratedRace
			raced[l] = true
		}
	}
	merged := make([]Finding, 0, len(lines))
	for l, f := range lines {
		// A thread that reads before the write, because a barrier is missing, can also
		// read unwritten memory. This is one fault, not two.
		if l.checker == Uninit && l.kind == unsetShared && raced[lineKey{source: l.source, site: l.site}] {
			continue
		}
		if raced[l] {
			continue // the same instructions have an error
		}
		merged = append(merged, *f)
	}
	return merged
}

// lineKey is a key with source lines instead of instructions, if the lines are known.
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

// Report is the result of checking a launch.
type Report struct {
	// Findings are ordered by instruction.
	Findings []Finding
	// Accesses holds the measurements of each instruction that accesses global or shared memory,
	// in the same order.
	Accesses []AccessStats
	// Counts holds the counters of the launch. They are zero without the checker Count.
	Counts Counts
}

// Errors returns the number of findings with severity Error.
func (r *Report) Errors() int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == Error {
			n++
		}
	}
	return n
}

// String returns the findings, one per line.
func (r *Report) String() string {
	var b strings.Builder
	for i := range r.Findings {
		fmt.Fprintln(&b, r.Findings[i].String())
	}
	return b.String()
}

// Report returns the results after a launch of p has ended. stats and runErr are the results of
// [emu.Program.Run]. runErr shows whether there was a deadlock; the caller has to handle all
// other errors.
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
		if w.race != nil {
			c.tolerateReads(w)
		}
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
	if c.enabled[Count] {
		r.Counts.instructions(sites, counts)
		r.Counts.sort()
		r.Counts.DistinctSectors, r.Counts.SectorsRead, r.Counts.SectorsWritten = unique.count()
	}
	if c.enabled[Race] && c.launch != nil {
		c.reportBlockRaces(sites, all)
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

// line returns the line of an instruction for use in messages: that of the source, if known, or
// of the PTX.
func line(s *emu.Site) string {
	if s == nil || s == lateSite {
		return "an unknown line"
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

// thread returns the index of a thread from its linear index in the block.
func thread(b *emu.BlockInfo, linear int) emu.Dim3 {
	d := b.BlockDim
	return emu.Dim3{X: linear % d.X, Y: linear / d.X % d.Y, Z: linear / (d.X * d.Y)}
}

// place describes a location in memory for messages.
func place(space ptx.Space, addr uint64, alloc *emu.Allocation) string {
	switch {
	case space == ptx.Shared:
		return fmt.Sprintf("offset %#x of shared memory", addr)
	case space == ptx.Tensor:
		return fmt.Sprintf("lane %d and column %d of tensor memory", addr/emu.TensorLaneBytes, addr%emu.TensorLaneBytes/4)
	case alloc == nil:
		return fmt.Sprintf("%#x", addr)
	}
	return fmt.Sprintf("offset %#x of %v", addr-alloc.Base, alloc)
}

// grouped formats a number with commas: 1,024.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// amount formats a number of bytes.
func amount(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return grouped(int64(n)) + " bytes"
}
