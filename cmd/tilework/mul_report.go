package main

import (
	"fmt"
	"io"
	"time"

	"tilework/internal/bench"
	"tilework/internal/dispatch"
)

// mulResult is the report that mul prints.
type mulResult struct {
	M       int     `json:"m"`
	N       int     `json:"n"`
	K       int     `json:"k"`
	In      string  `json:"in"`
	Out     string  `json:"out"`
	Device  string  `json:"device"`
	Kernel  string  `json:"kernel"`
	Threads int     `json:"threads"`
	Ranks   int     `json:"ranks,omitempty"` // the number of processes, if several were requested
	Detail  string  `json:"detail"`
	Why     string  `json:"why"`
	Read    float64 `json:"read_seconds"`
	Compile float64 `json:"compile_seconds,omitempty"` // of a GPU kernel
	Compute float64 `json:"seconds"`
	Write   float64 `json:"write_seconds"`
	GFLOPS  float64 `json:"gflops"`
	File    string  `json:"file"`
	// Verified is the report of the verification, or nil without --verify.
	Verified *dispatch.Report `json:"verified,omitempty"`
}

// resultOf describes a product that took a time.
func resultOf(plan *dispatch.Plan, took time.Duration) mulResult {
	p := &plan.Problem
	return mulResult{
		M: p.M, N: p.N, K: p.K, In: p.InNames(), Out: p.Out().String(),
		Device: plan.Device().String(), Kernel: plan.Kernel(), Threads: plan.Threads(),
		Detail: plan.Detail(), Why: plan.Why(),
		Compute: took.Seconds(), GFLOPS: p.Flops() / max(took, 1).Seconds() / 1e9, // an empty product takes no time
	}
}

// report prints the result in the format of --format.
func (f *mulFlags) report(stdout, stderr io.Writer, r mulResult) error {
	if f.format == "json" {
		return writeJSON(stdout, r)
	}
	if f.verbose {
		compiled := ""
		if r.Compile > 0 {
			compiled = fmt.Sprintf("compiled the kernel in %s, ", bench.Duration(r.Compile))
		}
		fmt.Fprintf(stderr, "read in %s, %scomputed in %s, wrote in %s\n",
			bench.Duration(r.Read), compiled, bench.Duration(r.Compute), bench.Duration(r.Write))
	}
	types := r.In
	if r.Out != r.In {
		types += " → " + r.Out
	}
	where := r.Device + ", " + r.Kernel
	if r.Threads > 0 {
		where += fmt.Sprintf(", %d %s", r.Threads, plural("thread", r.Threads))
	}
	if r.Ranks > 0 {
		where += fmt.Sprintf(", %d %s", r.Ranks, plural("rank", r.Ranks))
	}
	line := fmt.Sprintf("%d×%d · %d×%d %s in %s, %.4g GFLOP/s (%s) → %s",
		r.M, r.K, r.K, r.N, types, bench.Duration(r.Compute), r.GFLOPS, where, r.File)
	if r.Verified != nil {
		line += "\nverified: " + r.Verified.String()
	}
	_, err := fmt.Fprintln(stdout, line)
	return err
}
