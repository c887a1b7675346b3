package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/names"
	"tilework/internal/tune"
)

// tuneFlags are the flags of `tilework tune`.
type tuneFlags struct {
	productFlags
	device      string
	threads     int
	time        time.Duration
	seed        uint64
	output      listFlags
	show, clear bool
	verbose     bool
	exhaustive  bool
}

func tuneCommand() *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:   "tune",
		Short: "Find and remember the fastest kernel for given shapes",
		Long: `tune measures several ways to compute each product of the given shapes. On the CPU they differ
in the kernel, the method, the block sizes and the number of threads; on a GPU, in the
kernel, the tile and split-K. Ways that the cost model predicts to be slow are skipped. Each
other one is measured briefly, alternating with the default choice, and the best ones are
measured for longer. The best one is kept if it is faster than the default with statistical
significance. All results are verified. --format json lists every measured way with its speed.

Every later product of that shape and type with dense matrices uses the tuned choice, on this
CPU or on any GPU of the same model and driver, unless it names a kernel. A tuned choice may sum
in another order than the default, so results may differ in their last bits. They do not depend
on the number of threads.

A GPU that repeats products of matrices in its memory tries some ways itself, all with the bits of
the default choice. --show lists the ways that were faster, found by repetition.

The choices are stored in the user's cache directory, or in the directory ` + cache.EnvVar + `.
After Ctrl-C, the choices found so far stay.`,
		Example: `  tilework tune --shape 4096x4096x4096,1x4096x4096 --device gpu --time 30s
  tilework tune --sizes 64..1024x2 --dtypes float32,float64
  tilework tune --suite fp32 --device gpu --exhaustive --time 30s
  tilework tune --show
  tilework tune --clear`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	f.productFlags.declare(c, "", tunableSuites())
	fl.StringVar(&f.device, "device", "cpu", "the `DEVICE` to tune for: cpu, gpu, gpu:N, gpu:UUID")
	fl.IntVar(&f.threads, "threads", 0, "maximum `NUMBER` of threads on the CPU (default: all cores)")
	fl.DurationVar(&f.time, "time", 10*time.Second, "approximate `TIME` to measure each product")
	fl.Uint64Var(&f.seed, "seed", 1, "the `SEED` of the random operands")
	fl.BoolVar(&f.exhaustive, "exhaustive", false,
		"also measure ways that the cost model predicts to be slow; needs more --time")
	fl.BoolVar(&f.show, "show", false, "list the tuned choices")
	fl.BoolVar(&f.clear, "clear", false, "remove the tuned choices")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "print each step, and problems with the cache")
	f.output.addTo(c, listFormats...)
	complete(c, "device", "cpu", "gpu")
	exclusive(c, "show", "clear")
	return c
}

// tunableSuites lists the suites of fixed shapes.
func tunableSuites() []string {
	return slices.DeleteFunc(bench.Suites(), func(name string) bool { return name == bench.RandomSuite })
}

func (f *tuneFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case (f.show || f.clear) && f.given():
		return fmt.Errorf("--show and --clear apply to all products: want them without --sizes, --shape and --suite")
	case f.show:
		return f.list(stdout, stderr)
	case f.clear:
		n, err := tuned.Clear()
		if err == nil {
			fmt.Fprintf(stderr, "removed %d tuned %s from %s\n", n, plural("choice", n), orDash(tuned.Dir()))
		}
		return err
	case !f.given():
		return fmt.Errorf("no product: want --shape MxNxK, --sizes N or --suite NAME (see tilework tune --help)")
	case f.time <= 0:
		return fmt.Errorf("--time %v: want more than 0", f.time)
	}
	device, err := backend.ParseDevice(f.device)
	if err != nil {
		return fmt.Errorf("--device: %w", err)
	}
	if err := dispatch.CheckThreads(f.threads); err != nil {
		return fmt.Errorf("--threads: %w", err)
	}
	switch fixed := tunableSuites(); {
	case f.suite == bench.RandomSuite:
		return fmt.Errorf("--suite %s: want products that recur: %s", bench.RandomSuite, strings.Join(fixed, ", "))
	case f.suite != "" && !slices.Contains(fixed, f.suite):
		return fmt.Errorf("--suite: %w", names.Unknown("suite", f.suite, fixed))
	}
	forms, err := f.forms()
	if err != nil {
		return err
	}
	if tuned.Dir() == "" {
		fmt.Fprintf(stderr, "results will not be kept: %s is \"off\", or the user has no cache directory\n",
			cache.EnvVar)
	}
	bar := newProgress(stderr)
	var drawing sync.Mutex // Run calls Progress from a goroutine
	o := tune.Options{
		Device: device, Threads: f.threads, Time: f.time, Seed: f.seed, Exhaustive: f.exhaustive,
		Progress: func(passed, all time.Duration) {
			drawing.Lock()
			defer drawing.Unlock()
			bar.update(passed.Milliseconds(), all.Milliseconds())
		},
	}
	o.Warn = func(line string) {
		drawing.Lock()
		defer drawing.Unlock()
		bar.clear()
		fmt.Fprintln(stderr, line)
	}
	if f.verbose {
		o.Note = o.Warn
	}
	outcomes, err := tune.Run(ctx, forms, o)
	bar.close()
	if f.verbose {
		printCacheNotes(stderr)
	}
	if len(outcomes) == 0 {
		return err
	}
	if len(outcomes) > 1 {
		fmt.Fprintln(stderr, tune.Summary(outcomes))
	}
	return errors.Join(writeList(stdout, f.output, []column[tune.Outcome]{
		fixed("PRODUCT", func(x tune.Outcome) any { return x.Form }),
		dropped(2, "MEASURED", func(x tune.Outcome) any { return fmt.Sprintf("%d of %d", x.Measured, x.Considered) }),
		wrapped("DEFAULT", func(x tune.Outcome) any { return withTime(x.Default, x.Before) }),
		wrapped("BEST", func(x tune.Outcome) any { return withTime(x.Best, x.After) }),
		fixed("GAIN", func(x tune.Outcome) any { return gain(x.Gain.Speed, x.Gain.P10, x.Gain.P90) }),
		fixed("KEPT", func(x tune.Outcome) any { return yesNo(x.Kept) }),
		wrapped("WHY", func(x tune.Outcome) any { return x.Why }),
	}, outcomes), err)
}

// forms returns the products to tune.
func (f *tuneFlags) forms() (forms []tuned.Form, err error) {
	samples, err := f.samples("", bench.Draw{})
	if err != nil {
		return nil, err
	}
	types, err := f.types()
	if err != nil {
		return nil, err
	}
	for _, in := range types {
		for _, s := range samples {
			p, err := s.Problem(in, in.Info().Results[0])
			if err != nil {
				return nil, err
			}
			forms = append(forms, tuned.FormOf(&p))
		}
	}
	return forms, nil
}

// list prints the tuned choices.
func (f *tuneFlags) list(stdout, stderr io.Writer) error {
	kept := tuned.All(cpu.Backend{}.TuningKey())
	printCacheNotes(stderr)
	if len(kept) == 0 {
		fmt.Fprintln(stderr, "no tuned choices on this machine; tilework tune --sizes N adds one")
	}
	return writeList(stdout, f.output, []column[tuned.Kept]{
		fixed("PRODUCT", func(k tuned.Kept) any { return k.Form }),
		wrapped("CHOICE", func(k tuned.Kept) any { return k.Choice }),
		fixed("GAIN", func(k tuned.Kept) any { return gain(k.Gain, k.P10, k.P90) }),
		dropped(2, "FOUND BY", func(k tuned.Kept) any { return foundBy(k.Repeated) }),
		dropped(1, "DATE", func(k tuned.Kept) any { return k.Date.Format(time.DateOnly) }),
		fixed("USED", func(k tuned.Kept) any { return yesNo(!k.Stale) }),
		wrapped("DEVICE", func(k tuned.Kept) any { return k.Device }),
	}, kept)
}

// printCacheNotes prints problems with the cache.
func printCacheNotes(stderr io.Writer) {
	for _, n := range tuned.Notes() {
		fmt.Fprintln(stderr, n)
	}
}

// withTime formats a choice with its time: the median, and half the spread in percent.
func withTime(c backend.Choice, t bench.Timing) string {
	if t.Median == 0 {
		return c.String()
	}
	return fmt.Sprintf("%v: %s ± %.0f %%", c, bench.Duration(t.Median), 50*t.Spread)
}

// foundBy names the way in which a choice was found.
func foundBy(repeated bool) string {
	if repeated {
		return "repetition"
	}
	return "tune"
}

// gain formats a speedup: the median with the 10th and 90th percentiles, if they are known.
func gain(median, p10, p90 float64) string {
	switch {
	case median == 0:
		return "-"
	case p10 == 0:
		return fmt.Sprintf("%.2f", median)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median, p10, p90)
}
