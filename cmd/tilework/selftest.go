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
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/ints"
	"tilework/internal/phrase"
)

// selftestFlags are the flags of `tilework selftest`.
type selftestFlags struct {
	device, kernels string
	output          listFlags
	cases           int
	full            bool
	seed            uint64
	processes       int
	part            string
}

func selftestCommand() *cobra.Command {
	var f selftestFlags
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Check every kernel on this machine against a reference",
		Long: `selftest runs the conformance suite on each kernel that this machine can run. The checks
include exact products of whole numbers, error bounds, NaN and infinities, padding, determinism,
epilogues, batches, concurrency and cancellation. If a case fails, the exit code is 1, message gives the command that repeats the case. If selftest is interrupted, it prints the results
so far. the command that repeats the case. An interrupted selftest prints what it has tested.

On a GPU, real or emulated, each kernel runs in each of its precisions, with the smallest tile for
each element type of the operands. The cases have few combinations of result type, transposes and
epilogue, because the driver compiles a kernel for each. --seed selects them.

--full runs 20,000 cases of the exact check, at least 200 for each kernel, and proportionally
many of the others. It prints the largest error for each kernel and element type. On a GPU, each kernel runs with each of its
tiles, with and without split-K, in all combinations; --format json lists the tiles separately.
This takes seconds on the CPU, half an hour of one core on the emulator, and two hours of one core
on a GPU: the driver compiles a kernel for most cases, one at a time in each process.

--processes N distributes the cases over N processes. To distribute them over n machines, run
--part i/n with the same --seed on each machine, with i from 1 to n.

The columns of the table:
  TILES        the number of tiles that were tested, or "chosen" for the tile
               that the kernel chooses for each product
  CHECK        the check, see the list below
  CASES        the number of random products that were tested
  FAILED       the number of these that failed
  ERROR/BOUND  the largest error of an element divided by its error bound: a
               case fails if it is above 1, and 0 means exact results

The checks:
` + checkHelp(),
		Example: `  tilework selftest
  tilework selftest --device gpu
  tilework selftest --kernels avx2 --cases 20000 --seed 7
  tilework selftest --full
  tilework selftest --full --device gpu --processes 16
  tilework selftest --device emu --kernels mma-tf32,wgmma:64x64x64/2x16/12 --cases 100`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("cases") && f.cases < 1 {
				return fmt.Errorf("--cases %d: want 1 or more", f.cases)
			}
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.device, "device", "cpu", "the `DEVICE` to test: cpu, gpu, gpu:N, gpu:UUID, emu, emu:MODEL")
	fl.StringVar(&f.kernels, "kernels", "all",
		"comma-separated `KERNELS` to test, optionally with a precision and a tile: mma-tf32:64x64x16/4x8/4")
	fl.IntVar(&f.cases, "cases", 0, fmt.Sprintf("the `NUMBER` of cases of the exact check for each kernel; the other "+
		"checks run proportionally many (default %d, on a GPU %d)", casesOnCPU, casesOnGPU))
	fl.BoolVar(&f.full, "full", false,
		"run 20,000 cases over all tiles and combinations, and print a table of the errors")
	fl.Uint64Var(&f.seed, "seed", 0, "the `SEED` of the cases (default: from the clock)")
	fl.IntVar(&f.processes, "processes", 1, "the `NUMBER` of processes that the cases are distributed over")
	fl.StringVar(&f.part, "part", "1/1", "run only one `PART` of the cases: i/n, the i-th of n")
	f.output.addTo(c, listFormats...)
	complete(c, "kernels", append(subjectNames(backend.DeviceName{}), "all")...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

// checkHelp lists the checks of the suite.
func checkHelp() string {
	var all []definition
	for _, c := range gemmtest.Checks() {
		all = append(all, definition{c.Name, c.About})
	}
	return definitions(10, all)
}

// Numbers of cases of the exact check.
const (
	casesOnCPU = 2000   // for each kernel, by default
	casesOnGPU = 100    // likewise
	fullCases  = 20_000 // for all kernels of a device together, with --full
	leastCases = 200    // for each kernel, with --full
)

// caseCount returns the number of cases of the exact check for list[i], whose implementation is
// impl. With --full and without --cases, there is at least one for each combination of types and
// transposes.
func (f *selftestFlags) caseCount(list []testTarget, i int, impl *gemmtest.Implementation) int {
	if f.cases > 0 {
		return f.cases
	}
	tiles := 0
	for _, s := range list {
		if s.kernel == list[i].kernel {
			tiles++
		}
	}
	return max(fullCases/len(list)+1, ints.CeilDiv(leastCases, tiles), 4*len(impl.Types))
}

// selftestRow is the outcome of one check on one kernel, or on one tile of it.
type selftestRow struct {
	Kernel string `json:"kernel"`
	Tile   string `json:"tile,omitempty"`
	gemmtest.CheckReport
	// List is the number of cases of the exact check in all parts together.
	List  int `json:"list"`
	tiles int // the number of tiles that the row sums up
}

func (f *selftestFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	device, err := namedDevice(f.device)
	if err != nil {
		return err
	}
	if err := dispatch.CheckDevice(device); err != nil {
		return err
	}
	switch {
	case f.cases > 0 || f.full:
	case device.Kind == backend.CPU:
		f.cases = casesOnCPU
	default:
		f.cases = casesOnGPU
	}
	part, parts, err := f.parts()
	if err != nil {
		return err
	}
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano())
	}
	list, release, err := f.choose(device)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, release()) }()
	fmt.Fprintf(stderr, "seed %d\n", f.seed)
	rows, stopped := f.check(ctx, list, part, parts, stderr)
	cases, failures, repeat, full := 0, 0, "", ""
	if f.full {
		full = " --full"
	}
	for _, r := range rows {
		cases += r.Cases
		if failures += r.Failures; r.Failures > 0 && r.name() != repeat {
			repeat = r.name()
			fmt.Fprintf(stderr, "to repeat: tilework selftest --device %s --kernels %s --cases %d --seed %d%s\n",
				f.device, repeat, r.List, f.seed, full)
		}
	}
	if cases == 0 && stopped != nil {
		return stopped
	}
	if !strings.HasPrefix(f.output.format, "json") {
		rows = sumTiles(rows)
	}
	if err := writeList(stdout, f.output, []column[selftestRow]{
		fixed("KERNEL", func(r selftestRow) any { return r.Kernel }),
		fixed("TILES", func(r selftestRow) any { return r.tileCount() }),
		fixed("CHECK", func(r selftestRow) any { return r.Name }),
		fixed("CASES", func(r selftestRow) any { return r.Cases }),
		fixed("FAILED", func(r selftestRow) any { return r.Failures }),
		fixed("ERROR/BOUND", func(r selftestRow) any { return fmt.Sprintf("%.2g", r.Worst) }),
	}, rows); err != nil {
		return err
	}
	if f.full && f.output.format == "table" {
		if err := printErrors(stdout, f.output, rows); err != nil {
			return err
		}
	}
	verdict := verdict(failures, cases, stopped != nil)
	if f.output.format == "table" {
		if _, err := fmt.Fprintln(stdout, verdict); err != nil {
			return err
		}
	}
	if failures > 0 {
		return fmt.Errorf("%w: %s", errCheck, verdict)
	}
	return stopped
}

// verdict summarizes a test: "1,234 cases, all passed" or "3 of 1,234 cases failed". It tells
// whether the test was interrupted.
func verdict(failures, cases int, interrupted bool) string {
	text := phrase.Count(cases, "case") + ", all passed"
	if failures > 0 {
		text = fmt.Sprintf("%s of %s failed", phrase.Commas(failures), phrase.Count(cases, "case"))
	}
	if interrupted {
		text += " until the interruption"
	}
	return text
}

// name returns the kernel and its tile in the syntax of --kernels.
func (r *selftestRow) name() string {
	if r.Tile == "" {
		return r.Kernel
	}
	return r.Kernel + ":" + r.Tile
}

// tileCount returns the value of the column TILES.
func (r *selftestRow) tileCount() any {
	if r.Tile == "" {
		return "chosen"
	}
	return r.tiles
}

// sumTiles adds up the rows of the tiles of each kernel.
func sumTiles(rows []selftestRow) (sums []selftestRow) {
	for _, r := range rows {
		i := slices.IndexFunc(sums, func(s selftestRow) bool {
			return s.Kernel == r.Kernel && s.Name == r.Name && (s.Tile == "") == (r.Tile == "")
		})
		if i < 0 {
			i = len(sums)
			sums = append(sums,
				selftestRow{Kernel: r.Kernel, Tile: r.Tile, CheckReport: gemmtest.CheckReport{Name: r.Name}})
		}
		sums[i].Add(r.CheckReport)
		sums[i].tiles++
	}
	return sums
}

// check runs the cases of a part, counted from 0. Which cases belong to a part is shifted from
// kernel to kernel, so that one part does not get all checks with a single case and all slow tiles.
// If ctx ends, check returns its error and the rows so far. After other errors there are no rows.
func (f *selftestFlags) check(ctx context.Context, list []testTarget, part, parts int,
	stderr io.Writer) (rows []selftestRow, err error) {
	if f.processes > 1 {
		return f.runProcesses(ctx, part, parts, stderr)
	}
	bar := newProgress(stderr)
	defer bar.close()
	for i, s := range list {
		impl, release := s.open()
		cases := f.caseCount(list, i, &impl)
		report := gemmtest.Check(ctx, impl, gemmtest.Options{
			Cases: cases, Seed: f.seed, FewForms: s.fewForms, Part: (part + i) % parts, Parts: parts,
			Progress: func(_ string, done, total int) {
				bar.update(int64(i*total+done), int64(len(list)*total))
			},
			Logf: func(format string, args ...any) {
				bar.close()
				fmt.Fprintf(stderr, impl.Name+": "+format+"\n", args...)
			},
		})
		if err := release(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errCheck, impl.Name, err)
		}
		for _, c := range report.Checks {
			rows = append(rows, selftestRow{Kernel: s.kernel, Tile: s.tile, CheckReport: c, List: cases})
		}
		if report.Stopped != nil {
			return rows, report.Stopped
		}
	}
	return rows, nil
}

// parts parses --part. It returns the number of the part, counted from 0, and the number of parts.
func (f *selftestFlags) parts() (part, parts int, err error) {
	i, n, ok := strings.Cut(f.part, "/")
	part, err = strconv.Atoi(i)
	parts, err2 := strconv.Atoi(n)
	switch {
	case !ok || err != nil || err2 != nil || part < 1 || part > parts:
		return 0, 0, fmt.Errorf("--part %s: want i/n with i from 1 to n", f.part)
	case parts > 1 && f.seed == 0:
		return 0, 0, fmt.Errorf("--part %s without --seed: want the same --seed for all parts", f.part)
	case f.processes < 1 || f.processes > maxProcesses:
		return 0, 0, fmt.Errorf("--processes %d: want 1 to %d", f.processes, maxProcesses)
	}
	return part - 1, parts, nil
}

// maxProcesses limits --processes to a number that a large machine can start.
const maxProcesses = 1024

// selfCommand returns a command that runs this program with the given arguments until ctx ends.
// Tests replace it.
var selfCommand = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	return exec.CommandContext(ctx, path, args...), err
}

// runProcesses divides a part of the cases further, runs each of these parts in a process, and adds
// up the reports. If ctx ends, these are the reports so far.
func (f *selftestFlags) runProcesses(ctx context.Context, part, parts int, stderr io.Writer) ([]selftestRow, error) {
	reports, errs := make([][]selftestRow, f.processes), make([]error, f.processes)
	var all sync.WaitGroup
	for n := range f.processes {
		all.Go(func() {
			reports[n], errs[n] = f.runProcess(ctx, fmt.Sprintf("%d/%d", part+n*parts+1, f.processes*parts))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		return nil, err
	}
	slices.SortFunc(reports, func(a, b []selftestRow) int { return cmp.Compare(len(b), len(a)) })
	rows := reports[0]
	for i := range rows {
		for _, more := range reports[1:] {
			if i < len(more) { // an interrupted process has only the first rows
				rows[i].Add(more[i].CheckReport)
			}
		}
		for _, line := range rows[i].Lines {
			fmt.Fprintf(stderr, "%s: %s\n", rows[i].name(), line)
		}
	}
	return rows, ctx.Err()
}

// runProcess runs a part of the cases in a process. If ctx ends, the rows are those so far.
func (f *selftestFlags) runProcess(ctx context.Context, part string) (rows []selftestRow, err error) {
	args := []string{
		"selftest", "--device", f.device, "--kernels", f.kernels,
		"--seed", strconv.FormatUint(f.seed, 10), "--part", part, "--format", "json",
	}
	if f.full {
		args = append(args, "--full")
	}
	if f.cases > 0 {
		args = append(args, "--cases", strconv.Itoa(f.cases))
	}
	cmd, err := selfCommand(ctx, args...)
	if err != nil {
		return nil, err
	}
	interruptible(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		_ = json.Unmarshal(out, &rows) // a killed process has written nothing
		return rows, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitCode(errCheck)) {
		return nil, fmt.Errorf("part %s: %w: %s", part, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		return nil, fmt.Errorf("part %s: %w: %s", part, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return rows, nil
}

// printErrors prints the largest errors of each kernel and type.
func printErrors(w io.Writer, o listFlags, rows []selftestRow) error {
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
	if _, err := fmt.Fprintln(w, `
The largest errors:
  ERROR/BOUND  the error of an element divided by its bound
  BLAS         the ratio of the reference BLAS test divided by the largest ratio that it accepts
  RMS          the RMS error of a product divided by the RMS error expected from rounding`); err != nil {
		return err
	}
	return writeList(w, o, []column[errors]{
		fixed("KERNEL", func(e errors) any { return e.kernel }),
		fixed("CHECK", func(e errors) any { return e.check }),
		fixed("TYPES", func(e errors) any { return e.In + " → " + e.Out }),
		fixed("CASES", func(e errors) any { return e.Cases }),
		fixed("ERROR/BOUND", func(e errors) any { return fmt.Sprintf("%.2g", e.Worst) }),
		fixed("BLAS", func(e errors) any { return fmt.Sprintf("%.2g", e.BLAS) }),
		fixed("RMS", func(e errors) any { return fmt.Sprintf("%.2g", e.RMS) }),
	}, all)
}
