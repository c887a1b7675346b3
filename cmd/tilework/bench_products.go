package main

import (
	"fmt"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/gemm"
)

// maxCount is the largest number of drawn products.
const maxCount = 1_000_000

// problems returns the products to measure: each sample with each type, epilogue and block scales.
// Without a flag that names shapes it takes sizes, in the syntax of --sizes. onCPU selects the
// limits of suites that are drawn at random.
func (f *benchFlags) problems(sizes string, onCPU bool) ([]gemm.Problem, error) {
	draw := bench.Draw{Seed: f.seed, CPU: onCPU}
	if f.drawn {
		if draw.Count = f.count; draw.Count < 1 || draw.Count > maxCount {
			return nil, fmt.Errorf("--count %d: want 1 to %d", f.count, maxCount)
		}
	}
	epilogues, err := f.parseEpilogues()
	if err != nil {
		return nil, err
	}
	scales, err := f.parseScales()
	if err != nil {
		return nil, err
	}
	types, err := f.types()
	if err != nil {
		return nil, err
	}
	var problems []gemm.Problem
	for _, in := range types {
		out, err := f.resultType(in)
		if err != nil {
			return nil, err
		}
		draw.Type = in
		samples, err := f.samples(sizes, draw)
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			for _, e := range epilogues {
				for _, sides := range scales {
					p, err := f.problem(s, in, out, e, sides)
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

// problem returns the product of a sample with an epilogue and block scales.
func (f *benchFlags) problem(s bench.Sample, in, out dtype.Type, e gemm.Epilogue, sides [2]int) (gemm.Problem, error) {
	p, err := s.Problem(in, out)
	if err == nil {
		p = scaled(p, sides)
		p.Epilogue = e
		_, err = p.Complete()
	}
	if err == nil {
		p, err = f.batched(p)
	}
	if f.rowInvariant {
		p = p.WithRowInvariance()
	}
	return p, err
}

// resultType returns the type of C.
func (f *benchFlags) resultType(in dtype.Type) (dtype.Type, error) {
	if f.outType == "" {
		return in.Info().Results[0], nil
	}
	out, err := dtype.Parse(f.outType)
	if err != nil {
		err = fmt.Errorf("--out-dtype: %w", err)
	}
	return out, err
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
