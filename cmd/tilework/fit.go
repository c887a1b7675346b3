package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/gpu/choose"
	"tilework/internal/matio"
	"tilework/internal/tune"
)

// fitFlags are the flags of `tilework fit`.
type fitFlags struct {
	device       string
	time         time.Duration
	seed         uint64
	from, file   string
	force        bool
	output       listFlags
	show, remove bool
	verbose      bool
}

func fitCommand() *cobra.Command {
	var f fitFlags
	c := &cobra.Command{
		Use:   "fit",
		Short: "Fit the predictions of kernels' times to a GPU",
		Long: `fit adapts the choice of kernels to a GPU that the authors have not measured. The choice
comes from predicted times, which follow from coefficients of the GPU's model: the rate of its
memory, the latency of a step, and so on. fit draws products at random, half of them layers of
published networks, and measures on the GPU the kernels and tiles that could be the fastest. Then it
changes the coefficients so that predicted and measured times agree. A coefficient that buys
little keeps its value.

Each third product is not fitted: it judges the coefficients. If they predict these products better
than before, they are stored in the user's cache directory, or in the directory ` + cache.EnvVar + `,
and all later products on GPUs of this name use them. As another kernel may sum in another order,
results may then differ in their last bits. The bits of row-invariant products do not change.

Tuned choices of single products (tilework tune) come before predictions.`,
		Example: `  tilework fit --device gpu
  tilework fit --device gpu --time 2m -o a100.json
  tilework fit --show
  tilework fit --clear`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.device, "device", "gpu", "the `DEVICE` to fit to: gpu, gpu:N, gpu:UUID")
	fl.DurationVar(&f.time, "time", 5*time.Minute, "the `TIME` for measuring products; fitting takes up to a minute more")
	fl.Uint64Var(&f.seed, "seed", 1, "the `SEED` of the products and their operands")
	fl.StringVar(&f.from, "from", "", "the `MODEL` whose coefficients the fit begins with: "+
		strings.Join(choose.Models(), ", ")+" (default: that of the GPU)")
	fl.StringVarP(&f.file, "out", "o", "", "also write the coefficients to this JSON `FILE`, better or not")
	forceFlag(c, &f.force)
	fl.BoolVar(&f.show, "show", false, "list the stored coefficients")
	fl.BoolVar(&f.remove, "clear", false, "remove the stored coefficients")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "print each step")
	f.output.addTo(c, listFormats...)
	complete(c, "device", "gpu")
	complete(c, "from", choose.Models()...)
	exclusive(c, "show", "clear")
	exclusive(c, "show", "out")
	exclusive(c, "clear", "out")
	return c
}

func (f *fitFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case f.show:
		kept := choose.AllKept(cache.Default())
		if len(kept) == 0 {
			fmt.Fprintln(stderr, "no coefficients are stored; tilework fit measures a GPU and stores them")
		}
		return writeList(stdout, f.output, []column[choose.Kept]{
			wrapped("COEFFICIENTS", func(k choose.Kept) any { return strings.Join(k.Source, " ") }),
			fixed("FROM", func(k choose.Kept) any { return k.From }),
			fixed("USED", func(k choose.Kept) any { return yesNo(k.Current) }),
		}, kept)
	case f.remove:
		n, err := choose.ClearKept(cache.Default())
		if err == nil {
			fmt.Fprintf(stderr, "removed %d stored %s\n", n, plural("fit", n))
		}
		return err
	case f.time <= 0:
		return fmt.Errorf("--time %v: want more than 0", f.time)
	}
	device, err := backend.ParseDevice(f.device)
	if err != nil {
		return fmt.Errorf("--device: %w", err)
	}
	if !device.IsGPU() {
		return fmt.Errorf("--device %s: want gpu, gpu:N or gpu:UUID", f.device)
	}
	if f.file != "" {
		if err := matio.CheckReplace(f.file, f.force); err != nil {
			return err
		}
	}
	bar := newProgress(stderr)
	o := tune.FitOptions{Device: device, Time: f.time, From: f.from, Seed: f.seed,
		Progress: func(passed, all time.Duration) { bar.update(passed.Milliseconds(), all.Milliseconds()) }}
	if f.verbose {
		o.Note = func(line string) {
			bar.clear()
			fmt.Fprintln(stderr, line)
		}
	}
	fitted, err := tune.Fit(ctx, o)
	bar.close()
	if err != nil {
		return err
	}
	return f.finish(fitted, cache.Default(), stdout, stderr)
}

// finish prints, writes and stores fitted coefficients.
func (f *fitFlags) finish(fitted *tune.Fitting, to *cache.Cache, stdout, stderr io.Writer) error {
	if err := writeList(stdout, f.output, []column[choose.Change]{
		fixed("COEFFICIENT", func(c choose.Change) any { return c.Name }),
		fixed("BEFORE", func(c choose.Change) any { return c.Before }),
		fixed("FITTED", func(c choose.Change) any { return c.After }),
	}, fitted.Changed); err != nil {
		return err
	}
	before, after := fitted.Before, fitted.After
	fmt.Fprintf(stderr, "of %d other products, the choice takes %.1f %% longer than the fastest candidate in the mean, "+
		"%.1f %% before the fit; %d lose at most 5 %%, %d before; predictions deviate by %.0f %%, %.0f %% before\n",
		after.Products, 100*after.Loss, 100*before.Loss, after.Close, before.Close, 100*after.Deviation, 100*before.Deviation)
	if f.file != "" {
		text, err := fitted.Text()
		if err != nil {
			return err
		}
		if err := matio.WriteFile(f.file, text, f.force); err != nil {
			return err
		}
	}
	if !fitted.Better() {
		fmt.Fprintf(stderr, "not stored: the coefficients of %s predict these products about as well\n", fitted.From)
		return nil
	}
	dir := to.Dir()
	if dir == "" {
		fmt.Fprintf(stderr, "not stored: %s is \"off\", or the user has no cache directory\n", cache.EnvVar)
		return nil
	}
	if err := fitted.Keep(to); err != nil {
		return fmt.Errorf("storing the coefficients: %w", err)
	}
	fmt.Fprintf(stderr, "stored in %s for all products on GPUs of the name %s\n", dir, fitted.GPU.Name)
	return nil
}
