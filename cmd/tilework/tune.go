package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cache"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/tune"
)

// tuneFlags are the flags of `tilework tune`.
type tuneFlags struct {
	products     benchFlags // of which it has those that name products
	device       string
	threads      int
	time         time.Duration
	seed         uint64
	output       listFlags
	show, clear  bool
	verbose      bool
	exhaustive   bool
	namedProduct bool
}

func tuneCommand() *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:   "tune",
		Short: "Measure which kernel is fastest for a shape here, and use it from now on",
		Long: `tune measures ways to compute products of the given shapes: on the processor kernels,
what is packed, the sizes of blocks and the number of threads; on a GPU kernels with
their tiles and the parts of K, as far as the cost model does not rule them out. Each
candidate runs a little in turns with the default choice, the best of them then for
longer, and it is kept if it is faster by more than chance. Results are verified.
With --format json each product has all the ways that were measured, and their speeds.

What is kept is used by every later product of that shape and type, of matrices without
gaps between their rows, on the processor or on any GPU of the same model and driver,
unless a kernel is named. Another order of summing gives other bits: those of the tuned
choice, at any number of threads. It lies in the user's cache directory, or in
` + cache.EnvVar + `; Ctrl-C keeps what was found.`,
		Example: `  tilework tune --shapes 4096x4096x4096,1x4096x4096 --device gpu --time 30s
  tilework tune --sizes 64..1024x2 --dtypes float32,float64
  tilework tune --suite fp32 --device gpu --exhaustive --time 30s
  tilework tune --show
  tilework tune --clear`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range []string{"sizes", "shapes", "suite"} {
				f.namedProduct = f.namedProduct || c.Flags().Changed(name)
			}
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.products.sizes, "sizes", "", "sizes N of square products: 64,256 or 64..1024x2 or 64..512+64")
	fl.StringVar(&f.products.shapes, "shapes", "", "shapes MxNxK: 1x768x3072,64x64x512")
	fl.StringVar(&f.products.suite, "suite", "", "a list of shapes by its name: "+strings.Join(bench.Suites(), ", "))
	fl.StringVar(&f.products.dtypes, "dtypes", "float32", "element types of A and B")
	fl.BoolVar(&f.products.transA, "transpose-a", false, "for products with A transposed")
	fl.BoolVar(&f.products.transB, "transpose-b", false, "for products with B transposed")
	fl.StringVar(&f.device, "device", "cpu", "what to tune for: cpu, gpu, gpu:N, gpu:UUID")
	fl.IntVar(&f.threads, "threads", 0, "threads that may be used on the processor (default: all)")
	fl.DurationVar(&f.time, "time", 10*time.Second, "about how long to measure each product")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random operands")
	fl.BoolVar(&f.exhaustive, "exhaustive", false, "measure all that the device can run, whatever is predicted; give it --time")
	fl.BoolVar(&f.show, "show", false, "list what is kept")
	fl.BoolVar(&f.clear, "clear", false, "remove all that is kept")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "say what is measured, and what is wrong with the cache")
	f.output.addTo(c, listFormats...)
	complete(c, "suite", bench.Suites()...)
	complete(c, "dtypes", typeNames()...)
	complete(c, "device", "cpu", "gpu")
	exclusive(c, "show", "clear")
	return c
}

func (f *tuneFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case (f.show || f.clear) && f.namedProduct:
		return fmt.Errorf("--show and --clear concern all products: leave --sizes, --shapes and --suite out")
	case f.show:
		return f.list(stdout, stderr)
	case f.clear:
		n, err := tuned.Clear()
		if err == nil {
			fmt.Fprintf(stderr, "removed %d tuned %s from %s\n", n, plural("choice", n), orDash(tuned.Dir()))
		}
		return err
	case !f.namedProduct:
		return fmt.Errorf("what is to be tuned? give --shapes MxNxK, --sizes N or --suite NAME (see tilework tune --help)")
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
	problems, err := f.products.problems("")
	if err != nil {
		return err
	}
	var forms []tuned.Form
	for i := range problems {
		forms = append(forms, tuned.FormOf(&problems[i]))
	}
	if tuned.Dir() == "" {
		fmt.Fprintf(stderr, "nothing will be kept: %s is off, or there is no place for it\n", cache.EnvVar)
	}
	bar := newProgress(stderr)
	var drawing sync.Mutex // the bar is drawn by a goroutine of Run's
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
		notes(stderr)
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

// list prints what is kept.
func (f *tuneFlags) list(stdout, stderr io.Writer) error {
	kept := tuned.All()
	notes(stderr)
	if len(kept) == 0 {
		fmt.Fprintln(stderr, "nothing is tuned here: tilework tune --sizes N does that")
	}
	return writeList(stdout, f.output, []column[tuned.Kept]{
		fixed("PRODUCT", func(k tuned.Kept) any { return k.Form }),
		wrapped("CHOICE", func(k tuned.Kept) any { return k.Choice }),
		fixed("GAIN", func(k tuned.Kept) any { return gain(k.Gain, k.P10, k.P90) }),
		dropped(1, "DATE", func(k tuned.Kept) any { return k.Date.Format(time.DateOnly) }),
		fixed("USED", func(k tuned.Kept) any { return yesNo(!k.Stale) }),
		wrapped("DEVICE", func(k tuned.Kept) any { return k.Device }),
	}, kept)
}

// notes says what is worth knowing of the cache.
func notes(stderr io.Writer) {
	for _, n := range tuned.Notes() {
		fmt.Fprintln(stderr, n)
	}
}

// withTime is a choice and the time that it took: the median and half the spread.
func withTime(c tuned.Choice, t bench.Timing) string {
	if t.Median == 0 {
		return c.String()
	}
	return fmt.Sprintf("%v: %s ± %.0f %%", c, bench.Duration(t.Median), 50*t.Spread)
}

// gain is a ratio and the range that most of its rounds were in.
func gain(median, p10, p90 float64) string {
	if median == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median, p10, p90)
}
