//go:build unix

package asm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkPacked measures the packed kernels on whole tiles, with one panel of B and a block of A
// in the caches as in the blocked algorithm. It alternates with the register-only loop: peak is the
// GFLOP/s of that loop and %peak the ratio of the two.
func BenchmarkPacked(b *testing.B) {
	benchmarkAll(b, F32, packedRun)
	benchmarkAll(b, F64, packedRun)
}

// BenchmarkDirect measures the direct kernels with the most rows, on row-major matrices with one
// tile of columns.
func BenchmarkDirect(b *testing.B) {
	benchmarkAll(b, F32, directRun)
	benchmarkAll(b, F64, directRun)
}

func benchmarkAll[T float32 | float64](b *testing.B, all []*Kernels[T],
	prepare func(ks *Kernels[T], k int) (run func(), flops int)) {
	for _, ks := range all {
		for _, k := range []int{64, 128, 256, 384} {
			b.Run(fmt.Sprintf("%T/%s/k=%d", *new(T), ks.ISA.Name, k), func(b *testing.B) {
				require(b, ks.ISA)
				run, flops := prepare(ks, k)
				besidePeak(b, ks, run, flops)
			})
		}
	}
}

const blockRows = 192

func packedRun[T float32 | float64](ks *Kernels[T], k int) (run func(), flops int) {
	panels := blockRows / ks.MR
	a, b, c := benchData[T](blockRows*k), benchData[T](ks.NR*k), benchData[T](blockRows*ks.NR)
	return func() {
		for i := range panels {
			ks.Packed(k, &a[i*ks.MR*k], &b[0], &c[i*ks.MR*ks.NR], &b[0], ks.NR, ks.MR, ks.NR, 1, 1)
		}
	}, 2 * panels * ks.MR * ks.NR * k
}

func directRun[T float32 | float64](ks *Kernels[T], k int) (run func(), flops int) {
	rows := len(ks.Direct)
	panels := blockRows / rows
	a, b, c := benchData[T](blockRows*k), benchData[T](ks.NR*k), benchData[T](blockRows*ks.NR)
	return func() {
		for i := range panels {
			ks.Direct[rows-1](1, k, &a[i*rows*k], k, 1, &b[0], ks.NR, &c[i*rows*ks.NR], &b[0], 0, ks.NR, ks.NR, 1, 1)
		}
	}, 2 * panels * rows * ks.NR * k
}

// benchData returns n random elements. Memory that was never written would all map to one page of
// zeros in L1.
func benchData[T float32 | float64](n int) []T {
	s := make([]T, n)
	fill(s, rand.New(rand.NewPCG(1, 1)), func(r *rand.Rand) T { return T(r.Float64() - 0.5) })
	return s
}

// besidePeak alternates run with the peak loop and reports medians, which other load on the machine
// affects less than means.
func besidePeak[T float32 | float64](b *testing.B, ks *Kernels[T], run func(), flops int) {
	var rates, peaks []float64
	for b.Loop() {
		start := time.Now()
		run()
		middle := time.Now()
		ks.Peak(flops / ks.PeakFlops)
		end := time.Now()
		rates = append(rates, float64(flops)/float64(middle.Sub(start).Nanoseconds()))
		peaks = append(peaks, float64(flops/ks.PeakFlops*ks.PeakFlops)/float64(end.Sub(middle).Nanoseconds()))
	}
	slices.Sort(rates)
	slices.Sort(peaks)
	rate, peak := rates[len(rates)/2], peaks[len(peaks)/2]
	b.ReportMetric(0, "ns/op") // the time of both together has no meaning
	b.ReportMetric(rate, "GFLOP/s")
	b.ReportMetric(peak, "peak")
	b.ReportMetric(100*rate/peak, "%peak")
}
