package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tilework/gemmtest"
	"tilework/internal/dispatch"
)

// selftestFlags are the flags of `tilework selftest`.
type selftestFlags struct {
	device, kernels, format string
	cases                   int
	full                    bool
	seed                    uint64
	processes               int
	part                    string
}

func selftestCommand() *cobra.Command {
	var f selftestFlags
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Check every kernel on this machine against the reference",
		Long: `selftest runs the conformance suite on each kernel that this machine can run: exact
products of whole numbers, error bounds, NaN and infinities, untouched padding,
determinism, epilogues, concurrency, cancellation. A failure is printed with what
is needed to run it again, and the exit code is 1.

--full runs 20,000 cases of the exact check and 3,000 of the bounds, shared out among
the kernels, and prints for each kernel and type how near to its bounds the largest
error came. It takes seconds, on the emulator a quarter of an hour.

On a GPU nearly all of the time goes to the driver, which compiles hundreds of kernels, one
at a time in each process: --processes shares the cases out among several. Where these run on
several machines, --part i/n runs the i-th of n parts of them, the same for the same --seed.`,
		Example: `  tilework selftest
  tilework selftest --kernels avx2 --cases 20000 --seed 7
  tilework selftest --full
  tilework selftest --full --device gpu --processes 16
  tilework selftest --device emu --cases 200`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.full && c.Flags().Changed("cases") {
				return errors.New("--full and --cases: want one or the other")
			}
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.device, "device", "cpu", "the device to test")
	fl.StringVar(&f.kernels, "kernels", "all", "the kernels to test")
	fl.IntVar(&f.cases, "cases", 2000, "cases of the exact check; the others run their share")
	fl.BoolVar(&f.full, "full", false, "20,000 cases among the kernels, and a table of their errors")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the cases (default: from the clock)")
	fl.IntVar(&f.processes, "processes", 1, "how many processes share the cases out")
	fl.StringVar(&f.part, "part", "1/1", "which part of the cases to run, and of how many")
	formatFlag(c, &f.format, listFormats...)
	complete(c, "kernels", append(kernelNames(), "all")...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

// What --full runs of the exact check: so many cases on a device, and on each of its
// kernels at least so many.
const fullCases, leastCases = 20_000, 200

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
	part, parts, err := f.parts()
	if err != nil {
		return err
	}
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano())
	}
	impls, err := f.implementations(device)
	if err != nil {
		return err
	}
	if f.full {
		f.cases = max(fullCases/max(len(impls), 1)+1, leastCases)
	}
	fmt.Fprintf(stderr, "seed %d\n", f.seed)
	rows, err := f.check(ctx, impls, part, parts, stderr)
	if err != nil {
		return err
	}
	failures := 0
	for _, r := range rows {
		failures += r.Failures
	}
	if err := writeList(stdout, f.format, []column[selftestRow]{
		{"KERNEL", func(r selftestRow) any { return r.Kernel }},
		{"CHECK", func(r selftestRow) any { return r.Name }},
		{"CASES", func(r selftestRow) any { return r.Cases }},
		{"FAILED", func(r selftestRow) any { return r.Failures }},
		{"ERROR/BOUND", func(r selftestRow) any { return fmt.Sprintf("%.2g", r.Worst) }},
	}, rows); err != nil {
		return err
	}
	if f.full && f.format == "table" {
		if err := printErrors(stdout, rows); err != nil {
			return err
		}
	}
	if failures > 0 {
		return fmt.Errorf("%w: %d cases", errCheck, failures)
	}
	return nil
}

// check runs part of parts of the cases, counted from 0.
func (f *selftestFlags) check(ctx context.Context, impls []gemmtest.Implementation, part, parts int, stderr io.Writer) (rows []selftestRow, err error) {
	if f.processes > 1 {
		return f.share(ctx, part, parts, stderr)
	}
	bar := newProgress(stderr)
	defer bar.close()
	for i, impl := range impls {
		report := gemmtest.Check(ctx, impl, gemmtest.Options{
			Cases: f.cases, Seed: f.seed, Part: part, Parts: parts,
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
		}
		if report.Stopped != nil {
			return nil, report.Stopped
		}
	}
	return rows, nil
}

// parts are --part's numbers, the first counted from 0.
func (f *selftestFlags) parts() (part, parts int, err error) {
	i, n, ok := strings.Cut(f.part, "/")
	part, err = strconv.Atoi(i)
	parts, err2 := strconv.Atoi(n)
	switch {
	case !ok || err != nil || err2 != nil || part < 1 || part > parts:
		return 0, 0, fmt.Errorf("--part %s: want i/n, the i-th of n parts", f.part)
	case parts > 1 && f.seed == 0:
		return 0, 0, fmt.Errorf("--part %s: want --seed too, the same for all parts", f.part)
	case f.processes < 1 || f.processes > maxProcesses:
		return 0, 0, fmt.Errorf("--processes %d: want 1 to %d", f.processes, maxProcesses)
	}
	return part - 1, parts, nil
}

// maxProcesses is more than any machine has use for, and few enough to start.
const maxProcesses = 1024

// itself is this command in a process of its own.
var itself = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	return exec.CommandContext(ctx, path, args...), err
}

// share has several processes run a part of the part each, and adds up what they report.
func (f *selftestFlags) share(ctx context.Context, part, parts int, stderr io.Writer) ([]selftestRow, error) {
	reports, errs := make([][]selftestRow, f.processes), make([]error, f.processes)
	var all sync.WaitGroup
	for n := range f.processes {
		all.Go(func() {
			reports[n], errs[n] = f.process(ctx, fmt.Sprintf("%d/%d", part+n*parts+1, f.processes*parts))
		})
	}
	all.Wait()
	if err := cmp.Or(ctx.Err(), errors.Join(errs...)); err != nil {
		return nil, err
	}
	rows := reports[0]
	for i := range rows {
		for _, more := range reports[1:] {
			rows[i].Add(more[i].CheckReport)
		}
		for _, line := range rows[i].Lines {
			fmt.Fprintf(stderr, "%s: %s\n", rows[i].Kernel, line)
		}
	}
	return rows, nil
}

// process runs a part of the cases in a process of its own.
func (f *selftestFlags) process(ctx context.Context, part string) (rows []selftestRow, err error) {
	cmd, err := itself(ctx, "selftest", "--device", f.device, "--kernels", f.kernels, "--cases", strconv.Itoa(f.cases),
		"--seed", strconv.FormatUint(f.seed, 10), "--part", part, "--format", "json")
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitCode(errCheck)) {
		return nil, fmt.Errorf("part %s: %w: %s", part, err, bytes.TrimSpace(said.Bytes()))
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		return nil, fmt.Errorf("part %s: %w", part, err)
	}
	return rows, nil
}

// printErrors prints how far the results of each kernel and type were off.
func printErrors(w io.Writer, rows []selftestRow) error {
	type errors struct {
		kernel, check string
		gemmtest.TypeErrors
	}
	var all []errors
	for _, r := range rows {
		for _, e := range r.ByType {
			all = append(all, errors{r.Kernel, r.Name, e})
		}
	}
	if _, err := fmt.Fprintln(w, "\nThe largest errors: of an element in units of its bound, the reference BLAS test's ratio in\n"+
		"units of what that lets pass, and the RMS of a product in units of what rounding comes to."); err != nil {
		return err
	}
	return writeList(w, "table", []column[errors]{
		{"KERNEL", func(e errors) any { return e.kernel }},
		{"CHECK", func(e errors) any { return e.check }},
		{"TYPES", func(e errors) any { return e.In + " → " + e.Out }},
		{"CASES", func(e errors) any { return e.Cases }},
		{"ERROR/BOUND", func(e errors) any { return fmt.Sprintf("%.2g", e.Worst) }},
		{"BLAS", func(e errors) any { return fmt.Sprintf("%.2g", e.BLAS) }},
		{"RMS", func(e errors) any { return fmt.Sprintf("%.2g", e.Alarm) }},
	}, all)
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
					plan, err := dispatch.New(dispatch.Request{Problem: *p, Device: device, Kernel: k.Name})
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
			return nil, fmt.Errorf("--kernels: %w", unknownKernel(name, device, kernelsOf(device)))
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
