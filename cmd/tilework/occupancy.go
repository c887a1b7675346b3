package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tilework/internal/model"
	"tilework/internal/table"
)

// occupancyFlags are the flags of `tilework occupancy`.
type occupancyFlags struct {
	threads, smem, gpu          string
	output                      listFlags
	regs                        int
	smThreads, smBlocks, smRegs int
	smSmem                      string
}

func occupancyCommand() *cobra.Command {
	var f occupancyFlags
	c := &cobra.Command{
		Use:   "occupancy --threads T",
		Short: "Compute how many blocks an SM holds, and what limits them",
		Long: `occupancy computes the number of resident blocks per SM, and shows the resource that limits
it. With --gpu it applies NVIDIA's rules for that GPU, including the rounding of registers and
shared memory. With --sm-threads and the other --sm flags it computes with the SM of a
textbook exercise, without rounding.`,
		Example: `  tilework occupancy --threads 256 --smem 2KB --regs 32 --gpu h200
  tilework occupancy --threads 16x16 --smem 2KB --sm-threads 2048 --sm-smem 48KB --sm-blocks 16`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c, c.OutOrStdout()) },
	}
	fl := c.Flags()
	fl.StringVar(&f.threads, "threads", "", "the `SIZE` of a block in threads: 256, 16x16 or 8x8x4 (required)")
	fl.StringVar(&f.smem, "smem", "0", "`BYTES` of shared memory per block: 2048 or 2KB")
	fl.IntVar(&f.regs, "regs", 0, "the `NUMBER` of registers per thread (0: no limit by registers)")
	fl.StringVar(&f.gpu, "gpu", "", "a `GPU` or an architecture: "+strings.Join(model.LookupNames(), ", "))
	fl.IntVar(&f.smThreads, "sm-threads", 0, "maximum `NUMBER` of threads on the SM")
	fl.StringVar(&f.smSmem, "sm-smem", "0", "`BYTES` of shared memory of the SM (0: no limit)")
	fl.IntVar(&f.smBlocks, "sm-blocks", 0, "maximum `NUMBER` of blocks on the SM (0: no limit)")
	fl.IntVar(&f.smRegs, "sm-regs", 0, "the `NUMBER` of registers of the SM (0: no limit)")
	f.output.addTo(c, "table", "json")
	complete(c, "gpu", model.LookupNames()...)
	return c
}

func (f *occupancyFlags) run(c *cobra.Command, stdout io.Writer) error {
	launch, err := f.launch()
	if err != nil {
		return err
	}
	arch, err := f.arch(c)
	if err != nil {
		return err
	}
	o, err := arch.Occupancy(launch)
	if err != nil {
		return err
	}
	if f.output.format == "json" {
		return writeJSON(stdout, o)
	}
	width := f.output.width(stdout)
	for line := range strings.Lines(o.Text()) {
		if _, err := fmt.Fprintln(stdout, table.Continue(strings.TrimRight(line, "\n"), width)); err != nil {
			return err
		}
	}
	return nil
}

func (f *occupancyFlags) launch() (l model.Launch, err error) {
	if f.threads == "" {
		return l, fmt.Errorf("no block size: want --threads, such as --threads 256 or --threads 16x16")
	}
	block, err := parseDim3(f.threads)
	if err != nil {
		return l, fmt.Errorf("--threads %w", err)
	}
	// Each dimension has 31 bits. Capping after each product avoids an overflow of int.
	l.Threads = min(min(block.X*block.Y, math.MaxInt32)*block.Z, math.MaxInt32)
	if l.SharedBytes, err = parseBytes(f.smem); err != nil {
		return l, fmt.Errorf("--smem %w", err)
	}
	if f.regs < 0 {
		return l, fmt.Errorf("--regs %d: want 0 or more", f.regs)
	}
	l.RegsPerThread = f.regs
	return l, nil
}

func (f *occupancyFlags) arch(c *cobra.Command) (*model.Arch, error) {
	byHand := false
	for _, flag := range []string{"sm-threads", "sm-smem", "sm-blocks", "sm-regs"} {
		byHand = byHand || c.Flags().Changed(flag)
	}
	switch {
	case f.gpu != "" && byHand:
		return nil, fmt.Errorf("--gpu %s and --sm flags exclude each other: want only one", f.gpu)
	case f.gpu != "":
		m, err := model.Lookup(f.gpu)
		if err != nil {
			return nil, fmt.Errorf("--gpu: %w", err)
		}
		return m.Arch, nil
	case f.smThreads == 0:
		return nil, fmt.Errorf("no GPU: want --gpu, such as --gpu h200, or --sm-threads and the other --sm flags")
	}
	smem, err := parseBytes(f.smSmem)
	if err != nil {
		return nil, fmt.Errorf("--sm-smem %w", err)
	}
	return model.Textbook(f.smThreads, smem, f.smBlocks, f.smRegs)
}

// parseBytes parses a number of bytes, such as "2048", "2KB", "48K" or "16GiB". A K is 1,024, as is
// usual for memory.
func parseBytes(text string) (int, error) {
	const units = "BKMGT"
	digits := strings.TrimRight(strings.ToUpper(text), "I"+units)
	unit, shift := strings.TrimPrefix(strings.ToUpper(text), digits), 0
	if unit != "" {
		shift = 10 * strings.IndexByte(units, unit[0])
	}
	long := unit == "" || unit == unit[:1] || unit == unit[:1]+"B" || unit == unit[:1]+"IB"
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil || n < 0 || !long || shift < 0 || shift == 0 && len(unit) > 1:
		return 0, fmt.Errorf("%s: want bytes, such as 2048, 2KB or 16GiB", text)
	case n > math.MaxInt>>shift:
		return 0, fmt.Errorf("%s: want fewer than 2^%d bytes", text, strconv.IntSize-1)
	}
	return n << shift, nil
}
