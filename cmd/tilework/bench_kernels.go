package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/names"
)

// pick is a kernel to measure.
type pick struct {
	name   string // in the records
	kernel string // in the syntax of --kernels; if empty, one is chosen for each product
}

// planner plans a product with a kernel, or with one of its own choice, and returns the kernel's
// name.
type planner func(p *gemm.Problem, kernel string) (string, error)

// picks lists the kernels of --kernels, each once. It notes on stderr which of them cannot compute
// which products, and fails if no kernel can compute any.
func (f *benchFlags) picks(device backend.DeviceName, problems []gemm.Problem, plan planner,
	stderr io.Writer) ([]pick, error) {
	if f.kernels == "none" {
		return nil, nil
	}
	p := picker{device: device, problems: problems, plan: plan, known: map[string]bool{}}
	var picks []pick
	items, picked := map[string]bool{}, map[string]bool{}
	for name := range strings.SplitSeq(cmp.Or(f.kernels, "auto"), ",") {
		name = strings.TrimSpace(name)
		if items[name] {
			continue
		}
		items[name] = true
		named, err := p.named(name)
		if err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		for _, k := range named {
			if !picked[k.name] {
				picked[k.name] = true
				picks = append(picks, k)
			}
		}
	}
	if len(picks) == 0 {
		return nil, fmt.Errorf("--kernels: %w: %s", gemm.ErrUnsupported, strings.Join(p.lacking, "; "))
	}
	for _, reason := range p.lacking {
		fmt.Fprintf(stderr, "skipped: %s\n", reason)
	}
	return picks, nil
}

// picker finds the kernels of a device that can compute some of the problems.
type picker struct {
	device   backend.DeviceName
	problems []gemm.Problem
	plan     planner
	lacking  []string // why kernels cannot compute some problems, each reason once
	known    map[string]bool
}

// named returns the kernels of an item of --kernels that can compute some problem.
func (p *picker) named(name string) ([]pick, error) {
	if name == "all" {
		var all []pick
		for _, k := range dispatch.Kernels(p.device) {
			if !k.Available {
				continue
			}
			switch chosen, err := p.chosen(k.Name); {
			case err != nil:
				return nil, err
			case len(chosen) > 0:
				all = append(all, pick{k.Name, k.Name})
			}
		}
		return all, nil
	}
	kernel, _, _ := strings.Cut(name, ":")
	suffix, auto := strings.CutPrefix(name, "auto")
	autos := autoNames(p.device)
	switch known := subjectNames(p.device); {
	case auto && slices.Contains(autos, name):
		name = suffix
	case !slices.Contains(known, kernel):
		return nil, unknownKernel(kernel, p.device, append(known, autos...))
	}
	chosen, err := p.chosen(name)
	switch {
	case err != nil || len(chosen) == 0:
		return nil, err
	case !auto:
		return []pick{{name, name}}, nil
	case len(chosen) > 1:
		return []pick{{"tilework" + suffix, suffix}}, nil
	}
	return []pick{{chosen[0] + suffix, suffix}}, nil
}

// chosen lists the kernels that the planner chooses for the problems, each once. It adds to lacking
// why problems have no kernel.
func (p *picker) chosen(kernel string) (names []string, err error) {
	for i := range p.problems {
		name, err := p.plan(&p.problems[i], kernel)
		switch {
		case errors.Is(err, gemm.ErrUnsupported):
			reason := strings.TrimPrefix(err.Error(), gemm.ErrUnsupported.Error()+": ")
			if !p.known[reason] {
				p.known[reason] = true
				p.lacking = append(p.lacking, reason)
			}
		case err != nil:
			return nil, err
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return names, nil
}

// checkKernel returns an error if a device has no kernel of that name, which is none of the others.
// A tile may follow the name of a kernel.
func checkKernel(name string, device backend.DeviceName, others ...string) error {
	name, tile, _ := strings.Cut(name, ":")
	known := kernelsOf(device)
	if tile == "" {
		known = slices.Concat(known, others)
	}
	if slices.Contains(known, name) {
		return nil
	}
	return unknownKernel(name, device, known)
}

// namedDevice parses --device and refuses auto: a measurement or test is of a certain device.
func namedDevice(name string) (backend.DeviceName, error) {
	device, err := backend.ParseDevice(name)
	switch {
	case err != nil:
		return device, fmt.Errorf("--device: %w", err)
	case device.Kind == backend.Auto:
		return device, fmt.Errorf("--device %s: want a certain device (cpu, gpu, gpu:N, emu)", name)
	}
	return device, nil
}

// unknownKernel returns the error for a name that is none of the known kernels of a device. It
// names the devices that have such a kernel, or a similar known name.
func unknownKernel(name string, device backend.DeviceName, known []string) error {
	for _, kind := range []backend.Kind{backend.CPU, backend.GPU} {
		if slices.Contains(subjectNames(backend.DeviceName{Kind: kind}), name) {
			return fmt.Errorf("kernel %q is for device %s: on %v want one of %s",
				name, dispatch.Runners(kind), device, strings.Join(known, ", "))
		}
	}
	return names.Unknown("kernel", name, known)
}

// kernelsOf returns the names of the kernels of a device, or of all devices for auto.
func kernelsOf(device backend.DeviceName) (names []string) {
	for _, k := range dispatch.Kernels(device) {
		names = append(names, k.Name)
	}
	return names
}

// subjectNames returns the values of --kernels for the kernels of a device: each name, and each
// name with a precision that the kernel supports besides the native one, such as "mma-tf32".
func subjectNames(device backend.DeviceName) (names []string) {
	for _, k := range dispatch.Kernels(device) {
		names = append(names, k.Name)
		for _, p := range k.Precisions {
			names = append(names, k.Name+"-"+p.String())
		}
	}
	return names
}

// autoNames returns the values of --kernels for the kernel that mul would choose: "auto", and one
// for each precision that a kernel of the device supports, such as "auto-tf32".
func autoNames(device backend.DeviceName) []string {
	names := []string{"auto"}
	for _, p := range gemm.Precisions()[1:] {
		if slices.ContainsFunc(dispatch.Kernels(device),
			func(k backend.Kernel) bool { return slices.Contains(k.Precisions, p) }) {
			names = append(names, "auto-"+p.String())
		}
	}
	return names
}
