package tilework

import (
	"fmt"

	"tilework/internal/gemm"
)

// Activation is a function that a product applies to each element. The zero Activation is none.
type Activation uint8

// The activations. GELUTanh is the approximation of GELU by tanh.
const (
	ReLU Activation = iota + 1
	GELU
	GELUTanh
	SiLU
)

var activations = [...]gemm.Activation{ReLU: gemm.ActReLU, GELU: gemm.ActGELU, GELUTanh: gemm.ActGELUTanh,
	SiLU: gemm.ActSiLU}

// WithActivation applies an activation to every element, after the bias and before the residual.
func WithActivation(a Activation) Option {
	return func(c *config) {
		if int(a) >= len(activations) {
			c.Fail(fmt.Errorf("%w: %v", ErrUnsupported, a))
			return
		}
		c.Epilogue.Activation = activations[a]
	}
}
