package gonumblas_test

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"tilework/gonumblas"
)

func Example() {
	gonumblas.Use() // once; the rest is ordinary gonum code
	a := mat.NewDense(2, 3, []float64{1, 2, 3, 4, 5, 6})
	var c mat.Dense
	c.Mul(a, a.T())
	fmt.Println(mat.Formatted(&c))
	// Output:
	// ⎡14  32⎤
	// ⎣32  77⎦
}
