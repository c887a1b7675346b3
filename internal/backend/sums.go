package backend

import (
	"tilework/dtype"
	"tilework/internal/gemm"
)

// Sums describes how a kernel sums products of some element types.
type Sums struct {
	Types     []dtype.Type
	Precision gemm.Precision
	How       string
}

// Sums describes how the kernel sums products of each type, in each precision. The text is derived
// from its Accuracy.
func (k *Kernel) Sums() (all []Sums) {
	for _, precision := range append([]gemm.Precision{gemm.Native}, k.Precisions...) {
		first := len(all)
		for _, t := range dtype.All() {
			if len(t.Info().Results) == 0 {
				continue
			}
			one := gemm.Dense(t, 1, 1)
			p, _, err := gemm.New(1, one, one, 0, gemm.Dense(t.Info().Results[0], 1, 1), gemm.Epilogue{})
			if err == nil {
				p, err = p.WithPrecision(precision)
			}
			if err != nil || k.Supports(&p) != nil {
				continue
			}
			how, at := k.Accuracy(&p).Describe(p.Accum()), first
			for at < len(all) && all[at].How != how {
				at++
			}
			if at == len(all) {
				all = append(all, Sums{Precision: precision, How: how})
			}
			all[at].Types = append(all[at].Types, t)
		}
	}
	return all
}
