package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// emulateFinding is a finding in the JSON output.
type emulateFinding struct {
	Checker  string `json:"checker"`
	Severity string `json:"severity"`
	Place    string `json:"place"`
	Source   string `json:"source,omitempty"`
	Opcode   string `json:"opcode"`
	Block    string `json:"block"`
	Thread   string `json:"thread"`
	Count    int    `json:"count"`
	Message  string `json:"message"`
}

// failedCheck reports whether the error of a launch is a fault of the kernel.
func failedCheck(err error) bool {
	return slices.ContainsFunc([]error{emu.ErrAccess, emu.ErrDeadlock, emu.ErrAssert, emu.ErrMisuse},
		func(kind error) bool { return errors.Is(err, kind) })
}

// print prints the findings and a summary. The error of the launch counts as an error if it is a
// fault of the kernel.
func (f *emulateFlags) print(
	w io.Writer, report *check.Report, stats emu.Stats, took time.Duration, runErr error,
) error {
	if report == nil {
		report = &check.Report{}
	}
	found := report.Errors()
	failure := ""
	if failedCheck(runErr) {
		found++
		failure = runErr.Error()
	}
	if f.format == "json" {
		findings := []emulateFinding{}
		for _, x := range report.Findings {
			findings = append(findings, emulateFinding{
				Checker: x.Checker.String(), Severity: x.Severity.String(),
				Place: x.Site.Pos.String(), Source: x.Site.Source.String(), Opcode: x.Site.Opcode,
				Block: x.Block.String(), Thread: x.Thread.String(), Count: x.Count, Message: x.Message,
			})
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Findings     []emulateFinding `json:"findings"`
			Failure      string           `json:"failure,omitempty"` // why the launch ended early
			Errors       int              `json:"errors"`
			Instructions uint64           `json:"warp_instructions"`
			Flops        int64            `json:"flops"`
			Seconds      float64          `json:"seconds"`
		}{findings, failure, found, stats.Instructions, report.Counts.Flops, took.Seconds()})
	}
	printFindings(w, report.Findings)
	advice := len(report.Findings) - report.Errors()
	_, err := fmt.Fprintf(w, "%d warp %s in %s: %d %s, %d advisory %s\n",
		stats.Instructions, plural("instruction", int(stats.Instructions)), seconds(took.Seconds()),
		found, plural("error", found), advice, plural("finding", advice))
	return err
}

// maxPrinted is the number of groups of findings that are printed for each cause.
const maxPrinted = 5

// findingCause holds the properties that findings of one cause usually share. The findings of a
// race share the line of the store.
type findingCause struct {
	checker  check.Checker
	severity check.Severity
	opcode   string
	write    int
}

// printFindings prints one line for each group of findings that differ only in the line of the
// instruction, such as those of an unrolled loop, and the numbers of the other lines. It prints at
// most maxPrinted groups for each cause, and the number of the others.
func printFindings(w io.Writer, findings []check.Finding) {
	printed := map[findingCause]int{}
	var causes []findingCause
	lines := map[findingGroup][]string{}
	for i := range findings {
		group, line := groupOf(&findings[i])
		lines[group] = append(lines[group], strconv.Itoa(line))
	}
	for i := range findings {
		group, _ := groupOf(&findings[i])
		at := lines[group]
		if len(at) == 0 {
			continue // the group is printed already
		}
		cause := findingCause{group.checker, findings[i].Severity, group.opcode, group.write}
		if printed[cause]++; printed[cause] == 1 {
			causes = append(causes, cause)
		}
		if printed[cause] > maxPrinted {
			delete(lines, group)
			continue
		}
		fmt.Fprintln(w, &findings[i])
		if n := len(at) - 1; n > 0 {
			fmt.Fprintf(w, "  and the same at %d other %s: %s\n", n, plural("line", n), strings.Join(at[1:], ", "))
		}
		delete(lines, group)
	}
	for _, c := range causes {
		if more := printed[c] - maxPrinted; more > 0 {
			fmt.Fprintf(w, "%d more %s like these: %v: %v at %s (--format json lists all)\n", more,
				plural("finding", more), c.severity, c.checker, c.opcode)
		}
	}
}

// findingGroup holds the properties that all findings of a group share.
type findingGroup struct {
	checker check.Checker
	opcode  string
	message string
	write   int // for a race: the line of the store
}

// groupOf returns the group of a finding, and the line that is its own. For a race this is the line
// of the load: if a barrier is missing, one store often races with a whole unrolled loop of loads.
func groupOf(x *check.Finding) (findingGroup, int) {
	if x.Checker != check.Race || x.Other == nil {
		return findingGroup{checker: x.Checker, opcode: x.Site.Opcode, message: x.Message}, x.Site.Pos.Line
	}
	load, store := x.Site, x.Other
	if strings.HasPrefix(load.Opcode, "st.") {
		load, store = store, load
	}
	return findingGroup{checker: x.Checker, opcode: load.Opcode, write: store.Pos.Line}, load.Pos.Line
}
