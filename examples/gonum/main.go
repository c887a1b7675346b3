// Command gonum fits a linear model to noisy points with gonum's package mat, once with
// gonum's own BLAS and once with tilework's. Only the call of gonumblas.Use is different. Most
// of the time is one matrix product.
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
	points := flag.Int("points", 20_000, "number of points")
	features := flag.Int("features", 400, "number of features of each point")
	flag.Parse()
	if err := run(*points, *features); err != nil {
		fmt.Fprintln(os.Stderr, "gonum:", err)
		os.Exit(1)
	}
}

func run(points, features int) error {
	if features < 1 || points < features {
		return fmt.Errorf("%d points of %d features: want at least one feature, and at least as many points as features",
			points, features)
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

	fmt.Printf("gonum     %10v, largest error %.2g\n", slow.Round(time.Microsecond), distance(first, truth))
	fmt.Printf("tilework  %10v, largest error %.2g\n", fast.Round(time.Microsecond), distance(second, truth))
	fmt.Printf("tilework is %.1f times as fast; the results differ by at most %.2g\n",
		slow.Seconds()/fast.Seconds(), distance(first, second))
	return nil
}

// fit solves the normal equations XᵀX·w = Xᵀy. The code is the same with and without tilework.
func fit(x *mat.Dense, y *mat.VecDense) (*mat.VecDense, error) {
	var gram mat.SymDense
	gram.SymOuterK(1, x.T())
	var right, w mat.VecDense
	right.MulVec(x.T(), y)
	var factors mat.Cholesky
	if !factors.Factorize(&gram) {
		return nil, fmt.Errorf("XᵀX is singular: want linearly independent features")
	}
	return &w, factors.SolveVecTo(&w, &right)
}

// sample draws random points x and weights truth, and returns values y = x·truth with some noise.
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

// distance returns the maximum norm of a - b.
func distance(a, b *mat.VecDense) float64 {
	var d mat.VecDense
	d.SubVec(a, b)
	return mat.Norm(&d, math.Inf(1))
}
