// Command gonum fits a line to noisy points with gonum's mat, the product that takes
// the time once by gonum and once by tilework: one call of gonumblas.Use is the whole
// difference.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"gonum.org/v1/gonum/mat"

	"tilework/gonumblas"
)

func main() {
	points := flag.Int("points", 20_000, "how many points")
	features := flag.Int("features", 400, "how many numbers each has")
	flag.Parse()
	if err := run(*points, *features); err != nil {
		fmt.Fprintln(os.Stderr, "gonum:", err)
		os.Exit(1)
	}
}

func run(points, features int) error {
	if features < 1 || points < features {
		return fmt.Errorf("%d points of %d features: want at least one feature, and a point for each", points, features)
	}
	x, y, truth := sample(points, features)
	before := time.Now()
	first, err := fit(x, y)
	if err != nil {
		return err
	}
	slow := time.Since(before)

	gonumblas.Use()
	before = time.Now()
	second, err := fit(x, y)
	if err != nil {
		return err
	}
	fast := time.Since(before)

	fmt.Printf("gonum     %10v, off the truth by at most %.2g\n", slow.Round(time.Microsecond), distance(first, truth))
	fmt.Printf("tilework  %10v, off the truth by at most %.2g\n", fast.Round(time.Microsecond), distance(second, truth))
	fmt.Printf("%.1f times as fast; the two differ by at most %.2g\n", slow.Seconds()/fast.Seconds(), distance(first, second))
	return nil
}

// fit solves the normal equations XᵀX·w = Xᵀy. A user of gonum would write it so with
// or without tilework.
func fit(x *mat.Dense, y *mat.VecDense) (*mat.VecDense, error) {
	var gram mat.SymDense
	gram.SymOuterK(1, x.T())
	var right, w mat.VecDense
	right.MulVec(x.T(), y)
	var factors mat.Cholesky
	if !factors.Factorize(&gram) {
		return nil, fmt.Errorf("the points do not tell the features apart")
	}
	return &w, factors.SolveVecTo(&w, &right)
}

// sample draws points, and values that depend on them linearly, up to noise.
func sample(points, features int) (x *mat.Dense, y, truth *mat.VecDense) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		return v
	}
	x = mat.NewDense(points, features, draw(points*features))
	truth = mat.NewVecDense(features, draw(features))
	noise := mat.NewVecDense(points, draw(points))
	y = mat.NewVecDense(points, nil)
	y.MulVec(x, truth)
	y.AddScaledVec(y, 0.1, noise)
	return x, y, truth
}

// distance is the largest difference of two elements at the same place.
func distance(a, b *mat.VecDense) float64 {
	var d mat.VecDense
	d.SubVec(a, b)
	return mat.Norm(&d, math.Inf(1))
}
