package bench

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/names"
)

// Sample is a product of a suite. Its element types are chosen by the caller.
type Sample struct {
	Shape
	TransA, TransB bool
	// Pad holds the number of elements between the rows of A, B and C.
	Pad [gemm.C + 1]int
	Why string // the reason for the choice, in a few words
}

// Problem returns the product C ← op(A)·op(B) of a sample, without epilogue. The errors are those
// of [gemm.New].
func (s *Sample) Problem(in, out dtype.Type) (gemm.Problem, error) {
	layout := func(o gemm.Operand, t dtype.Type, rows, cols int, trans bool) gemm.Layout {
		if trans {
			rows, cols = cols, rows
		}
		l := gemm.Dense(t, rows, cols)
		l.LD, l.Trans = l.LD+s.Pad[o], trans
		return l
	}
	p, _, err := gemm.New(1, layout(gemm.A, in, s.M, s.K, s.TransA), layout(gemm.B, in, s.K, s.N, s.TransB),
		0, layout(gemm.C, out, s.M, s.N, false), gemm.Epilogue{})
	return p, err
}

// Draw selects the samples of a suite that is drawn at random.
type Draw struct {
	Seed  uint64
	Count int        // 0 selects the fixed samples of ModelSuite
	CPU   bool       // whether the products are for a CPU, and therefore smaller
	Type  dtype.Type // of A and B, in which networks of ModelSuite are served
}

// suites lists the suites that published speeds refer to. Those of fixed shapes are chosen before
// any tuning for them and do not change afterwards. Otherwise the results could decide which shapes
// they contain.
var suites = []suite{
	{"fp32", fixed(float32Suite)},
	{"cpu", fixed(cpuSuite)},
	{"tensor", fixed(tensorSuite)},
	{ModelSuite, modelSuite},
	{RandomSuite, drawSamples},
}

// RandomSuite is the name of the suite that is drawn at random.
const RandomSuite = "random"

func fixed(samples []Sample) func(Draw) []Sample { return func(Draw) []Sample { return samples } }

// Suites lists the names of the suites.
func Suites() []string {
	names := make([]string, len(suites))
	for i, s := range suites {
		names[i] = s.name
	}
	return names
}

// suite is a named list of shapes.
type suite struct {
	name    string
	samples func(Draw) []Sample
}

// Suite returns the samples of the suite with the given name. Only RandomSuite and ModelSuite use
// d. The error is that of an unknown name, or of a type in which no network is served.
func Suite(name string, d Draw) ([]Sample, error) {
	i, err := names.Find("suite", name, suites, func(s *suite) string { return s.name })
	if err != nil {
		return nil, err
	}
	if name == ModelSuite && d.Count > 0 && !isServed(d.Type) {
		return nil, fmt.Errorf("%s in %v: none of its networks is served in this type", name, d.Type)
	}
	return suites[i].samples(d), nil
}
