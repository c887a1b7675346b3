// Command mul shows the basics of the library: views, a product with a bias and an activation,
// a plan, and an error.
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

	// A layer of a neural network with 3 input features and 2 outputs, applied to 4 inputs. Each
	// row of w has the weights of one output, so the layer multiplies by the transpose of w.
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
		tilework.WithColBias(tilework.Vector[float32](1, 2)),
		tilework.WithReLU(),
		tilework.WithVerify()) // verifies the product before the activation
	if err != nil {
		log.Fatal(err)
	}
	for i := range y.Rows() {
		fmt.Println(y.At(i, 0), y.At(i, 1))
	}

	// A plan shows the device and kernel of a product without computing it.
	plan, err := tilework.PlanGemm(ctx, x, w.T(), y)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("device:", plan.Device)

	// Shapes that do not match are an error.
	_, err = tilework.Mul(ctx, x, w)
	fmt.Println(errors.Is(err, tilework.ErrShape), err)
}
