package main

import (
	"fmt"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/gemm"
)

// samples returns the shapes of --sizes, --shapes and --suite, each with its transposition. Without
// one of these flags it takes sizes, in the syntax of --sizes. onCPU selects the limits of the
// random suite.
func (f *benchFlags) samples(sizes string, onCPU bool) ([]bench.Sample, error) {
	if f.sizes == "" && f.shapes == "" && f.suite == "" {
		f.sizes = sizes
	}
	var all []bench.Sample
	if f.suite != "" {
		if f.suite == bench.RandomSuite && f.count < 1 {
			return nil, fmt.Errorf("--count %d: want 1 or more", f.count)
		}
		drawn, err := bench.Suite(f.suite, bench.Draw{Seed: f.seed, Count: f.count, CPU: onCPU})
		if err != nil {
			return nil, fmt.Errorf("--suite: %w", err)
		}
		all = slices.Clone(drawn)
	}
	if f.sizes != "" {
		sizes, err := bench.ParseSizes(f.sizes)
		if err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		for _, n := range sizes {
			all = append(all, bench.Sample{Shape: bench.Cube(n)})
		}
	}
	if f.shapes != "" {
		shapes, err := bench.ParseShapes(f.shapes)
		if err != nil {
			return nil, fmt.Errorf("--shapes: %w", err)
		}
		for _, s := range shapes {
			all = append(all, bench.Sample{Shape: s})
		}
	}
	for i := range all {
		f.transA.replace(&all[i].TransA)
		f.transB.replace(&all[i].TransB)
	}
	return all, nil
}

// problems returns the products to measure: each sample with each type, epilogue and block scales.
// The arguments are those of samples.
func (f *benchFlags) problems(sizes string, onCPU bool) ([]gemm.Problem, error) {
	samples, err := f.samples(sizes, onCPU)
	if err != nil {
		return nil, err
	}
	epilogues, err := f.parseEpilogues()
	if err != nil {
		return nil, err
	}
	scales, err := f.parseScales()
	if err != nil {
		return nil, err
	}
	var problems []gemm.Problem
	for name := range strings.SplitSeq(f.dtypes, ",") {
		in, out, err := f.types(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			for _, e := range epilogues {
				for _, sides := range scales {
					p, err := s.Problem(in, out)
					if err == nil {
						p, _, err = gemm.New(p.Alpha, p.Layouts[gemm.A], p.Layouts[gemm.B], p.Beta, p.Layouts[gemm.C], e)
					}
					if err == nil {
						p, err = scaled(p, sides)
					}
					if err == nil {
						p, err = f.batched(p)
					}
					if f.rowInvariant {
						p = p.WithRowInvariance(false)
					}
					if err != nil {
						return nil, err
					}
					problems = append(problems, p)
				}
			}
		}
	}
	return problems, nil
}

// types returns the type of A and B with the given name, and that of C.
func (f *benchFlags) types(name string) (in, out dtype.Type, err error) {
	in, err = dtype.Parse(name)
	if err != nil {
		return in, out, fmt.Errorf("--dtypes: %w", err)
	}
	results := in.Info().Results
	if len(results) == 0 {
		return in, out, fmt.Errorf("--dtypes: %w: matrices of %v cannot be multiplied", gemm.ErrUnsupported, in)
	}
	if f.outType == "" {
		return in, results[0], nil
	}
	if out, err = dtype.Parse(f.outType); err != nil {
		err = fmt.Errorf("--out-dtype: %w", err)
	}
	return in, out, err
}

// parseEpilogues reads --epilogue.
func (f *benchFlags) parseEpilogues() (list []gemm.Epilogue, err error) {
	if f.epilogues == "" {
		return []gemm.Epilogue{{}}, nil
	}
	if f.transfers {
		return nil, fmt.Errorf("--epilogue %s: want no --transfers", f.epilogues)
	}
	for text := range strings.SplitSeq(f.epilogues, ",") {
		e, err := gemm.ParseEpilogue(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--epilogue %s: %w", text, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// paths returns the files of --peer-path by the names of peers.
func (f *benchFlags) paths() (map[string]string, error) {
	paths := map[string]string{}
	for _, p := range f.peerPath {
		name, file, ok := strings.Cut(p, "=")
		if !ok || !slices.Contains(pathNames(), name) {
			return nil, fmt.Errorf("--peer-path %s: want NAME=FILE, where NAME is one of %s",
				p, strings.Join(pathNames(), ", "))
		}
		paths[name] = file
	}
	return paths, nil
}

// peerNames returns the items of --peers, or all if --peers is "all".
func (f *benchFlags) peerNames(all []string) []string {
	switch f.peers {
	case "":
		return nil
	case "all":
		return all
	}
	names := strings.Split(f.peers, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	return names
}
