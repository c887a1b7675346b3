package main

import (
	"encoding/json"
	"fmt"
	"io"
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

func (f *emulateFlags) print(w io.Writer, report *check.Report, stats emu.Stats, took time.Duration) error {
	if report == nil {
		report = &check.Report{}
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
			Instructions uint64           `json:"warp_instructions"`
			Flops        int64            `json:"flops"`
			Seconds      float64          `json:"seconds"`
		}{findings, stats.Instructions, report.Counts.Flops, took.Seconds()})
	}
	printFindings(w, report.Findings)
	advice := len(report.Findings) - report.Errors()
	_, err := fmt.Fprintf(w, "%d warp %s in %s: %d %s, %d advisory %s\n",
		stats.Instructions, plural("instruction", int(stats.Instructions)), seconds(took.Seconds()),
		report.Errors(), plural("error", report.Errors()), advice, plural("finding", advice))
	return err
}

// printFindings prints one line for each group of findings that differ only in the line of the
// instruction, such as those of an unrolled loop, and the numbers of the other lines.
func printFindings(w io.Writer, findings []check.Finding) {
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
		fmt.Fprintln(w, &findings[i])
		if n := len(at) - 1; n > 0 {
			fmt.Fprintf(w, "  and the same at %d other %s: %s\n", n, plural("line", n), strings.Join(at[1:], ", "))
		}
		delete(lines, group)
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
