package bench

import (
	"time"

	"tilework/internal/gemm"
)

// Estimate predicts how long the remaining products of several jobs will take. A product is
// expected to take as long as the latest one of its job, and proportionally longer if it has more
// operations. Jobs without a measured product use the mean of all measured products.
type Estimate struct {
	left     []map[int]float64 // for each job, the operations of each remaining product
	latest   []*pace           // for each job
	measured int               // products of all jobs
	seconds  float64           // that they took
}

// pace is the time that a product took.
type pace struct{ seconds, operations float64 }

// NewEstimate returns the estimate before any product is measured. Each job is a list of products.
func NewEstimate(jobs [][]gemm.Problem) *Estimate {
	e := &Estimate{latest: make([]*pace, len(jobs))}
	for _, problems := range jobs {
		left := map[int]float64{}
		for k := range problems {
			left[k] = problems[k].Flops()
		}
		e.left = append(e.left, left)
	}
	return e
}

// Skip removes product k of job i.
func (e *Estimate) Skip(i, k int) { delete(e.left[i], k) }

// Done records the time that product k of job i took, and removes it.
func (e *Estimate) Done(i, k int, took time.Duration) {
	e.latest[i] = &pace{took.Seconds(), e.left[i][k]}
	e.measured++
	e.seconds += took.Seconds()
	e.Skip(i, k)
}

// Remaining returns the predicted time of all remaining products, or 0 before the first is
// measured.
func (e *Estimate) Remaining() time.Duration {
	seconds := 0.0
	for i, left := range e.left {
		for _, operations := range left {
			switch latest := e.latest[i]; {
			case latest != nil:
				seconds += latest.seconds * max(1, operations/latest.operations)
			case e.measured > 0:
				seconds += e.seconds / float64(e.measured)
			}
		}
	}
	return time.Duration(seconds * float64(time.Second))
}
