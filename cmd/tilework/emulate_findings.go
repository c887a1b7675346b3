package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"tilework/internal/bench"
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
	return slices.ContainsFunc([]error{emu.ErrAccess, emu.ErrDeadlock, emu.ErrAssert, emu.ErrTrap, emu.ErrMisuse},
		func(kind error) bool { return errors.Is(err, kind) })
}

// emulateResult is the result of a launch. Its fields are those of the JSON output.
type emulateResult struct {
	Launch       string           `json:"launch,omitempty"` // its place in the script
	Findings     []emulateFinding `json:"findings"`
	Failure      string           `json:"failure,omitempty"` // why the launch ended early
	Errors       int              `json:"errors"`
	Instructions uint64           `json:"warp_instructions"`
	Flops        int64            `json:"flops"`
	Seconds      float64          `json:"seconds"`
	report       *check.Report
}

// newEmulateResult returns the result of a launch. The error of the launch counts as an error if it
// is a fault of the kernel.
func newEmulateResult(report *check.Report, stats emu.Stats, took time.Duration, runErr error) emulateResult {
	r := emulateResult{
		Findings: []emulateFinding{}, Errors: report.Errors(), Instructions: stats.Instructions,
		Flops: report.Counts.Flops, Seconds: took.Seconds(), report: report,
	}
	if failedCheck(runErr) {
		r.Errors++
		r.Failure = runErr.Error()
	}
	for _, x := range report.Findings {
		r.Findings = append(r.Findings, emulateFinding{
			Checker: x.Checker.String(), Severity: x.Severity.String(),
			Place: x.Site.Pos.String(), Source: x.Site.Source.String(), Opcode: x.Site.Opcode,
			Block: x.Block.String(), Thread: x.Thread.String(), Count: x.Count, Message: x.Message,
		})
	}
	return r
}

// printJSON prints the result of the launch of the flags, or of all launches of a script.
func (f *emulateFlags) printJSON(w io.Writer, results []emulateResult) error {
	if f.script == "" {
		return writeJSON(w, results[0])
	}
	return writeJSON(w, struct {
		Launches []emulateResult `json:"launches"`
	}{results})
}

// print prints the findings and a summary.
func (r *emulateResult) print(w io.Writer) error {
	printFindings(w, r.report.Findings)
	if r.Launch != "" {
		fmt.Fprintf(w, "%s: ", r.Launch)
	}
	advice := len(r.report.Findings) - r.report.Errors()
	_, err := fmt.Fprintf(w, "%d warp %s in %s: %d %s, %d advisory %s\n",
		r.Instructions, plural("instruction", int(r.Instructions)), bench.Duration(r.Seconds),
		r.Errors, plural("error", r.Errors), advice, plural("finding", advice))
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
