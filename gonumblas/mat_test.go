package gonumblas

import (
	"testing"

	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/gonum"
	lapack "gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"tilework/internal/testkit/testrand"
)

// TestMat runs operations of gonum that use level 3 routines before and after Use: products of
// dense matrices and their transposes, and LU, QR and Cholesky factorisations and solves.
func TestMat(t *testing.T) {
	rng := testrand.New(t)
	const n = 300
	a, b := mat.NewDense(n, n, values[float64](rng, n)), mat.NewDense(n, n, values[float64](rng, n))
	for i := range n {
		a.Set(i, i, n)
	}
	var spd mat.SymDense
	spd.SymOuterK(1, a)
	steps := map[string]func(out *mat.Dense) error{
		"mul":               func(out *mat.Dense) error { out.Mul(a, b); return nil },
		"mul of transposes": func(out *mat.Dense) error { out.Mul(a.T(), b.T()); return nil },
		"mul of slices": func(out *mat.Dense) error {
			out.Mul(a.Slice(3, 200, 5, 250), b.Slice(10, 255, 7, 120))
			return nil
		},
		"lu": func(out *mat.Dense) error {
			var lu mat.LU
			lu.Factorize(a)
			return lu.SolveTo(out, false, b)
		},
		"qr": func(out *mat.Dense) error {
			var qr mat.QR
			qr.Factorize(a)
			return qr.SolveTo(out, true, b)
		},
		"cholesky": func(out *mat.Dense) error {
			var c mat.Cholesky
			c.Factorize(&spd)
			return c.SolveTo(out, b)
		},
	}
	for name, step := range steps {
		var before, after mat.Dense
		if err := step(&before); err != nil {
			t.Fatal(err)
		}
		Use()
		err := step(&after)
		useGonum()
		if err != nil {
			t.Fatal(err)
		}
		if !mat.EqualApprox(&before, &after, 1e-10) {
			t.Errorf("%s: results before and after Use differ", name)
		}
	}
}

// useGonum undoes [Use].
func useGonum() {
	blas32.Use(gonum.Implementation{})
	blas64.Use(gonum.Implementation{})
	lapack64.Use(lapack.Implementation{})
}
