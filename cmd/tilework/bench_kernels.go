package main

import (
	"errors"
	"fmt"
	"io"
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

// picks lists what --kernels asks for. Of a preset's kernels those that the device has not
// are left out, which is said.
func (f *benchFlags) picks(device dispatch.Device, problems []gemm.Problem, plan planner, stderr io.Writer) ([]pick, error) {
	switch f.kernels {
	case "none":
		return nil, nil
	case "":
		chosen, err := automatic(problems, plan, "")
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
	var lacking error
	for name := range strings.SplitSeq(f.kernels, ",") {
		name = strings.TrimSpace(name)
		kernel, _, _ := strings.Cut(name, ":")
		if suffix, auto := strings.CutPrefix(name, "auto"); auto && slices.Contains(autoNames(device), name) {
			chosen, err := automatic(problems, plan, suffix)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(picks, func(p pick) bool { return p.name == chosen.name }) {
				picks = append(picks, chosen)
			}
			continue
		}
		if known := subjectNames(device); !slices.Contains(known, kernel) {
			return nil, fmt.Errorf("--kernels: %w", unknownKernel(kernel, device, append(known, autoNames(device)...)))
		}
		if _, err := plan(&problems[0], name); err != nil {
			if f.ofPreset() && errors.Is(err, gemm.ErrUnsupported) {
				lacking = fmt.Errorf("%s: %w", name, err)
				fmt.Fprintf(stderr, "left out: %v\n", lacking)
				continue
			}
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		picks = append(picks, pick{name, name})
	}
	if picks == nil {
		return nil, lacking
	}
	return picks, nil
}

// knownKernel refuses a name, which may have a tile behind it, that no kernel of a device
// has.
func knownKernel(name string, device dispatch.Device) error {
	name, _, _ = strings.Cut(name, ":")
	known := kernelsOf(device)
	if slices.Contains(known, name) {
		return nil
	}
	return unknownKernel(name, device, known)
}

// namedDevice is the device of --device, which is to be one by its name: what is measured or tested is not
// for a plan to choose.
func namedDevice(name string) (dispatch.Device, error) {
	device, err := dispatch.ParseDevice(name)
	switch {
	case err != nil:
		return device, fmt.Errorf("--device: %w", err)
	case device.Kind == "auto":
		return device, fmt.Errorf("--device %s: name one (cpu, gpu, gpu:N, emu)", name)
	}
	return device, nil
}

// unknownKernel is the error for a name that none of the known kernels of a device has, with the
// devices that have one of that name.
func unknownKernel(name string, device dispatch.Device, known []string) error {
	where := ""
	if device.Kind != "auto" {
		where = fmt.Sprintf(" on %v", device)
	}
	for _, other := range []struct{ kind, names string }{{"cpu", "cpu"}, {"gpu", "gpu and emu"}} {
		if slices.Contains(subjectNames(dispatch.Device{Kind: other.kind}), name) {
			where += ", only on " + other.names
		}
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

// subjectNames are the kernels of a device as --kernels has them: each by its name, and by
// that with each precision that it has besides the types' own: "mma-tf32".
func subjectNames(device dispatch.Device) (names []string) {
	for _, k := range dispatch.Kernels(device) {
		names = append(names, k.Name)
		for _, p := range k.Precisions {
			names = append(names, k.Name+"-"+p.String())
		}
	}
	return names
}

// autoNames are what --kernels has for the kernel that mul would use, in each precision
// that a kernel of the device has.
func autoNames(device dispatch.Device) []string {
	names := []string{"auto"}
	for _, p := range gemm.Precisions()[1:] {
		if slices.ContainsFunc(dispatch.Kernels(device), func(k dispatch.Kernel) bool { return slices.Contains(k.Precisions, p) }) {
			names = append(names, "auto-"+p.String())
		}
	}
	return names
}

// automatic is what would be chosen for each product, in a precision if the suffix names
// one: "-tf32". It carries the name of that, if it is the same throughout.
func automatic(problems []gemm.Problem, plan planner, suffix string) (pick, error) {
	name := ""
	for i := range problems {
		chosen, err := plan(&problems[i], suffix)
		if err != nil {
			return pick{}, err
		}
		if name != "" && name != chosen {
			return pick{name: "tilework" + suffix, kernel: suffix}, nil
		}
		name = chosen
	}
	return pick{name: name + suffix, kernel: suffix}, nil
}
