package dispatch

import (
	"math"
	"time"

	"tilework/internal/gemm"
)

// trial computes a product of an m×k and a k×n matrix and says how long that took.
type trial func(m, n, k int) (time.Duration, error)

// The sizes that are measured, and how long that may take: what is too slow for it is
// not measured, but extrapolated.
const (
	smallest, large = 64, 1024
	processorBudget = 100 * time.Millisecond
	gpuBudget       = 100 * time.Millisecond
)

// curve is how fast the processor is: the seconds that squares took, the smallest
// first.
type curve []point

type point struct {
	N       int     `json:"n"`
	Seconds float64 `json:"seconds"`
}

// measureProcessor measures squares, each twice as large as the one before.
func measureProcessor(try trial) (curve, error) {
	var c curve
	var spent time.Duration
	for n := smallest; n <= 2*large; n *= 2 {
		if last := len(c) - 1; last >= 0 {
			const twice, larger = 2, 8 // to get warm and to measure, of eight times the work
			if next := seconds(twice * larger * c[last].Seconds); spent+next > processorBudget {
				break
			}
		}
		took, total, err := best(try, n, n, n, processorBudget/10)
		if err != nil {
			return nil, err
		}
		spent += total
		c = append(c, point{n, took.Seconds()})
	}
	return c, nil
}

// best is the shortest of a few runs after one that does not count, and what all of
// them took.
func best(try trial, m, n, k int, limit time.Duration) (shortest, total time.Duration, err error) {
	if total, err = try(m, n, k); err != nil {
		return 0, 0, err
	}
	const most = 5
	var counted time.Duration
	for i := 0; i == 0 || i < most && counted < limit; i++ {
		took, err := try(m, n, k)
		if err != nil {
			return 0, 0, err
		}
		if shortest == 0 || took < shortest {
			shortest = took
		}
		counted += took
	}
	return max(shortest, 1), total + counted, nil
}

// valid refuses what no measurement gives.
func (c curve) valid() bool {
	for i, p := range c {
		if p.N < 1 || !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) || i > 0 && p.N <= c[i-1].N {
			return false
		}
	}
	return len(c) > 0
}

// seconds is how long that many operations take. Between two points the time is a power
// of the work; outside of them the speed is that of the nearest.
func (c curve) seconds(flops float64) float64 {
	work := func(i int) float64 { n := float64(c[i].N); return 2 * n * n * n }
	last := len(c) - 1
	if flops <= work(0) {
		return c[0].Seconds * flops / work(0)
	}
	for i := range last {
		if flops <= work(i+1) {
			part := math.Log(flops/work(i)) / math.Log(work(i+1)/work(i))
			return c[i].Seconds * math.Pow(c[i+1].Seconds/c[i].Seconds, part)
		}
	}
	return c[last].Seconds * flops / work(last)
}

// oneShot is how fast a GPU is with matrices that are on the host: the time of a
// product is Fixed, and that of its bytes, and that of its operations.
type oneShot struct {
	Fixed   float64 `json:"fixed_seconds"`
	PerByte float64 `json:"seconds_per_byte"`
	PerFlop float64 `json:"seconds_per_flop"`
}

// measureGPU measures a product of next to nothing and two whose bytes and operations
// grow by different factors, 4 and 8.
func measureGPU(try trial, types pair) (oneShot, error) {
	var took [3]float64
	for i, n := range []int{smallest, large, 2 * large} {
		if last := 8 * took[1]; seconds(last) > gpuBudget { // so slow that operations are all
			took[i] = last
			break
		}
		d, _, err := best(try, n, n, n, gpuBudget/3)
		if err != nil {
			return oneShot{}, err
		}
		took[i] = d.Seconds()
	}
	s := oneShot{Fixed: took[0]}
	one, two := max(0, took[1]-s.Fixed), max(0, took[2]-s.Fixed)
	bytes, flops := types.squares(large), 2.0*large*large*large
	s.PerFlop = max(0, two-4*one) / (4 * flops)
	s.PerByte = max(0, two-8*flops*s.PerFlop) / (4 * bytes)
	// The small one has bytes and operations too.
	s.Fixed -= min(s.Fixed/2, s.PerByte*types.squares(smallest)+s.PerFlop*2*smallest*smallest*smallest)
	return s, nil
}

// squares is the bytes of A, B and C that are n×n.
func (p pair) squares(n float64) float64 { return n * n * float64(2*p.In.Size()+p.Out.Size()) }

func (s oneShot) valid() bool {
	for _, v := range []float64{s.Fixed, s.PerByte, s.PerFlop} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return s.Fixed > 0
}

func (s oneShot) seconds(bytes, flops float64) float64 {
	return s.Fixed + s.PerByte*bytes + s.PerFlop*flops
}

// traffic is the bytes that a product brings to a GPU and back.
func traffic(p *gemm.Problem) float64 {
	size := func(l gemm.Layout) float64 { return float64(l.Rows) * float64(l.Cols) * float64(l.Type.Size()) }
	n := size(p.C)
	if p.Beta != 0 {
		n *= 2
	}
	if p.ReadsAB() {
		n += size(p.A) + size(p.B)
	}
	return n + float64(p.BiasLen()*p.C.Type.Size())
}

// crossover is the size from which squares are faster on a GPU, to a percent; false if
// none is, up to what fits in no memory.
func crossover(here curve, there oneShot, types pair) (n int, ok bool) {
	faster := func(n float64) bool {
		return there.seconds(types.squares(n), 2*n*n*n) < here.seconds(2*n*n*n)
	}
	const most = 1 << 20
	low, high := 1.0, float64(most)
	if !faster(high) {
		return 0, false
	}
	for high > low*1.01 {
		if middle := math.Sqrt(low * high); faster(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return int(math.Round(high)), true
}

// seconds is a number of them, no more than a Duration holds.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1<<33) * float64(time.Second))
}
