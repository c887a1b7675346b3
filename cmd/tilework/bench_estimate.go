package main

import (
	"time"

	"tilework/internal/gemm"
)

// estimator estimates the time that the remaining products of a study take. It assumes that a
// product takes as long as the last measured product of its job, or proportionally longer if it has
// more operations.
type estimator struct {
	left []map[int]float64 // by job and product: the operations of the remaining products
	last []pace            // by job: the last measured product
	all  pace              // all measured products of the study
}

// pace is the time that some products took, and their number of operations.
type pace struct {
	seconds, work float64
	products      int
}

func newEstimator(jobs []*job) *estimator {
	f := &estimator{last: make([]pace, len(jobs))}
	for _, j := range jobs {
		left := map[int]float64{}
		for k := range j.problems {
			left[k] = work(&j.problems[k])
		}
		f.left = append(f.left, left)
	}
	return f
}

func work(p *gemm.Problem) float64 { return float64(p.M) * float64(p.N) * float64(p.K) }

// skip removes product k of job i from the remaining ones.
func (f *estimator) skip(i, k int) { delete(f.left[i], k) }

// done records the time that product k of job i took.
func (f *estimator) done(i, k int, took time.Duration) {
	f.last[i] = pace{took.Seconds(), f.left[i][k], 1}
	f.all = pace{f.all.seconds + took.Seconds(), 0, f.all.products + 1}
	f.skip(i, k)
}

// remaining returns the estimated time of all remaining products, or 0 before the first product is
// done. Products of a job without a measurement count with the average of the study.
func (f *estimator) remaining() time.Duration {
	seconds := 0.0
	for i, left := range f.left {
		for _, work := range left {
			switch last := f.last[i]; {
			case last.products > 0:
				seconds += last.seconds * max(1, work/last.work)
			case f.all.products > 0:
				seconds += f.all.seconds / float64(f.all.products)
			}
		}
	}
	return time.Duration(seconds * float64(time.Second))
}
