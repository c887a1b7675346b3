package main

import (
	"fmt"
	"strings"

	"tilework/internal/bench"
)

// meaning returns a sentence about this machine from the records of a preset: the highest float32
// rates of its CPU and GPU, and how they compare. It returns no text if nothing was timed.
func meaning(records []bench.Record) string {
	cpuBest, gpuBest := fastestOn(records, "cpu"), fastestOn(records, "gpu")
	var parts []string
	if cpuBest != nil {
		parts = append(parts, "the CPU multiplies "+rateOf(cpuBest)+againstPeers(cpuBest)+gainOverLoop(records))
	}
	switch {
	case gpuBest != nil && cpuBest != nil:
		parts = append(parts, fmt.Sprintf("the GPU multiplies %s, %.3g times the rate of the CPU, for matrices in "+
			"its memory%s", rateOf(gpuBest), gpuBest.GFLOPS/cpuBest.GFLOPS, againstPeers(gpuBest)))
	case gpuBest != nil:
		parts = append(parts, "the GPU multiplies "+rateOf(gpuBest)+againstPeers(gpuBest))
	case cpuBest != nil:
		parts = append(parts, "no GPU was timed, so kernels of GPUs can be studied on the emulator, and products "+
			"run on the CPU")
	default:
		return ""
	}
	return "On this machine, " + strings.Join(parts, "; ") + "."
}

// fastestOn returns the record of our kernel with the highest rate for float32 on a kind of device,
// or nil if there is none.
func fastestOn(records []bench.Record, kind string) (best *bench.Record) {
	for i := range records {
		r := &records[i]
		_, rated := r.Rate()
		if rated && !r.Peer && r.Precision == "" && r.In == "float32" && strings.HasPrefix(r.Device, kind) &&
			(best == nil || r.GFLOPS > best.GFLOPS) {
			best = r
		}
	}
	return best
}

// rateOf returns the rate of r with its kernel, shape and share of the peak.
func rateOf(r *bench.Record) string {
	rate, unit := r.GFLOPS, "GFLOP/s"
	if rate >= 1000 {
		rate, unit = rate/1000, "TFLOP/s"
	}
	text := fmt.Sprintf("float32 matrices at up to %s %s (%s, %v", bench.Marked(fmt.Sprintf("%.3g", rate), r.Uncertain()),
		unit, r.Subject, bench.Shape{M: r.M, N: r.N, K: r.K})
	if percent, known := r.PercentOfPeak(); known {
		text += fmt.Sprintf(", %.0f %% of its peak", percent)
	}
	return text + ")"
}

// gainOverLoop compares the fastest kernel with the textbook loop on as many threads, at the
// largest size of the loop.
func gainOverLoop(records []bench.Record) string {
	var loop, best *bench.Record
	for i := range records {
		r := &records[i]
		if r.Subject == "loop" && r.In == "float32" && r.Timed() && (loop == nil || r.Flops() > loop.Flops()) {
			loop = r
		}
	}
	if loop == nil {
		return ""
	}
	for i := range records {
		r := &records[i]
		same := r.M == loop.M && r.N == loop.N && r.K == loop.K && r.Threads == loop.Threads && r.In == loop.In
		if same && !r.Peer && r.Device == loop.Device && r.Timed() && (best == nil || r.GFLOPS > best.GFLOPS) {
			best = r
		}
	}
	if best == loop {
		return ""
	}
	gain := bench.Marked(fmt.Sprintf("%.3g", best.GFLOPS/loop.GFLOPS), loop.Uncertain() || best.Uncertain())
	return fmt.Sprintf(", and is %s times as fast as the textbook loop at %v", gain,
		bench.Shape{M: loop.M, N: loop.N, K: loop.K})
}

// againstPeers names the fastest library beside r.
func againstPeers(r *bench.Record) string {
	var fastest *bench.Ratio
	for i := range r.Versus {
		if v := &r.Versus[i]; fastest == nil || v.Speed < fastest.Speed {
			fastest = v
		}
	}
	if fastest == nil {
		return ""
	}
	return fmt.Sprintf(", %s times the speed of %s", fastest.Text(), fastest.Peer)
}
