package main

import (
	"fmt"
	"slices"
	"strings"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// pick is a kernel to measure.
type pick struct {
	name   string // in the records
	kernel string // as --kernels has it; empty: what is chosen for each product
}

// planner plans a product with a kernel, or with one of its own choice, and says which.
type planner func(p *gemm.Problem, kernel string) (string, error)

// picks lists what --kernels asks for.
func (f *benchFlags) picks(device dispatch.Device, problems []gemm.Problem, plan planner) ([]pick, error) {
	switch f.kernels {
	case "none":
		return nil, nil
	case "":
		chosen, err := automatic(problems, plan)
		return []pick{chosen}, err
	case "all":
		var all []pick
		for _, k := range dispatch.Kernels(device) {
			if k.Available {
				all = append(all, pick{k.Name, k.Name})
			}
		}
		return all, nil
	}
	var picks []pick
	for name := range strings.SplitSeq(f.kernels, ",") {
		name = strings.TrimSpace(name)
		if name == "auto" {
			chosen, err := automatic(problems, plan)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(picks, func(p pick) bool { return p.name == chosen.name }) {
				picks = append(picks, chosen)
			}
			continue
		}
		if err := knownKernel(name, device); err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		if _, err := plan(&problems[0], name); err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		picks = append(picks, pick{name, name})
	}
	return picks, nil
}

// knownKernel refuses a name, which may have a tile behind it, that no kernel of a device
// has.
func knownKernel(name string, device dispatch.Device) error {
	name, _, _ = strings.Cut(name, ":")
	if slices.Contains(kernelsOf(device), name) {
		return nil
	}
	return unknownKernel(name, device)
}

// unknownKernel is the error for a name that no kernel of a device has.
func unknownKernel(name string, device dispatch.Device) error {
	known, where := kernelsOf(device), ""
	if device.Kind != "auto" {
		where = fmt.Sprintf(" on %v", device)
	}
	return fmt.Errorf("no kernel %q%s%s (there are %s)", name, where, meant(name, known), strings.Join(known, ", "))
}

// kernelsOf are the names of the kernels of a device, of all where that is auto.
func kernelsOf(device dispatch.Device) (names []string) {
	if device.Kind == "auto" {
		device = dispatch.Device{}
	}
	for _, k := range dispatch.Kernels(device) {
		names = append(names, k.Name)
	}
	return names
}

// automatic is what would be chosen for each product. It carries the name of that, if it
// is the same throughout.
func automatic(problems []gemm.Problem, plan planner) (pick, error) {
	name := ""
	for i := range problems {
		chosen, err := plan(&problems[i], "")
		if err != nil {
			return pick{}, err
		}
		if name != "" && name != chosen {
			return pick{name: "tilework"}, nil
		}
		name = chosen
	}
	return pick{name: name}, nil
}
