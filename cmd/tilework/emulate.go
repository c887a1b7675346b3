package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// emulateFlags are the flags of `tilework emulate`.
type emulateFlags struct {
	entry, grid, block, smem string
	cluster                  string
	args                     []string
	maxInstructions          int64
	seed                     uint64
	workers                  int
	checkers                 string
	format                   string
}

func emulateCommand() *cobra.Command {
	var f emulateFlags
	c := &cobra.Command{
		Use:   "emulate FILE.ptx",
		Short: "Run any PTX on the emulator, with checkers for races, barriers, memory and speed",
		Long: `emulate runs a kernel of a PTX file, as nvcc -ptx or a builder wrote it, on the
processor. What the checkers find is printed with the place in the file and in its
source; errors (not advice) make the exit code 1.

An argument of the kernel is one of
  A.npy                 a pointer to a copy of the matrix in the file
  out:f32:MxN:C.npy     a pointer to memory for an M×N matrix, written to C.npy after
  tensor:MxN:S:ARG      a tensor map of the matrix that ARG, one of the two above, points
                        to: in boxes of M×N elements, whose rows are swizzled over S
                        bytes of shared memory (0, 32, 64 or 128)
  u32:64, f32:1.5, …    a number: u8 to u64, s8 to s64, f32 or f64`,
		Example: `  tilework emulate matmul.ptx --entry matmul --grid 4,4 --block 16,16 \
    --arg a.npy --arg b.npy --arg out:f32:64x64:c.npy --arg u32:64
  tilework emulate k.ptx --grid 1 --block 32 --arg out:i32:1x32:x.csv --checkers race,bounds`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("emulate takes one PTX file, and found %d: %s (see tilework emulate --help)", len(args), strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	var names []string
	for _, k := range check.Checkers() {
		names = append(names, k.String())
	}
	fl := c.Flags()
	fl.StringVar(&f.entry, "entry", "", "the kernel to run (default: the only one)")
	fl.StringVar(&f.grid, "grid", "1", "blocks: X, X,Y or X,Y,Z")
	fl.StringVar(&f.cluster, "cluster", "", "blocks of a cluster: X, X,Y or X,Y,Z (default: what the kernel says)")
	fl.StringVar(&f.block, "block", "1", "threads of a block: X, X,Y or X,Y,Z")
	fl.StringVar(&f.smem, "smem", "0", "dynamic shared memory of a block: 2048 or 2KB")
	fl.StringArrayVar(&f.args, "arg", nil, "an argument of the kernel, in order")
	fl.Int64Var(&f.maxInstructions, "max-instructions", 1e9, "stop after so many instructions of warps (0: never)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the order in which warps run")
	fl.IntVar(&f.workers, "workers", 0, "blocks that run at a time (0: as many as there are processors; 1: the same order every time)")
	fl.StringVar(&f.checkers, "checkers", "all", "checkers to run: all, none, or some of "+strings.Join(names, ","))
	formatFlag(c, &f.format, "table", "json")
	complete(c, "checkers", append(names, "all", "none")...)
	return c
}

// kernelArg is an argument of the kernel: its value, the matrix that it points to, and
// where to write that afterwards.
type kernelArg struct {
	value  any
	at     uint64
	layout gemm.Layout
	file   string // empty: nothing is written
}

func (f *emulateFlags) run(ctx context.Context, file string, stdout, stderr io.Writer) error {
	program, err := loadPTX(file)
	if err != nil {
		return err
	}
	entry, err := f.chooseEntry(file, program)
	if err != nil {
		return err
	}
	launch := emu.Launch{Entry: entry, Seed: f.seed, MaxInstructions: f.maxInstructions, Workers: f.workers, Printf: stdout}
	if launch.Grid, err = parseDim3(f.grid); err != nil {
		return fmt.Errorf("--grid %w", err)
	}
	if launch.Block, err = parseDim3(f.block); err != nil {
		return fmt.Errorf("--block %w", err)
	}
	if f.cluster != "" {
		if launch.Cluster, err = parseDim3(f.cluster); err != nil {
			return fmt.Errorf("--cluster %w", err)
		}
	}
	if launch.Shared, err = parseBytes(f.smem); err != nil {
		return fmt.Errorf("--smem %w", err)
	}
	if f.workers < 0 {
		return fmt.Errorf("--workers %d: want 0 or more", f.workers)
	}
	if f.maxInstructions < 0 {
		return fmt.Errorf("--max-instructions %d: want 0 or more", f.maxInstructions)
	}
	options, checked, err := f.parseCheckers()
	if err != nil {
		return err
	}
	mem := emu.NewMemory(emu.MemoryOptions{TrackWrites: checked})
	args, err := f.parseArgs(ctx, mem)
	if err != nil {
		return err
	}
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.value
	}
	if launch.Params, err = program.Pack(entry, values...); err != nil {
		return err
	}
	checks := check.New(options)
	if checked {
		launch.Observers = []emu.Observer{checks}
	}

	start := time.Now()
	stats, runErr := program.Run(ctx, mem, launch)
	took := time.Since(start)
	if errors.Is(runErr, emu.ErrLaunch) {
		return runErr
	}
	var report *check.Report
	if checked {
		report = checks.Report(program, stats, runErr)
	}
	if err := f.print(stdout, report, stats, took); err != nil {
		return err
	}
	switch {
	case errors.Is(runErr, emu.ErrAccess), errors.Is(runErr, emu.ErrDeadlock), errors.Is(runErr, emu.ErrAssert), errors.Is(runErr, emu.ErrMisuse):
		return fmt.Errorf("%w: %w", errCheck, runErr)
	case runErr != nil:
		return runErr
	}
	for _, a := range args {
		if a.file == "" {
			continue
		}
		data := make([]byte, a.layout.Bytes())
		if err := mem.Read(a.at, data); err != nil {
			return err
		}
		if err := matio.Write(ctx, a.file, a.layout, data); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%v → %s\n", a.layout, a.file)
	}
	if report != nil && report.Errors() > 0 {
		return fmt.Errorf("%w: %d %s", errCheck, report.Errors(), plural("error", report.Errors()))
	}
	return nil
}

func loadPTX(file string) (*emu.Program, error) {
	text, err := ptx.ReadFile(file)
	if err != nil {
		return nil, err
	}
	module, err := ptx.Parse(file, text)
	if err != nil {
		return nil, err
	}
	return emu.Load(module)
}

func (f *emulateFlags) chooseEntry(file string, p *emu.Program) (string, error) {
	entries := p.Entries()
	switch {
	case f.entry != "":
		return f.entry, nil
	case len(entries) == 1:
		return entries[0], nil
	case len(entries) == 0:
		return "", fmt.Errorf("%s has no kernel (.entry)", file)
	}
	return "", fmt.Errorf("%s has %d kernels: give --entry, one of %s", file, len(entries), strings.Join(entries, ", "))
}

// parseDim3 reads "X", "X,Y" or "X,Y,Z"; x may stand for the comma.
func parseDim3(text string) (emu.Dim3, error) {
	sides := [3]int{1, 1, 1}
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == 'x' })
	if len(parts) < 1 || len(parts) > 3 || len(strings.Join(parts, ",")) != len(text) {
		return emu.Dim3{}, fmt.Errorf("%s: want X, X,Y or X,Y,Z", text)
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > math.MaxInt32 {
			return emu.Dim3{}, fmt.Errorf("%s: %q is no size from 1 to %d", text, p, math.MaxInt32)
		}
		sides[i] = n
	}
	return emu.Dim3{X: sides[0], Y: sides[1], Z: sides[2]}, nil
}

func (f *emulateFlags) parseCheckers() (o check.Options, checked bool, err error) {
	switch f.checkers {
	case "all":
		return o, true, nil
	case "none":
		return o, false, nil
	}
	for name := range strings.SplitSeq(f.checkers, ",") {
		c, err := check.ParseChecker(strings.TrimSpace(name))
		if err != nil {
			return o, false, fmt.Errorf("--checkers: %w", err)
		}
		o.Only = append(o.Only, c)
	}
	return o, true, nil
}

func (f *emulateFlags) parseArgs(ctx context.Context, mem *emu.Memory) ([]kernelArg, error) {
	var args []kernelArg
	for i, text := range f.args {
		a, err := parseArg(ctx, mem, text)
		if err != nil {
			return nil, fmt.Errorf("--arg %s (argument %d): %w", text, i, err)
		}
		args = append(args, a)
	}
	return args, nil
}

// scalarTypes are the kinds of numbers among the arguments, and their bits.
var scalarTypes = map[string]struct {
	kind byte // u, s or f
	bits int
}{
	"u8": {'u', 8}, "u16": {'u', 16}, "u32": {'u', 32}, "u64": {'u', 64},
	"s8": {'s', 8}, "s16": {'s', 16}, "s32": {'s', 32}, "s64": {'s', 64},
	"f32": {'f', 32}, "f64": {'f', 64},
}

func parseArg(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "out":
		return parseOut(mem, rest)
	case "tensor":
		return parseTensor(ctx, mem, rest)
	}
	if _, ok := scalarTypes[kind]; ok {
		v, err := parseScalar(kind, rest)
		return kernelArg{value: v}, err
	}
	m, err := matio.Read(ctx, text, matio.ReadOptions{Room: host.CheckMemory})
	if err != nil {
		return kernelArg{}, err
	}
	defer m.Close()
	// The kernel sees the rows one after the other, whatever the order in the file.
	l := gemm.Dense(m.Type, m.OpRows(), m.OpCols())
	data := make([]byte, l.Bytes())
	for i := range l.Rows {
		for j := range l.Cols {
			l.Type.Set(data, l.Index(i, j), m.Type.At(m.Data, m.Index(i, j)))
		}
	}
	at, err := mem.Alloc(len(data))
	if err != nil {
		return kernelArg{}, err
	}
	return kernelArg{value: at, at: at, layout: l}, mem.Write(at, data)
}

// parseOut reads "f32:MxN:C.npy".
func parseOut(mem *emu.Memory, text string) (kernelArg, error) {
	typeName, rest, _ := strings.Cut(text, ":")
	shape, file, ok := strings.Cut(rest, ":")
	if !ok || file == "" {
		return kernelArg{}, errors.New("want out:TYPE:MxN:FILE, as in out:f32:64x64:c.npy")
	}
	t, err := dtype.Parse(typeName)
	if err != nil {
		return kernelArg{}, err
	}
	m, n, err := parseShape(shape)
	if err != nil {
		return kernelArg{}, err
	}
	l := gemm.Dense(t, m, n)
	if err := l.Check("the output"); err != nil {
		return kernelArg{}, err
	}
	if err := host.CheckMemory(l.Bytes(), "the output"); err != nil {
		return kernelArg{}, err
	}
	if err := matio.CheckOutput(file, t); err != nil {
		return kernelArg{}, err
	}
	at, err := mem.Alloc(l.Bytes())
	return kernelArg{value: at, at: at, layout: l, file: file}, err
}

// parseShape reads "64x32".
func parseShape(text string) (m, n int, err error) {
	rows, cols, ok := strings.Cut(text, "x")
	m, errM := strconv.Atoi(rows)
	n, errN := strconv.Atoi(cols)
	if !ok || errM != nil || errN != nil || m < 1 || n < 1 {
		return 0, 0, fmt.Errorf("%q is no shape, as in 64x64", text)
	}
	return m, n, nil
}

// tensorElements are the types of matrices that tensor maps know.
var tensorElements = map[dtype.Type]ptx.Type{
	dtype.F64: ptx.F64, dtype.F32: ptx.F32, dtype.F16: ptx.F16, dtype.BF16: ptx.BF16, dtype.I32: ptx.S32, dtype.I8: ptx.U8,
}

// parseTensor reads "64x64:128:A.npy".
func parseTensor(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 3 {
		return kernelArg{}, errors.New("want tensor:MxN:SWIZZLE:ARG, as in tensor:64x64:128:a.npy")
	}
	rows, cols, err := parseShape(parts[0])
	if err != nil {
		return kernelArg{}, err
	}
	swizzle, err := strconv.Atoi(parts[1])
	if err != nil {
		return kernelArg{}, fmt.Errorf("%q is no swizzle: want 0, 32, 64 or 128", parts[1])
	}
	a, err := parseArg(ctx, mem, parts[2])
	if err != nil {
		return kernelArg{}, err
	}
	l := a.layout
	if l.Rows == 0 {
		return kernelArg{}, fmt.Errorf("%s points to no matrix", parts[2])
	}
	encoded, err := emu.EncodeTensorMap(&ptx.TensorMap{
		Element: tensorElements[l.Type], Base: a.at, Dims: []int{l.Cols, l.Rows}, Strides: []int{l.Cols * l.Type.Info().Size},
		Box: []int{cols, rows}, Swizzle: swizzle,
	})
	a.value = encoded[:]
	return a, err
}

func parseScalar(kind, text string) (any, error) {
	t := scalarTypes[kind]
	bad := fmt.Errorf("%q is no %s", text, kind)
	switch t.kind {
	case 'f':
		v, err := strconv.ParseFloat(text, t.bits)
		if err != nil {
			return nil, bad
		}
		if t.bits == 32 {
			return float32(v), nil
		}
		return v, nil
	case 's':
		v, err := strconv.ParseInt(text, 0, t.bits)
		if err != nil {
			return nil, bad
		}
		return [...]any{8: int8(v), 16: int16(v), 32: int32(v), 64: v}[t.bits], nil
	}
	v, err := strconv.ParseUint(text, 0, t.bits)
	if err != nil {
		return nil, bad
	}
	return [...]any{8: uint8(v), 16: uint16(v), 32: uint32(v), 64: v}[t.bits], nil
}

// emulateFinding is a finding as JSON has it.
type emulateFinding struct {
	Checker  string `json:"checker"`
	Severity string `json:"severity"`
	Place    string `json:"place"`
	Source   string `json:"source,omitempty"`
	Opcode   string `json:"opcode"`
	Block    string `json:"block"`
	Thread   string `json:"thread"`
	Count    int    `json:"count"`
	Message  string `json:"message"`
}

func (f *emulateFlags) print(w io.Writer, report *check.Report, stats emu.Stats, took time.Duration) error {
	if report == nil {
		report = &check.Report{}
	}
	if f.format == "json" {
		findings := []emulateFinding{}
		for _, x := range report.Findings {
			findings = append(findings, emulateFinding{
				Checker: x.Checker.String(), Severity: x.Severity.String(),
				Place: x.Site.Pos.String(), Source: x.Site.Source.String(), Opcode: x.Site.Opcode,
				Block: x.Block.String(), Thread: x.Thread.String(), Count: x.Count, Message: x.Message,
			})
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Findings     []emulateFinding `json:"findings"`
			Instructions uint64           `json:"warp_instructions"`
			Flops        int64            `json:"flops"`
			Seconds      float64          `json:"seconds"`
		}{findings, stats.Instructions, report.Counts.Flops, took.Seconds()})
	}
	printFindings(w, report.Findings)
	_, err := fmt.Fprintf(w, "%d instructions of warps in %s: %d %s, %d of advice\n", stats.Instructions, seconds(took.Seconds()),
		report.Errors(), plural("error", report.Errors()), len(report.Findings)-report.Errors())
	return err
}

// printFindings prints each finding on a line, and those that say the same of other
// instructions, as an unrolled loop has them, together.
func printFindings(w io.Writer, findings []check.Finding) {
	type saying struct {
		checker check.Checker
		opcode  string
		message string
	}
	lines := map[saying][]string{}
	of := func(x *check.Finding) saying { return saying{x.Checker, x.Site.Opcode, x.Message} }
	for i := range findings {
		x := &findings[i]
		lines[of(x)] = append(lines[of(x)], strconv.Itoa(x.Site.Pos.Line))
	}
	for i := range findings {
		x := &findings[i]
		at := lines[of(x)]
		if len(at) == 0 {
			continue // said before
		}
		fmt.Fprintln(w, x)
		if n := len(at) - 1; n > 0 {
			fmt.Fprintf(w, "  and the same at %d more: %s %s\n", n, plural("line", n), strings.Join(at[1:], ", "))
		}
		delete(lines, of(x))
	}
}
