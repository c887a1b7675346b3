// Command mul shows the library in a page: views, a product, a bias with an
// activation, a plan, and an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"tilework"
)

func main() {
	ctx := context.Background()

	// A layer of a neural network: 4 inputs of 3 features, 2 outputs. The weights
	// are stored one output a row, so the layer multiplies with their transpose.
	x := tilework.FromSlice(4, 3, []float32{
		1, 2, 3,
		4, 5, 6,
		7, 8, 9,
		0, 1, 0,
	})
	w := tilework.FromSlice(2, 3, []float32{
		0.5, -1, 0.5,
		-1, 2, -1.5,
	})
	y, err := tilework.Mul(ctx, x, w.T(),
		tilework.WithColBias([]float32{1, 2}),
		tilework.WithActivation("relu"),
		tilework.WithVerify())
	// With an activation as without, what is verified is the product itself.
	if err != nil {
		log.Fatal(err)
	}
	for i := range y.Rows() {
		fmt.Println(y.At(i, 0), y.At(i, 1))
	}

	// What would run, and why.
	plan, err := tilework.PlanGemm(x, w.T(), y)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("device:", plan.Device)

	// What does not fit says so.
	_, err = tilework.Mul(ctx, x, w)
	fmt.Println(errors.Is(err, tilework.ErrShape), err)
}
