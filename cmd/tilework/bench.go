package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/gemm"
	"tilework/internal/table"
)

// benchFlags are the flags of `tilework bench`.
type benchFlags struct {
	preset string
	productFlags
	kernels, device, peers                  string
	epilogues, scales, outType              string
	peerPath                                []string
	threads                                 int
	count                                   int
	drawn                                   bool // whether --seed draws the products of --suite models
	transfers, packed, choice, rowInvariant bool
	batch                                   int
	gpuMemory                               string
	groups                                  string
	cold                                    choice
	minTime, maxTime, warmup, sustained     time.Duration
	seed                                    uint64
	output                                  listFlags
	out, resume                             string
	force                                   bool

	// about and optional are set only for a part of a preset.
	about    string // description of the part
	optional bool   // skip the part if the machine lacks its device or libraries
}

func benchCommand() *cobra.Command { return newBenchCommand(new(benchFlags)) }

// newBenchCommand returns the command that stores its flags in f.
func newBenchCommand(f *benchFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure kernels beside other libraries in the same run",
		Long: `bench measures the speed of kernels. With --peers it measures other libraries too, in rounds
that alternate between the kernels and the peers. Results are checked against a float64
reference before and after the timing. A wrong result gets no time and exit code 1.

The column × PEER is the peer's time divided by the kernel's time: above 1 the kernel is
faster. The division is done round by round, and the column is the median. A disturbance that
slows both cancels out, so the column can differ from the quotient of the two median times.
A ? marks a figure that is too uncertain to rely on: its 95 % confidence interval is wider
than ±10 %, or it has fewer than three timings.

On a GPU, the matrices are in GPU memory, in enough copies to exceed twice the size of the L2
cache, and GPU events measure the times. With --transfers the matrices are in host memory, and
the times include the copies to the GPU and back. An emulated GPU has no times: bench counts
its instructions, operations, bytes, sectors and bank conflicts.

Each preset is a series of measurements, whose table ends with a sentence on what they mean for
this machine. Flags given with --preset replace those of the preset:
` + presetHelp() + `
A part of a preset is skipped, with a message, if the machine lacks its device or library.
` + peerHelp() + `

With -o, each record is written to the file as soon as it is measured, so that it survives an
interruption or a crash. --resume FILE, with the other flags unchanged, measures the remaining
records. It refuses a file from another machine or another version of tilework.`,
		Example: `  tilework bench --preset quick
  tilework bench --preset study -o study.jsonl && tilework report study.jsonl -o study.html
  tilework bench --sizes 64..1024x2 --peers all --threads 1
  tilework bench --shape 1x768x3072,7x513x1025 --dtypes float32,bfloat16 --cold
  tilework bench --packed --peers reading --shape 1x4096x4096,16x4096x4096 --dtypes float32,int8 --cold
  tilework bench --kernels all --sizes 256 --format csv > bench.csv
  tilework bench --sizes 512 --format bench | benchstat /dev/stdin
  tilework bench --device gpu --kernels naive,tiled:16,blocked --peers cublaslt
  tilework bench --device gpu --suite fp32 --peers cublaslt,cublaslt-tf32 -o h200.jsonl
  tilework bench --device gpu --suite fp32 --peers cublaslt,cublaslt-tf32 --resume h200.jsonl
  tilework bench --device gpu --suite random --seed 7 --count 50 --dtypes bfloat16 --peers cublaslt
  tilework bench --device gpu --suite models --seed 7 --count 50 --dtypes bfloat16 --peers cublaslt
  tilework bench --suite random --seed 7 --count 20 --threads 1 --choice
  tilework bench --device gpu --batch 64 --sizes 512 --dtypes bfloat16 --peers cublaslt
  tilework bench --device gpu --groups 8 --shape 4096x14336x4096 --dtypes bfloat16 --transpose-b --peers dense
  tilework bench --device gpu --dtypes bfloat16 --sizes 4096 --epilogue bias-col,bias-col+gelu-tanh --peers cublaslt,then
  tilework bench --device gpu --suite tensor --dtypes bfloat16 --row-invariant --peers default,cublaslt
  tilework bench --device gpu --transfers --sizes 64..8192x2
  tilework bench --device gpu --transfers --gpu-memory 16GiB,1GiB --peers cublasxt --sizes 16384
  tilework bench --device gpu:0,1 --transfers --sizes 16384
  tilework bench --device gpu:all --sizes 16384 --dtypes bfloat16,float32
  tilework bench --device gpu:0,1 --sizes 32768 --dtypes bfloat16 --peers pytorch,pytorch-async
  tilework bench --device emu:t4 --kernels naive,tiled:16 --sizes 64`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.Flags(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.preset, "preset", "", "the `SERIES` of measurements to run: "+strings.Join(presetNames(), ", "))
	fl.StringVar(&f.kernels, "kernels", "",
		"comma-separated `KERNELS` to measure: names, optionally with a precision (mma-tf32); all; auto or auto-tf32 for "+
			"the kernel that mul would choose; none (default: auto)")
	f.productFlags.declare(c, " (default: 64,256,1024, on an emulated GPU 64,256)", bench.Suites())
	fl.IntVar(&f.count, "count", 100, "the `NUMBER` of products of --suite random, and of --suite models with --seed")
	fl.StringVar(&f.device, "device", "cpu",
		"the `DEVICE` that computes: cpu, gpu or gpu:N; several GPUs, gpu:0,1 or gpu:all, beside the first of them; "+
			"emu or emu:MODEL counts instead")
	fl.StringVar(&f.peers, "peers", "", "comma-separated `LIBRARIES` to compare with, or all for every installed library")
	fl.StringArrayVar(&f.peerPath, "peer-path", nil, "`NAME=FILE`: load the peer NAME from FILE")
	fl.IntVar(&f.threads, "threads", 0, "maximum `NUMBER` of threads of kernels and peers (default: all cores)")
	fl.BoolVar(&f.packed, "packed", false, "on the CPU: also measure each kernel with a prepacked B")
	fl.IntVar(&f.batch, "batch", 1, "on a GPU: the `NUMBER` of products of each shape, computed in one launch")
	fl.StringVar(&f.groups, "groups", "",
		"on a GPU: split the M rows into `GROUPS`, each multiplied by its own B, in one launch: a number of equal groups, "+
			"or a list of their shares such as 4,2,1,1")
	fl.StringVar(&f.epilogues, "epilogue", "",
		"`OPERATIONS` on each element of C, such as bias-col+gelu; a comma separates several epilogues to measure; the "+
			"operations are "+strings.Join(gemm.EpilogueParts(), ", ")+" (default: none)")
	fl.StringVar(&f.scales, "block-scales", "",
		"for 8-bit floats: block `SCALES` of A and B, such as "+scalesExample+", or none; a comma separates several to "+
			"measure (default: none)")
	fl.StringVar(&f.outType, "out-dtype", "", "element `TYPE` of C (default: the usual one for A and B)")
	fl.BoolVar(&f.transfers, "transfers", false,
		"on a GPU: start from host memory, and time the copies to the GPU and back")
	fl.StringVar(&f.gpuMemory, "gpu-memory", "",
		"with --transfers: also measure each kernel with at most these `BYTES` of GPU memory for the matrices, such as "+
			"16GiB; a comma separates several amounts")
	f.cold.addTo(fl, "cold", "read the operands from memory instead of the cache (default: on a GPU only)")
	fl.DurationVar(&f.minTime, "min-time", 200*time.Millisecond, "minimum `TIME` to measure each kernel and peer")
	fl.DurationVar(&f.maxTime, "max-time", 10*time.Second,
		"maximum `TIME` to measure each kernel and peer; a single longer product still completes")
	fl.DurationVar(&f.warmup, "warmup", 0,
		"`TIME` to run each kernel and peer before measuring (default: 20ms, on a GPU 200ms)")
	fl.DurationVar(&f.sustained, "sustained", 0,
		"on a GPU: also run each kernel and peer alone, in bursts after idling and for this `TIME`, such as 2s, and "+
			"report both times of a product and its energy")
	fl.BoolVar(&f.rowInvariant, "row-invariant", false, rowInvariantDoc)
	fl.BoolVar(&f.choice, "choice", false,
		"measure the kernel that mul would choose beside its other candidates, and report the loss")
	fl.Uint64Var(&f.seed, "seed", 1,
		"the `SEED` of the random operands and of --suite random; given with --suite models, it draws layers of about a "+
			"hundred networks")
	fl.StringVarP(&f.out, "out", "o", "", "write the records to this `FILE` as well, as JSON Lines")
	fl.StringVar(&f.resume, "resume", "", "continue this `FILE` of records: measure what it lacks, on the same machine")
	forceFlag(c, &f.force)
	exclusive(c, "out", "resume")
	exclusive(c, "batch", "groups")
	formats := bench.Formats()
	names := make([]string, len(formats))
	for i, format := range formats {
		names[i] = format.Name
	}
	f.output.addTo(c, names...)
	complete(c, "preset", presetNames()...)
	complete(c, "kernels",
		append(append(subjectNames(backend.DeviceName{}), autoNames(backend.DeviceName{})...), "all", "none")...)
	complete(c, "peers", append(peerNames(func(*peer) bool { return true }), "all")...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

func (f *benchFlags) run(ctx context.Context, given *pflag.FlagSet, stdout, stderr io.Writer) (err error) {
	format, err := bench.FindFormat(f.output.format)
	if err != nil {
		return err
	}
	switch {
	case f.minTime <= 0:
		return fmt.Errorf("--min-time %v: want more than 0", f.minTime)
	case f.maxTime <= 0:
		return fmt.Errorf("--max-time %v: want more than 0", f.maxTime)
	case f.warmup < 0:
		return fmt.Errorf("--warmup %v: want 0 or more", f.warmup)
	case f.sustained < 0:
		return fmt.Errorf("--sustained %v: want 0 or more", f.sustained)
	}
	f.drawn = f.suite == bench.RandomSuite || f.suite == bench.ModelSuite && given.Changed("seed")
	if given.Changed("count") && !f.drawn {
		return fmt.Errorf("--count %d: want --suite %s, or --suite %s with --seed, whose products it counts", f.count,
			bench.RandomSuite, bench.ModelSuite)
	}
	parts, err := f.parts(given)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.maxTime < p.minTime {
			return fmt.Errorf("--max-time %v: want --min-time, which is %v, or more", p.maxTime, p.minTime)
		}
	}
	s, err := openStudy(ctx, parts, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.openFile(f, stderr); err != nil {
		return err
	}
	records, failed := s.measure(ctx, newProgress(stderr))
	// Records from before an interruption or a wrong result are printed too.
	if f.choice && format.Name == "table" {
		return errors.Join(bench.WriteChoices(stdout, records, f.output.width(stdout)), failed)
	}
	err = format.Write(stdout, records, f.output.width(stdout))
	if err == nil && failed == nil && f.preset != "" && format.Name == "table" {
		if sentence := meaning(records); sentence != "" {
			_, err = fmt.Fprintln(stdout, "\n"+table.Fold(sentence, f.output.width(stdout)))
		}
	}
	return errors.Join(err, failed)
}

// options returns the options that all devices share.
func (f *benchFlags) options() bench.Options {
	return bench.Options{MinTime: f.minTime, MaxTime: f.maxTime, Warmup: f.warmup, Seed: f.seed, Cold: f.cold.value,
		Sustained: f.sustained}
}
