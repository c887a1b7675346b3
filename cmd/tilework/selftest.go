package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/gemmtest"
	"tilework/internal/dispatch"
)

// selftestFlags are the flags of `tilework selftest`.
type selftestFlags struct {
	device, kernels, format string
	cases                   int
	seed                    uint64
}

func selftestCommand() *cobra.Command {
	var f selftestFlags
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Check every kernel on this machine against the reference",
		Long: `selftest runs the conformance suite on each kernel that this machine can run: exact
products of whole numbers, error bounds, NaN and infinities, untouched padding,
determinism, epilogues, concurrency, cancellation. A failure is printed with what
is needed to run it again, and the exit code is 1.`,
		Example: `  tilework selftest
  tilework selftest --kernels avx2 --cases 20000 --seed 7
  tilework selftest --device emu --cases 200`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.device, "device", "cpu", "the device to test")
	fl.StringVar(&f.kernels, "kernels", "all", "the kernels to test")
	fl.IntVar(&f.cases, "cases", 2000, "cases of the exact check; the others run their share")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the cases (default: from the clock)")
	formatFlag(c, &f.format, listFormats...)
	complete(c, "kernels", append(kernelNames(), "all")...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

// selftestRow is the outcome of one check on one kernel.
type selftestRow struct {
	Kernel string `json:"kernel"`
	gemmtest.CheckReport
}

func (f *selftestFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	device, err := dispatch.ParseDevice(f.device)
	if err != nil {
		return fmt.Errorf("--device: %w", err)
	}
	if err := device.Check(); err != nil {
		return err
	}
	if f.cases < 1 {
		return fmt.Errorf("--cases %d: want 1 or more", f.cases)
	}
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano())
	}
	impls, err := f.implementations(device)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "seed %d\n", f.seed)
	var rows []selftestRow
	failures := 0
	bar := newProgress(stderr)
	defer bar.close()
	for i, impl := range impls {
		report := gemmtest.Check(ctx, impl, gemmtest.Options{
			Cases: f.cases, Seed: f.seed,
			Progress: func(_ string, done, total int) {
				bar.update(int64(i*total+done), int64(len(impls)*total))
			},
			Logf: func(format string, args ...any) {
				bar.close()
				fmt.Fprintf(stderr, impl.Name+": "+format+"\n", args...)
			},
		})
		for _, c := range report.Checks {
			rows = append(rows, selftestRow{impl.Name, c})
			failures += c.Failures
		}
		if report.Stopped != nil {
			return report.Stopped
		}
	}
	bar.close()
	if err := writeList(stdout, f.format, []column[selftestRow]{
		{"KERNEL", func(r selftestRow) any { return r.Kernel }},
		{"CHECK", func(r selftestRow) any { return r.Name }},
		{"CASES", func(r selftestRow) any { return r.Cases }},
		{"FAILED", func(r selftestRow) any { return r.Failures }},
		{"ERROR/BOUND", func(r selftestRow) any { return fmt.Sprintf("%.2g", r.Worst) }},
	}, rows); err != nil {
		return err
	}
	if failures > 0 {
		return fmt.Errorf("%w: %d cases", errCheck, failures)
	}
	return nil
}

// implementations are the device's kernels that were asked for, as the suite sees
// them.
func (f *selftestFlags) implementations(device dispatch.Device) ([]gemmtest.Implementation, error) {
	var impls []gemmtest.Implementation
	for _, k := range dispatch.Kernels(device) {
		if f.kernels == "all" && k.Available || slices.Contains(strings.Split(f.kernels, ","), k.Name) {
			impl := gemmtest.Implementation{
				Name: k.Name, Types: pairsOf(k), Tiles: k.Tiles, Accuracy: k.Accuracy, Concurrent: true, Cancels: true,
				Gemm: func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error {
					plan, err := dispatch.New(dispatch.Request{Problem: p, Device: device, Kernel: k.Name})
					if err != nil {
						return err
					}
					return plan.Run(ctx, b)
				},
			}
			if device.Kind == "emu" {
				impl.Volume = 1 << 15 // it is slow
			}
			impls = append(impls, impl)
		}
	}
	if f.kernels == "all" {
		return impls, nil
	}
	for name := range strings.SplitSeq(f.kernels, ",") {
		if !slices.ContainsFunc(impls, func(i gemmtest.Implementation) bool { return i.Name == name }) {
			return nil, fmt.Errorf("--kernels: no kernel %q on %v", name, device)
		}
	}
	return impls, nil
}

func pairsOf(k dispatch.Kernel) []gemmtest.Pair {
	var pairs []gemmtest.Pair
	for _, p := range gemmtest.Pairs() {
		if slices.Contains(k.Types, p.In) {
			pairs = append(pairs, p)
		}
	}
	return pairs
}
