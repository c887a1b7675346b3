package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/gemm"
	"tilework/internal/names"
)

// productFlags are the flags that describe products to measure, to tune or to predict.
type productFlags struct {
	sizes, shapes, suite, dtypes string
	transA, transB               choice
}

// declare adds the flags to c. The text usual describes the sizes that are the default. Without
// suites there is no --suite, and no transposition.
func (f *productFlags) declare(c *cobra.Command, usual string, suites []string) {
	fl := c.Flags()
	fl.StringVar(&f.sizes, "sizes", "", "`SIZES` N of square products: 64,256 or 64..1024x2 or 64..512+64"+usual)
	shapeFlag(c, &f.shapes, "`SHAPES` MxNxK, or N for three equal sizes: 1x768x3072,64x64x512")
	fl.StringVar(&f.dtypes, "dtypes", "float32", "comma-separated element `TYPES` of A and B")
	complete(c, "dtypes", productTypes()...)
	if suites == nil {
		return
	}
	fl.StringVar(&f.suite, "suite", "", "the `SUITE`, a predefined list of shapes: "+strings.Join(suites, ", "))
	f.transA.addTo(fl, "transpose-a", "multiply with A transposed (default: no, or as the suite says)")
	f.transB.addTo(fl, "transpose-b", "multiply with B transposed (default: no, or as the suite says)")
	complete(c, "suite", suites...)
}

// given reports whether a flag names shapes.
func (f *productFlags) given() bool { return f.sizes != "" || f.shapes != "" || f.suite != "" }

// samples returns the shapes of the flags, each with its transposition. If no flag names shapes it
// takes sizes, in the syntax of --sizes.
func (f *productFlags) samples(sizes string, draw bench.Draw) (all []bench.Sample, err error) {
	if f.suite != "" {
		drawn, err := bench.Suite(f.suite, draw)
		if err != nil {
			return nil, fmt.Errorf("--suite: %w", err)
		}
		all = slices.Clone(drawn)
	}
	if f.given() {
		sizes = f.sizes
	}
	if sizes != "" {
		list, err := bench.ParseSizes(sizes)
		if err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		for _, n := range list {
			s := bench.Sample{Shape: bench.Cube(n)}
			if err := f.check(s); err != nil {
				return nil, fmt.Errorf("--sizes %d: %w", n, err)
			}
			all = append(all, s)
		}
	}
	if f.shapes != "" {
		shapes, err := bench.ParseShapes(f.shapes)
		if err != nil {
			return nil, fmt.Errorf("--shape: %w", err)
		}
		for _, shape := range shapes {
			s := bench.Sample{Shape: shape}
			if err := f.check(s); err != nil {
				return nil, fmt.Errorf("--shape %dx%dx%d: %w", s.M, s.N, s.K, err)
			}
			all = append(all, s)
		}
	}
	for i := range all {
		f.transA.replace(&all[i].TransA)
		f.transB.replace(&all[i].TransB)
	}
	return all, nil
}

// check returns the error of a sample that is too large in one of the types.
func (f *productFlags) check(s bench.Sample) error {
	types, err := f.types()
	if err != nil {
		return nil // types reports it to its other callers
	}
	for _, t := range types {
		if _, err := s.Problem(t, t.Info().Results[0]); err != nil {
			return err
		}
	}
	return nil
}

// types returns the types of --dtypes, which products of matrices can have.
func (f *productFlags) types() (all []dtype.Type, err error) {
	for name := range strings.SplitSeq(f.dtypes, ",") {
		t, err := parseProductType(strings.TrimSpace(name))
		if err != nil {
			return nil, fmt.Errorf("--dtypes: %w", err)
		}
		all = append(all, t)
	}
	return all, nil
}

// productTypes returns the names of the types that A and B can have, float64 first.
func productTypes() []string {
	var names []string
	for _, t := range dtype.All() {
		if len(t.Info().Results) > 0 {
			names = append(names, t.String())
		}
	}
	return names
}

// parseProductType parses the name of a type that A and B can have.
func parseProductType(name string) (dtype.Type, error) {
	t, err := dtype.Parse(name)
	switch {
	case err != nil:
		return 0, names.Unknown("element type", name, productTypes())
	case len(t.Info().Results) == 0:
		return 0, fmt.Errorf("%w: matrices of %v cannot be multiplied: want %s", gemm.ErrUnsupported, t,
			strings.Join(productTypes(), ", "))
	}
	return t, nil
}
