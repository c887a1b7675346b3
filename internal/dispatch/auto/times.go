package auto

import (
	"context"
	"math"
	"time"

	"tilework/internal/gemm"
)

// Trial computes a product of n×n matrices and returns its time.
type Trial func(ctx context.Context, n int) (time.Duration, error)

// These are the measured sizes and the time limit of the measurements. Times beyond the limit are
// extrapolated.
const (
	smallest, middle, largest = 64, 512, 2048

	cpuBudget = 100 * time.Millisecond
	gpuBudget = 100 * time.Millisecond
)

// curve holds the times of square products in seconds, by increasing size.
type curve []point

type point struct {
	N       int     `json:"n"`
	Seconds float64 `json:"seconds"`
}

// valid reports whether the values can be the result of a measurement.
func (c curve) valid() bool {
	for i, p := range c {
		if p.N < 1 || !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) || i > 0 && p.N <= c[i-1].N {
			return false
		}
	}
	return len(c) > 0
}

// at returns the seconds of a square product of size n. It interpolates by a power of n between two
// points, and extrapolates by the given powers.
func (c curve) at(n, below, above float64) float64 {
	last := len(c) - 1
	if first := c[0]; n <= float64(first.N) {
		return first.Seconds * math.Pow(n/float64(first.N), below)
	}
	for i := range last {
		if from, to := c[i], c[i+1]; n <= float64(to.N) {
			part := math.Log(n/float64(from.N)) / math.Log(float64(to.N)/float64(from.N))
			return from.Seconds * math.Pow(to.Seconds/from.Seconds, part)
		}
	}
	return c[last].Seconds * math.Pow(n/float64(c[last].N), above)
}

// cpuTimes predicts the time of a product on the CPU from its number of operations.
type cpuTimes struct {
	Squares curve `json:"squares"`
}

func (p cpuTimes) valid() bool { return p.Squares.valid() }

func (p cpuTimes) seconds(flops float64) float64 {
	return p.Squares.at(math.Cbrt(flops/2), 3, 3)
}

// measureCPU measures square products of doubling size.
func measureCPU(ctx context.Context, try Trial) (cpuTimes, error) {
	var p cpuTimes
	var spent time.Duration
	for n := smallest; n <= largest; n *= 2 {
		if last := len(p.Squares) - 1; last >= 0 {
			const twice, larger = 2, 8 // one run to warm up and one to measure, of eight times the work
			if next := seconds(twice * larger * p.Squares[last].Seconds); spent+next > cpuBudget {
				break
			}
		}
		took, total, err := best(ctx, try, n, cpuBudget/10)
		if err != nil {
			return cpuTimes{}, err
		}
		spent += total
		p.Squares = append(p.Squares, point{n, took.Seconds()})
	}
	return p, nil
}

// best returns the shortest time of a few runs after a warm-up run, and the total time.
func best(ctx context.Context, try Trial, n int, limit time.Duration) (shortest, total time.Duration, err error) {
	if total, err = try(ctx, n); err != nil {
		return 0, 0, err
	}
	const most = 5
	var counted time.Duration
	for i := 0; i == 0 || i < most && counted < limit; i++ {
		took, err := try(ctx, n)
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

// gpuTimes predicts the time of a product of matrices in host memory on a GPU. It is the sum of a
// fixed time, the time to copy its bytes, and the time of its operations.
type gpuTimes struct {
	Fixed   float64 `json:"fixed_seconds"`
	Bytes   curve   `json:"bytes"`
	PerFlop float64 `json:"seconds_per_flop"`
}

// measureGPU measures a tiny product and two square ones. Each may need to compile a kernel.
func measureGPU(ctx context.Context, try Trial) (gpuTimes, error) {
	took := map[int]float64{}
	for _, n := range []int{smallest, middle, largest} {
		d, _, err := best(ctx, try, n, gpuBudget/3)
		if err != nil {
			return gpuTimes{}, err
		}
		took[n] = d.Seconds()
		if n == middle && seconds(64*took[n]) > 10*gpuBudget {
			took[largest] = 64 * took[n] // so slow that only the operations count
			break
		}
	}
	s := gpuTimes{Fixed: took[smallest]}
	// From the middle to the largest size the bytes grow 16-fold and the operations 64-fold.
	const flops = 2.0 * middle * middle * middle
	one, two := took[middle]-s.Fixed, took[largest]-s.Fixed
	s.PerFlop = max(0, two-16*one) / (48 * flops)
	const least = 1e-9
	s.Bytes = curve{{middle, max(least, one-flops*s.PerFlop)}, {largest, max(least, two-64*flops*s.PerFlop)}}
	return s, nil
}

func (s gpuTimes) valid() bool {
	return s.Fixed > 0 && !math.IsInf(s.Fixed, 0) && s.Bytes.valid() && s.PerFlop >= 0 && !math.IsInf(s.PerFlop, 0)
}

// seconds returns the time of a product whose matrices have as many bytes as square ones of size n.
func (s gpuTimes) seconds(n, flops float64) float64 {
	return s.Fixed + s.Bytes.at(n, 2, 2) + s.PerFlop*flops
}

// side returns the size of the square matrices with as many bytes as p copies to a GPU and back.
func side(p *gemm.Problem) float64 {
	unit := float64(2*p.In().Size() + p.Out().Size())
	return math.Sqrt(traffic(p) / unit)
}

// traffic returns the bytes that a product copies to a GPU and back.
func traffic(p *gemm.Problem) float64 {
	size := func(l gemm.Layout) float64 { return float64(l.Rows) * float64(l.Cols) * float64(l.Type.Size()) }
	n := size(p.Layouts[gemm.C])
	if p.Beta != 0 {
		n *= 2
	}
	if p.ReadsAB() {
		n += size(p.Layouts[gemm.A]) + size(p.Layouts[gemm.B])
	}
	for o := gemm.Residual; o < gemm.Operands; o++ {
		n += size(p.Layout(o))
	}
	return n
}

// crossover returns the size from which square products are faster on a GPU, to a percent. ok is
// false if there is none up to sizes that exceed any memory.
func crossover(here cpuTimes, there gpuTimes) (n int, ok bool) {
	faster := func(n float64) bool { return there.seconds(n, 2*n*n*n) < here.seconds(2*n*n*n) }
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

// seconds converts seconds to a Duration, limited to its maximum.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1<<33) * float64(time.Second))
}
