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
	"tilework/internal/device"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
	"tilework/internal/table"
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
		Short: "Check every kernel on this machine against the reference",
		Long: `selftest runs the conformance suite on each kernel that this machine can run: exact
products of whole numbers, error bounds, NaN and infinities, untouched padding,
determinism, epilogues, batches, concurrency, cancellation. The exit code is 1 where a
case fails, and a line says how to run it again.

--full runs 20,000 cases of the exact check and their share of the others, and prints for
each kernel and type how near to its bounds the largest error came. On a GPU, real or
emulated, every kernel runs in each of its tiles, whole and with K split, and in each
precision that it has; --format json tells these apart. It takes seconds on the processor,
half an hour of one core on the emulator, and two hours of one core on a GPU, where the
driver compiles most cases' kernels anew, one at a time in each process.

--processes shares the cases out among several. Where these run on several machines, --part
i/n runs the i-th of n parts of them, the same for the same --seed.

The columns of the table:
  TILES        how many tile shapes ran, or "chosen" for the one that the kernel chooses
  CHECK        the property, of the list below
  CASES        random products that were tested, and FAILED, those without the property
  ERROR/BOUND  the largest error of an element as a part of its error bound: above 1 a case
               fails, and 0 means that results were exact

The checks:
` + checkHelp(),
		Example: `  tilework selftest
  tilework selftest --kernels avx2 --cases 20000 --seed 7
  tilework selftest --full
  tilework selftest --full --device gpu --processes 16
  tilework selftest --device emu --kernels mma-tf32,wgmma:64x64x64/2x16/12 --cases 100`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.full && c.Flags().Changed("cases") {
				return errors.New("--full and --cases: want one or the other")
			}
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.device, "device", "cpu", "the device to test: cpu, gpu, gpu:N, gpu:UUID, emu, emu:MODEL")
	fl.StringVar(&f.kernels, "kernels", "all", "the kernels to test, each with the precision and tile if need be: mma-tf32:64x64x16/4x8/4")
	fl.IntVar(&f.cases, "cases", 2000, "cases of the exact check; the others run their share")
	fl.BoolVar(&f.full, "full", false, "20,000 cases among all tiles and precisions, and a table of their errors")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the cases (default: from the clock)")
	fl.IntVar(&f.processes, "processes", 1, "how many processes share the cases out")
	fl.StringVar(&f.part, "part", "1/1", "which part of the cases to run, and of how many")
	f.output.addTo(c, listFormats...)
	complete(c, "kernels", append(subjectNames(backend.Device{}), "all")...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

// checkHelp lists the checks of the suite.
func checkHelp() string {
	const indent = "\n             "
	var b strings.Builder
	for _, c := range gemmtest.Checks() {
		fmt.Fprintf(&b, "  %-10s %s\n", c.Name, strings.ReplaceAll(table.Fold(c.About, 75), "\n", indent))
	}
	return strings.TrimRight(b.String(), "\n")
}

// fullCases is how many cases of the exact check --full runs on a device.
const fullCases = 20_000

// casesOf is how many of them an implementation gets: its share, but no fewer than it has types
// and transposes.
func (f *selftestFlags) casesOf(impl *gemmtest.Implementation, of int) int {
	if !f.full {
		return f.cases
	}
	return max(fullCases/of+1, 4*len(impl.Types))
}

// tested is what the suite runs on.
type tested struct {
	kernel, tile string
	// open makes it ready; its cases over, close is called.
	open func() (impl gemmtest.Implementation, close func() error)
}

// selftestRow is the outcome of one check on one kernel, in one tile if that has a name.
type selftestRow struct {
	Kernel string `json:"kernel"`
	Tile   string `json:"tile,omitempty"`
	gemmtest.CheckReport
	// List is how many cases of the exact check there are, of all parts.
	List  int `json:"list"`
	tiles int // how many the row stands for
}

func (f *selftestFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	device, err := namedDevice(f.device)
	if err != nil {
		return err
	}
	if err := dispatch.CheckDevice(device); err != nil {
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
	list, release, err := f.choose(device)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, release()) }()
	fmt.Fprintf(stderr, "seed %d\n", f.seed)
	rows, err := f.check(ctx, list, part, parts, stderr)
	if err != nil {
		return err
	}
	cases, failures, repeat := 0, 0, ""
	for _, r := range rows {
		cases += r.Cases
		if failures += r.Failures; r.Failures > 0 && r.name() != repeat {
			repeat = r.name()
			fmt.Fprintf(stderr, "to repeat: tilework selftest --device %s --kernels %s --cases %d --seed %d\n", f.device, repeat, r.List, f.seed)
		}
	}
	if !strings.HasPrefix(f.output.format, "json") {
		rows = together(rows)
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
	verdict := verdict(failures, cases)
	if f.output.format == "table" {
		if _, err := fmt.Fprintln(stdout, verdict); err != nil {
			return err
		}
	}
	if failures > 0 {
		return fmt.Errorf("%w: %s", errCheck, verdict)
	}
	return nil
}

// verdict sums up a test: "1,234 cases, all passed" or "3 of 1,234 cases failed".
func verdict(failures, cases int) string {
	if failures == 0 {
		return model.Count(cases, "case") + ", all passed"
	}
	return fmt.Sprintf("%s of %s failed", model.Commas(failures), model.Count(cases, "case"))
}

// name is the kernel and its tile, as --kernels has them.
func (r *selftestRow) name() string {
	if r.Tile == "" {
		return r.Kernel
	}
	return r.Kernel + ":" + r.Tile
}

// tileCount is in how many tiles the kernel ran.
func (r *selftestRow) tileCount() any {
	if r.Tile == "" {
		return "chosen"
	}
	return r.tiles
}

// together adds up the rows of a kernel's tiles.
func together(rows []selftestRow) (sums []selftestRow) {
	for _, r := range rows {
		i := slices.IndexFunc(sums, func(s selftestRow) bool {
			return s.Kernel == r.Kernel && s.Name == r.Name && (s.Tile == "") == (r.Tile == "")
		})
		if i < 0 {
			i = len(sums)
			sums = append(sums, selftestRow{Kernel: r.Kernel, Tile: r.Tile, CheckReport: gemmtest.CheckReport{Name: r.Name}})
		}
		sums[i].Add(r.CheckReport)
		sums[i].tiles++
	}
	return sums
}

// check runs part of parts of the cases, counted from 0. Checks of one case, and tiles that take
// long, are each another part's.
func (f *selftestFlags) check(ctx context.Context, list []tested, part, parts int, stderr io.Writer) (rows []selftestRow, err error) {
	if f.processes > 1 {
		return f.share(ctx, part, parts, stderr)
	}
	bar := newProgress(stderr)
	defer bar.close()
	for i, s := range list {
		impl, release := s.open()
		cases := f.casesOf(&impl, len(list))
		report := gemmtest.Check(ctx, impl, gemmtest.Options{
			Cases: cases, Seed: f.seed, Part: (part + i) % parts, Parts: parts,
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
			fmt.Fprintf(stderr, "%s: %s\n", rows[i].name(), line)
		}
	}
	return rows, nil
}

// process runs a part of the cases in a process of its own.
func (f *selftestFlags) process(ctx context.Context, part string) (rows []selftestRow, err error) {
	args := []string{"selftest", "--device", f.device, "--kernels", f.kernels, "--seed", strconv.FormatUint(f.seed, 10), "--part", part, "--format", "json"}
	if f.full {
		args = append(args, "--full")
	} else {
		args = append(args, "--cases", strconv.Itoa(f.cases))
	}
	cmd, err := itself(ctx, args...)
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
		return nil, fmt.Errorf("part %s: %w: %s", part, err, bytes.TrimSpace(said.Bytes()))
	}
	return rows, nil
}

// printErrors prints how far the results of each kernel and type were off.
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
	if _, err := fmt.Fprintln(w, "\nThe largest errors: of an element in units of its bound, the reference BLAS test's ratio in\n"+
		"units of what that lets pass, and the RMS of a product in units of what rounding comes to."); err != nil {
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

// choose lists the device's kernels that were asked for, as the suite sees them until release is
// called.
func (f *selftestFlags) choose(device backend.Device) (all []tested, release func() error, err error) {
	if device.Kind == "cpu" {
		all, err = f.onCPU(device)
		return all, func() error { return nil }, err
	}
	backend, release, err := dispatch.OpenGPU(device)
	if err != nil {
		return nil, nil, err
	}
	ways, err := f.ways(device, backend.Device.Info())
	if err != nil {
		return nil, nil, cmp.Or(release(), err)
	}
	for _, w := range ways {
		all = append(all, tested{w.Name(), w.Tile(), func() (gemmtest.Implementation, func() error) {
			own := stream.New(backend.Device) // what it compiles is of no use to others
			return w.On(own), own.Close
		}})
	}
	return all, release, nil
}

// ways are those of the GPU's kernels that were asked for: with --full in each of their tiles.
func (f *selftestFlags) ways(device backend.Device, info *device.Info) (all []gputest.Way, err error) {
	if f.kernels == "all" && f.full {
		return gputest.All(info), nil
	}
	names := strings.Split(f.kernels, ",")
	if f.kernels == "all" {
		names = kernelsOf(device)
	}
	for _, name := range names {
		kernel, precision := splitPrecision(name)
		kernel, shape, shaped := strings.Cut(kernel, ":")
		subject, _, _ := strings.Cut(name, ":")
		if known := subjectNames(device); !slices.Contains(known, subject) {
			return nil, fmt.Errorf("--kernels: %w", unknownKernel(subject, device, known))
		}
		k, err := choose.Find(kernel)
		if err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		w := gputest.Way{Kernel: k, Precision: precision}
		switch {
		case !info.Target.Has(k.Target()) && f.kernels == "all":
		case !info.Target.Has(k.Target()):
			return nil, fmt.Errorf("--kernels: %w: kernel %s needs %v, and %s is %v", gemm.ErrUnsupported, k.Name, k.Target(), info.Name, info.Target)
		case shaped:
			if w.Shape, err = k.ParseTile(shape); err != nil {
				return nil, fmt.Errorf("--kernels: %w", err)
			}
			all = append(all, w)
		case f.full:
			all = append(all, w.Shapes()...)
		default:
			all = append(all, w)
		}
	}
	return all, nil
}

// onCPU are the processor's kernels.
func (f *selftestFlags) onCPU(device backend.Device) (all []tested, err error) {
	for _, k := range dispatch.Kernels(device) {
		if f.kernels == "all" && k.Available || slices.Contains(strings.Split(f.kernels, ","), k.Name) {
			all = append(all, tested{kernel: k.Name, open: func() (gemmtest.Implementation, func() error) {
				return onProcessor(k), func() error { return nil }
			}})
		}
	}
	if f.kernels == "all" {
		return all, nil
	}
	for name := range strings.SplitSeq(f.kernels, ",") {
		if !slices.ContainsFunc(all, func(s tested) bool { return s.kernel == name }) {
			return nil, fmt.Errorf("--kernels: %w", unknownKernel(name, device, kernelsOf(device)))
		}
	}
	return all, nil
}

// onProcessor is a kernel of the processor as the suite sees it.
func onProcessor(k dispatch.Kernel) gemmtest.Implementation {
	plan := func(p *gemm.Problem) (*dispatch.Plan, error) {
		return dispatch.New(dispatch.Request{Problem: *p, Device: backend.Device{Kind: "cpu"}, Kernel: k.Name})
	}
	impl := gemmtest.Implementation{
		Name: k.Name, Tiles: k.Tiles, Accuracy: k.Accuracy, Concurrent: true, Cancels: true,
		Gemm: func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error {
			pl, err := plan(p)
			if err != nil {
				return err
			}
			return pl.Run(ctx, b)
		},
		Batch: func(ctx context.Context, p *gemmtest.Problem, ends []int32, b gemmtest.Buffers) error {
			var batch []dispatch.Product
			first := 0 // row of a group
			for n := range p.Products() {
				one, at := p.Product(n)
				bias := 0
				if ends != nil {
					one, at, bias = p.Group(n, first, int(ends[n]))
					first = int(ends[n])
				}
				pl, err := plan(&one)
				if err != nil {
					return err
				}
				memory := gemm.Buffers{A: from(b.A, at[0]), B: from(b.B, at[1]), C: from(b.C, at[2]), Bias: from(b.Bias, bias)}
				batch = append(batch, dispatch.Product{Plan: *pl, Buffers: memory})
			}
			return dispatch.RunBatch(ctx, batch)
		},
	}
	for _, p := range gemmtest.Pairs() {
		if slices.Contains(k.Types, p.In) {
			impl.Types = append(impl.Types, p)
		}
	}
	return impl
}

// from is memory from a byte on; a matrix without elements has none.
func from(b []byte, at int) []byte { return b[min(at, len(b)):] }
