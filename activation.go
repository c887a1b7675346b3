package tilework

import "tilework/internal/gemm"

// WithReLU applies max(x, 0) to every element x, after the bias and before the residual. The last
// activation of the options counts.
func WithReLU() Option { return withActivation(gemm.ActReLU) }

// WithGELU applies x·Φ(x) to every element x, where Φ is the distribution function of the standard
// normal distribution.
func WithGELU() Option { return withActivation(gemm.ActGELU) }

// WithGELUTanh applies the approximation of GELU by tanh, x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
func WithGELUTanh() Option { return withActivation(gemm.ActGELUTanh) }

// WithSiLU applies x/(1 + e⁻ˣ) to every element x.
func WithSiLU() Option { return withActivation(gemm.ActSiLU) }

func withActivation(a gemm.Activation) Option { return func(c *config) { c.Epilogue.Activation = a } }
