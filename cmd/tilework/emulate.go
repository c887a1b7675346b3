package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/internal/host"
	"tilework/internal/matio"
	"tilework/internal/names"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// emulateFlags are the flags of `tilework emulate`.
type emulateFlags struct {
	kernelLaunch
	script          string
	named           map[string]kernelArg // the memory of a script
	maxInstructions int64
	seed            uint64
	workers         int
	checkers        string
	allow           []string
	format          string
	force           bool
	list            bool
}

func emulateCommand() *cobra.Command {
	var f emulateFlags
	c := &cobra.Command{
		Use:   "emulate FILE.ptx",
		Short: "Run a kernel from a PTX file on the emulator, and find its faults",
		Long: `emulate runs a kernel from a PTX file on the CPU. The PTX may come from nvcc -ptx or any other
tool. Checkers observe the run. Each finding is printed with its line in the PTX file and in
the source code. An error is a fault of the kernel, and the exit code is then 1:
  race      two threads access the same bytes without synchronization, and one
            of them writes
  barrier   threads skip a barrier that others wait at (__syncthreads() in a
            branch, or in a loop with a different number of iterations), reach
            it at different lines, or wait forever
  bounds    an access is misaligned, or outside the memory allocated for the
            kernel
  uninit    a branch, an address or a store depends on an undefined value: of a
            register or memory that was not written, or of a lane that does not
            take part in a shuffle
Advice is about code that may be correct:
  barrier   threads return before a barrier that others reach
  banks     bank conflicts in shared memory
  coalesce  uncoalesced accesses to global memory

Each --arg is one argument of the kernel. A missing or wrong one is an error that lists what the
kernel takes.
  A.npy                 a pointer to a copy of the matrix in the file; an .npy
                        file can have any number of dimensions, and its elements
                        keep their type
  out:f32:MxN:C.npy     a pointer to memory for an M×N matrix, which is written
                        to C.npy at the end; no other argument may name this
                        file. In an .npy file, the output can have 1 to 5
                        dimensions and any integer type: out:u64:1000:C.npy
  inout:A.npy:B.npy     a pointer to a copy of A.npy, which is written to B.npy
                        at the end
  struct:u32:64,A.npy   a structure by value; its fields are numbers and
                        pointers as above, each aligned to its size
  tensor:BOX:S:ARG      a tensor map of the matrix or array of ARG, which is one
                        of the above, with a box of as many dimensions, such as
                        64x64, and a swizzle of S bytes (0, 32, 64 or 128); a
                        box of 64x64/2x1 has every second row, and with 128,nan
                        for S the elements outside of the tensor are NaNs; with
                        0,slices the last dimension of ARG is a slice of 16 or
                        32 bytes, as in NC/8HWC8, and the box has one dimension
                        fewer; a box of 64x32@-1x-1@-1x-1 is 64 pixels of 32
                        channels in im2col mode, with the lower and the upper
                        corner of the filter's positions
  scratch:f32:1000      a pointer to memory that is written to no file; 1 to 5
                        dimensions
  u32:64, f32:1.5, …    a number; the types are u8 to u64, s8 to s64, f32 and
                        f64

--script runs several launches, one after the other, from a JSON file:
  {"memory": {"x": "a.npy", "sums": "scratch:f32:512",
              "y": "out:f32:256x512:y.npy"},
   "launches": [
     {"entry": "sums", "grid": "2", "block": "256",
      "args": ["memory:x", "memory:sums"]},
     {"entry": "subtract", "grid": "2x256", "block": "256",
      "args": ["memory:x", "memory:sums", "memory:y"]}]}
The launches share the memory, and the argument memory:NAME is a pointer to it. A launch can also
have "cluster" and "smem". Outputs are written after the last launch.

A kernel that uses an instruction which the emulator does not support is refused, with the
position of the instruction. The other kernels of the file can run. --list lists both.

The files of the examples are in the folder examples/data of the repository.`,
		Example: `  tilework emulate broken.ptx --grid 1 --block 16x16 --arg a.npy --arg b.npy \
    --arg out:f32:256x128:c.npy --arg s32:256 --arg s32:128 --arg s32:512
  tilework emulate broken.ptx --grid 1 --block 16x16 --arg a.npy --arg b.npy \
    --arg out:f32:256x128:c.csv --arg s32:256 --arg s32:128 --arg s32:512 \
    --checkers race,bounds
  tilework emulate columns.ptx --script columns.json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("emulate takes one PTX file, found %d%s: want the kernel's arguments as --arg, such as "+
					"tilework emulate kernel.ptx --block 256 --arg a.npy --arg out:f32:64x64:c.npy; see tilework emulate --help",
					len(args), inParens(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Entry, "entry", "",
		"the `KERNEL` to run, as in the PTX or in the source (default: the only one in the file)")
	fl.StringVar(&f.Grid, "grid", "1", "the `SIZE` of the grid in blocks: 16, 16x16 or 4x4x2")
	fl.StringVar(&f.Cluster, "cluster", "",
		"the `SIZE` of a cluster in blocks: 2, 2x2 or 2x2x2 (default: as the kernel declares)")
	fl.StringVar(&f.Block, "block", "1", "the `SIZE` of a block in threads: 256, 16x16 or 8x8x4")
	fl.StringVar(&f.Smem, "smem", "0", "`BYTES` of dynamic shared memory per block: 2048 or 2KB")
	fl.StringArrayVar(&f.Args, "arg", nil, "an `ARGUMENT` of the kernel; repeat the flag for each argument, in order")
	fl.StringVar(&f.script, "script", "", "a JSON `FILE` with the launches to run, instead of one launch")
	fl.Int64Var(&f.maxInstructions, "max-instructions", 1e9,
		"stop after this `NUMBER` of warp instructions (0: no limit)")
	fl.Uint64Var(&f.seed, "seed", 1, "the `SEED` of the order in which warps run")
	fl.IntVar(&f.workers, "workers", 0,
		"the `NUMBER` of blocks that run concurrently (0: one per core; 1: the same order in every run)")
	fl.StringVar(&f.checkers, "checkers", "all",
		"the `CHECKERS` to run: all, none, or a comma-separated list of "+strings.Join(checkerNames(), ", "))
	fl.StringSliceVar(&f.allow, "allow", nil,
		"comma-separated `RULES` whose violation is advice, because GPUs run such code today: "+
			strings.Join(ruleNames(), ","))
	fl.BoolVar(&f.list, "list", false, "list the kernels of the file and why some cannot run, instead of running one")
	for _, flag := range []string{"entry", "grid", "cluster", "block", "smem", "arg", "list"} {
		exclusive(c, "script", flag)
	}
	forceFlag(c, &f.force)
	formatFlag(c, &f.format, "table", "json")
	completeEntry(c)
	complete(c, "allow", ruleNames()...)
	complete(c, "checkers", append(checkerNames(), "all", "none")...)
	return c
}

// completeEntry completes --entry with the kernels of the file that the command line names.
func completeEntry(c *cobra.Command) {
	kernels := func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		p, err := loadPTX(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return p.Entries(), cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("entry", kernels); err != nil {
		panic(err) // the flag does not exist
	}
}

func (f *emulateFlags) run(ctx context.Context, file string, stdout, stderr io.Writer) error {
	program, err := loadPTX(file)
	if err != nil {
		return err
	}
	if f.list {
		return f.listKernels(stdout, program)
	}
	options, checked, err := f.parseCheckers()
	if err != nil {
		return err
	}
	if f.workers < 0 {
		return fmt.Errorf("--workers %d: want 0 or more", f.workers)
	}
	if f.maxInstructions < 0 {
		return fmt.Errorf("--max-instructions %d: want 0 or more", f.maxInstructions)
	}
	described := []kernelLaunch{f.kernelLaunch}
	mem := emu.NewMemory(emu.MemoryOptions{Room: host.CheckMemory, TrackWrites: checked})
	var args []kernelArg
	var uses fileUses
	if f.script != "" {
		if described, args, err = f.readScript(ctx, mem, &uses); err != nil {
			return err
		}
	}
	launches, kernels := make([]emu.Launch, len(described)), entriesOf(program)
	for i := range described {
		d := &described[i]
		own, err := f.parseArgs(ctx, mem, d, &uses)
		if err == nil {
			launches[i], err = f.launch(file, program, kernels, d, own)
		}
		if err != nil {
			return err
		}
		if launches[i].Printf = stdout; f.format == "json" {
			launches[i].Printf = stderr
		}
		args = append(args, own...)
	}

	var results []emulateResult
	var runErr error
	for i, launch := range launches {
		result, err := runLaunch(ctx, program, mem, launch, options, checked)
		if errors.Is(err, emu.ErrLaunch) {
			return described[i].in(err)
		}
		result.Launch = described[i].place
		results = append(results, result)
		if f.format == "table" {
			if err := result.print(stdout); err != nil {
				return err
			}
		}
		if err != nil {
			runErr = described[i].in(err)
			break
		}
	}
	if f.format == "json" {
		if err := f.printJSON(stdout, results); err != nil {
			return err
		}
	}
	switch {
	case failedCheck(runErr):
		return fmt.Errorf("%w: %w", errCheck, runErr)
	case runErr != nil:
		return runErr
	}
	if err := f.writeArgs(ctx, mem, args, stderr); err != nil {
		return err
	}
	failed := 0
	for _, r := range results {
		failed += r.Errors
	}
	if failed > 0 {
		return fmt.Errorf("%w: %d %s", errCheck, failed, plural("error", failed))
	}
	return nil
}

// runLaunch runs a launch with its checkers.
func runLaunch(
	ctx context.Context, p *emu.Program, mem *emu.Memory, launch emu.Launch, o check.Options, checked bool,
) (emulateResult, error) {
	checks := check.New(o)
	if checked {
		launch.Observers = []emu.Observer{checks}
	}
	start := time.Now()
	stats, err := p.Run(ctx, mem, launch)
	took := time.Since(start)
	report := &check.Report{}
	if checked && !errors.Is(err, emu.ErrLaunch) {
		report = checks.Report(p, stats, err)
	}
	return newEmulateResult(report, stats, took, err), err
}

// loadFactor is the largest measured memory for a program divided by the length of its text, for a
// text of kernels without instructions. A text of ret instructions takes 140, and one of labels and
// branches 80.
const loadFactor = 180

func loadPTX(file string) (*emu.Program, error) {
	text, err := ptx.ReadFile(file)
	if err != nil {
		return nil, matio.FileError(err)
	}
	if err := host.CheckMemory(loadFactor*len(text), "the program in "+file); err != nil {
		return nil, err
	}
	module, err := ptx.Parse(file, text)
	if err != nil {
		return nil, err
	}
	return emu.Load(module)
}

// listedKernel is a kernel in the output of --list.
type listedKernel struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitempty"` // an example
	Refused   string `json:"refused,omitempty"`   // the first reason why the kernel cannot run
}

// listKernels prints the kernels that can run, with example arguments, and then the others, with
// the reasons.
func (f *emulateFlags) listKernels(w io.Writer, p *emu.Program) error {
	var rows []listedKernel
	for _, name := range p.Entries() {
		params, err := p.Params(name)
		if err != nil {
			return err
		}
		rows = append(rows, listedKernel{Name: name, Arguments: flagArgs(exampleArgs(params))})
	}
	refused := p.Refused()
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		reason, _, _ := strings.Cut(refused[name].Error(), "\n")
		rows = append(rows, listedKernel{Name: name, Refused: reason})
	}
	return writeList(w, listFlags{format: f.format}, []column[listedKernel]{
		wrapped("KERNEL", func(k listedKernel) any { return k.Name }),
		fixed("RUNS", func(k listedKernel) any { return yesNo(k.Refused == "") }),
		wrapped("ARGUMENTS", func(k listedKernel) any { return orDash(k.Arguments) }),
		wrapped("REFUSED BECAUSE", func(k listedKernel) any { return orDash(k.Refused) }),
	}, rows)
}

// ruleNames returns the names of the rules that --allow accepts.
func ruleNames() []string {
	var names []string
	for _, r := range check.Rules() {
		names = append(names, string(r))
	}
	return names
}

// checkerNames returns the names of the checkers.
func checkerNames() []string {
	var names []string
	for _, k := range check.Checkers() {
		names = append(names, k.String())
	}
	return names
}

func (f *emulateFlags) parseCheckers() (o check.Options, checked bool, err error) {
	for _, name := range f.allow {
		r, err := check.ParseRule(name)
		if err != nil {
			return o, false, fmt.Errorf("--allow: %w", err)
		}
		o.Allow = append(o.Allow, r)
	}
	switch f.checkers {
	case "all":
		return o, true, nil
	case "none":
		return o, false, nil
	}
	for name := range strings.SplitSeq(f.checkers, ",") {
		c, err := check.ParseChecker(strings.TrimSpace(name))
		if err != nil && name == f.checkers {
			err = names.Unknown("checker", name, append(checkerNames(), "all", "none"))
		}
		if err != nil {
			return o, false, fmt.Errorf("--checkers: %w", err)
		}
		o.Only = append(o.Only, c)
	}
	return o, true, nil
}
