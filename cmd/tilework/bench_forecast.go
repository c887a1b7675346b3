package main

import (
	"time"

	"tilework/internal/gemm"
)

// forecast says how long the products that are left will take, by those that are done: as
// long as the latest of their job, and where they are larger, longer by as much.
type forecast struct {
	left []map[int]float64 // of each job, the operations of each product that is left
	took []pace            // of each job, the latest
	all  pace              // of the study
}

// pace is how long so many operations took.
type pace struct {
	seconds, work float64
	n             int // products
}

func newForecast(jobs []*job) *forecast {
	f := &forecast{took: make([]pace, len(jobs))}
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

// skip leaves out product k of job i.
func (f *forecast) skip(i, k int) { delete(f.left[i], k) }

// done takes note of how long product k of job i took.
func (f *forecast) done(i, k int, took time.Duration) {
	f.took[i] = pace{took.Seconds(), f.left[i][k], 1}
	f.all = pace{f.all.seconds + took.Seconds(), 0, f.all.n + 1}
	f.skip(i, k)
}

// time is that of all products that are left; 0 while nothing is known.
func (f *forecast) time() time.Duration {
	seconds := 0.0
	for i, left := range f.left {
		for _, work := range left {
			switch took := f.took[i]; {
			case took.n > 0:
				seconds += took.seconds * max(1, work/took.work)
			case f.all.n > 0:
				seconds += f.all.seconds / float64(f.all.n)
			}
		}
	}
	return time.Duration(seconds * float64(time.Second))
}
