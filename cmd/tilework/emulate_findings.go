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

// emulateFinding is a finding as JSON has it.
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
	_, err := fmt.Fprintf(w, "%d instructions of warps in %s: %d %s, %d of advice\n", stats.Instructions, seconds(took.Seconds()),
		report.Errors(), plural("error", report.Errors()), len(report.Findings)-report.Errors())
	return err
}

// printFindings prints each finding on a line, and those that say the same of other
// instructions, as an unrolled loop has them, together.
func printFindings(w io.Writer, findings []check.Finding) {
	lines := map[saying][]string{}
	for i := range findings {
		what, line := said(&findings[i])
		lines[what] = append(lines[what], strconv.Itoa(line))
	}
	for i := range findings {
		what, _ := said(&findings[i])
		at := lines[what]
		if len(at) == 0 {
			continue // said before
		}
		fmt.Fprintln(w, &findings[i])
		if n := len(at) - 1; n > 0 {
			fmt.Fprintf(w, "  and the same at %d more: %s %s\n", n, plural("line", n), strings.Join(at[1:], ", "))
		}
		delete(lines, what)
	}
}

// saying is what findings have in common that are told together.
type saying struct {
	checker check.Checker
	opcode  string
	message string
	write   int // the line of the store that loads race with
}

// said is what a finding says, and the line of which it says that: of a race the load's, as
// what one store lacks a barrier to is often a whole unrolled loop of loads.
func said(x *check.Finding) (saying, int) {
	if x.Checker != check.Race || x.Other == nil {
		return saying{checker: x.Checker, opcode: x.Site.Opcode, message: x.Message}, x.Site.Pos.Line
	}
	load, store := x.Site, x.Other
	if strings.HasPrefix(load.Opcode, "st.") {
		load, store = store, load
	}
	return saying{checker: x.Checker, opcode: load.Opcode, write: store.Pos.Line}, load.Pos.Line
}
