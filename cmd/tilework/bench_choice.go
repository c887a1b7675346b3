package main

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
)

// choiceRatio is the largest predicted time of a candidate that --choice measures, relative to the
// smallest.
const choiceRatio = 1.5

// checkChoice returns an error if --choice does not fit the other flags.
func (f *benchFlags) checkChoice(device backend.DeviceName) error {
	switch {
	case !f.choice:
		return nil
	case device.Kind == backend.Emulator || f.transfers || f.packed:
		return fmt.Errorf("--choice: want times of products on a CPU or a GPU, without --transfers and --packed")
	case f.kernels != "":
		if name, _ := splitPrecision(f.kernels); name != "auto" {
			return fmt.Errorf("--choice with --kernels %s: want auto, or auto with a precision (auto-tf32)", f.kernels)
		}
	}
	return nil
}

// candidate is a kernel that could compute a product, or the one that is chosen.
type candidate struct{ gpuSubject }

// String returns the kernel and the tile in the syntax of --kernels.
func (c *candidate) String() string {
	if c.plan == nil {
		return ""
	}
	return c.plan.Spec()
}

// candidates returns the automatic choice for p, named [bench.Chosen], and the other candidates
// whose predicted time is at most choiceRatio times that of the fastest.
func (g *benchGPU) candidates(p *gemm.Problem, precision gemm.Precision) []bench.DeviceSubject {
	auto := &candidate{gpuSubject{name: bench.Chosen, gpu: g.backend.Backend, options: gpuOptions("", true),
		inexact: inexact(precision)}}
	all := []bench.DeviceSubject{auto}
	plan, err := auto.plans(p)
	if err != nil {
		return all // Prepare returns the error again
	}
	for _, c := range choose.Near(plan.Candidates(), choiceRatio) {
		if c.Kernel != plan.Kernel || c.Config.Tile != plan.Config.Tile {
			other := *auto
			other.name, other.options = c.Spec(), gpuOptions(c.Spec(), true)
			all = append(all, &other)
		}
	}
	return all
}

// cpuCandidates returns the automatic choice for p on the CPU, named [bench.Chosen], and other ways
// to compute it: other kernels, methods and numbers of threads, and other block sizes.
func cpuCandidates(ctx context.Context, p *gemm.Problem, request dispatch.Request) []bench.Subject {
	request.Problem = *p
	all := []bench.Subject{&subject{name: bench.Chosen, request: request}}
	chosen, err := dispatch.New(ctx, request)
	if err != nil {
		return all // Prepare returns the error again
	}
	routes := cpu.Routes(p, cpu.Workers(request.Threads))
	routes = append(routes, cpu.Blockings(p, backend.Choice{Kernel: chosen.Kernel()})...)
	plans := map[string]bool{chosen.Kernel() + chosen.Detail(): true}
	for _, c := range routes {
		request.Choice = &c
		plan, err := dispatch.New(ctx, request)
		if err != nil || plans[plan.Kernel()+plan.Detail()] {
			continue // not for this product, or the same plan
		}
		plans[plan.Kernel()+plan.Detail()] = true
		all = append(all, &subject{name: c.String(), request: request})
	}
	return all
}

// compileAll compiles the kernels of subjects, several at a time. It leaves errors to Prepare.
func compileAll(ctx context.Context, p *gemm.Problem, subjects []bench.DeviceSubject) {
	plans := make([]*exec.Plan, len(subjects))
	for i, s := range subjects {
		plans[i], _ = s.(*candidate).plans(p)
	}
	exec.CompileAll(ctx, plans)
}
