package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/call"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/mapping"
	"tilework/internal/matio"
	"tilework/internal/phrase"
	"tilework/internal/team"
	"tilework/ranks"
)

// runRanks joins the group of --ranks and computes this rank's part of C.
func (f *mulFlags) runRanks(ctx context.Context, c *cobra.Command, args []string) (err error) {
	stdout, stderr := c.OutOrStdout(), c.ErrOrStderr()
	place, starts, err := f.ranks.parse()
	if err != nil {
		return err
	}
	k, err := f.parse()
	if err != nil {
		return err
	}
	if err := f.checkShared(args, k.Device.List); err != nil {
		return err
	}
	place.Warn = func(text string) { fmt.Fprintln(stderr, "warning:", text) }
	joining, others := ctx, &processes{}
	if starts {
		if f.threads == 0 {
			f.threads = rankThreads(place.Size)
			k.Threads = f.threads
			if err := c.Flags().Set("threads", fmt.Sprint(f.threads)); err != nil {
				return err
			}
		}
		if place, joining, others, err = startRanks(ctx, place, c, args, f.verbose, stderr); err != nil {
			return err
		}
		defer others.end(stderr)
	}
	g, err := ranks.Join(joining, place)
	if err != nil {
		others.kill()
		if ctx.Err() == nil && joining.Err() != nil {
			return context.Cause(joining)
		}
		return err
	}
	defer g.Close()
	work, stop := g.Context(ctx)
	defer stop()
	r := rankRun{mulFlags: f, group: g, call: k, stderr: stderr}
	if err := r.run(work, args[0], args[1], stdout); err != nil {
		return groupError(g, err)
	}
	return nil
}

// checkShared returns an error for files and devices that several processes cannot use.
func (f *mulFlags) checkShared(args []string, list string) error {
	if list != "" {
		return fmt.Errorf("--device %s with --ranks: want one GPU for each rank, such as the default", f.device)
	}
	inputs := f.inputs(args[0], args[1])
	if err := f.files.parse(inputs); err != nil {
		return err
	}
	for _, in := range inputs {
		if matio.IsStream(in.file) {
			return fmt.Errorf("%s is standard input (-) or a pipe, with --ranks: want a file that all ranks can read", in.name)
		}
	}
	if _, err := matio.NewShared(f.out, gemm.Dense(dtype.Invalid, 0, 0), 0, false); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return nil
}

// rankRun is the work of one rank.
type rankRun struct {
	*mulFlags
	group  *ranks.Group
	call   *call.Call
	stderr io.Writer
}

// rankReport is the result of one rank, which rank 0 gathers.
type rankReport struct {
	Took     time.Duration
	Compile  time.Duration
	Verified *dispatch.Report
}

func (r *rankRun) run(ctx context.Context, fileA, fileB string, stdout io.Writer) (err error) {
	if r.call.Device, err = team.DeviceOf(r.device, r.group.LocalRank()); err != nil {
		return err
	}
	if err := dispatch.CheckDevice(r.call.Device); err != nil {
		return err
	}
	r.files.options.MapFrom = mapFrom
	defer r.files.close()
	start := time.Now()
	whole, err := r.load(ctx, r.call, fileA, fileB)
	if err != nil {
		return err
	}
	c0, err := r.readC0(ctx, &whole.Problem)
	if err != nil {
		return err
	}
	if err := r.agree(ctx, whole, c0); err != nil {
		return err
	}
	bar := newProgress(r.stderr)
	defer bar.close()
	whole.Once, whole.Timed, whole.Progress = true, true, bar.update
	if err := r.plan(ctx, whole); err != nil {
		return err
	}
	area, err := r.divide(ctx, &whole.Plan)
	if err != nil {
		return err
	}
	out, err := r.create(ctx, &whole.Problem)
	if err != nil {
		return err
	}
	defer out.Discard()
	read := time.Since(start)
	c, report, err := r.compute(ctx, whole, area, c0)
	if err != nil {
		return err
	}
	bar.close()
	start = time.Now()
	if err := errors.Join(out.Write(ctx, area, c), out.Close(), r.files.checkUnchanged()); err != nil {
		return err
	}
	if report, err = r.commit(ctx, report, out); err != nil || r.group.Rank() > 0 {
		return err
	}
	result := resultOf(&whole.Plan, report.Took)
	result.Ranks, result.File, result.Verified = r.group.Size(), r.out, report.Verified
	result.Read, result.Compile, result.Write = read.Seconds(), report.Compile.Seconds(), time.Since(start).Seconds()
	return r.report(stdout, r.stderr, result)
}

// agree checks that all ranks have the same product, files with the same contents and the same kind
// of device.
func (r *rankRun) agree(ctx context.Context, whole *dispatch.Job, c0 *input) error {
	p, b := &whole.Problem, &whole.Buffers
	values := [][2]string{
		{"the product", p.String()},
		{"alpha, beta, precision and row invariance",
			fmt.Sprintf("%v, %v, %v, %v", real(p.Alpha), real(p.Beta), p.Precision, p.Invariance)},
		{"the epilogue", fmt.Sprintf("%+v", p.Epilogue)},
		{"the kind of the device", r.call.Device.Kind.String()},
		{"--kernel", cmp.Or(r.kernel, "none")},
		{"the name of the output file (-o)", filepath.Base(r.out)},
	}
	add := func(name string, l gemm.Layout, data []byte) error {
		sum, err := fingerprint(data)
		order := "row-major"
		if l.Trans {
			order = "column-major"
		}
		values = append(values, [2]string{name, fmt.Sprintf("%v, %s, contents %s", l, order, sum)})
		return err
	}
	for o := range gemm.Operands {
		if p.Uses(o) && b[o] != nil {
			if err := add(o.Phrase(), p.Layout(o), b[o]); err != nil {
				return err
			}
		}
	}
	if c0 != nil {
		if err := add("C0", c0.Layout, c0.Data); err != nil {
			return err
		}
	}
	return r.group.Agree(ctx, values...)
}

// fingerprint returns a hash of samples of data, from its start to its end. It distinguishes files
// that differ almost everywhere, such as those of two experiments.
func fingerprint(data []byte) (text string, err error) {
	const samples, sample = 64, 4 << 10
	hash := sha256.New()
	err = mapping.Access(func() {
		step := max((len(data)-sample)/(samples-1), sample)
		for at := 0; at < len(data); at += step {
			hash.Write(data[at:min(at+sample, len(data))])
		}
	})
	return hex.EncodeToString(hash.Sum(nil)[:8]), err
}

// maxPeerText is the maximum number of bytes of a text about a message of another rank.
const maxPeerText = 200

// plan plans the product with the kernel that rank 0 chooses.
func (r *rankRun) plan(ctx context.Context, whole *dispatch.Job) (err error) {
	var choice []byte
	if r.group.Rank() == 0 {
		if err := whole.Decide(ctx); err != nil {
			return err
		}
		if choice, err = json.Marshal(whole.Choice()); err != nil {
			return err
		}
	}
	if choice, err = r.group.Broadcast(ctx, "the choice of the kernel", 0, choice); err != nil || r.group.Rank() == 0 {
		return err
	}
	var chosen backend.Choice
	if err := json.Unmarshal(choice, &chosen); err != nil {
		return fmt.Errorf("choice of rank 0: %s", phrase.Printable(err.Error(), maxPeerText))
	}
	chosen = chosen.Printable()
	whole.Request.Choice = &chosen
	if err := whole.Decide(ctx); err != nil {
		return fmt.Errorf("%w; rank 0 chose %v, and --kernel chooses for all", err, chosen)
	}
	return nil
}

// divide returns this rank's area of C. All ranks have the same kernel and order of the sums. A
// product whose parts would have other bits, which is small, is rank 0's.
func (r *rankRun) divide(ctx context.Context, whole *dispatch.Plan) (gemm.Area, error) {
	order := whole.Order()
	if err := r.group.Agree(ctx, [2]string{"the order of the sums", order}); err != nil {
		return gemm.Area{}, fmt.Errorf("%w; --kernel chooses for all", err)
	}
	p := &whole.Problem
	switch {
	case order != "":
		return p.Shares(r.group.Size())[r.group.Rank()], nil
	case r.group.Rank() == 0:
		return gemm.Area{Rows: p.M, Cols: p.N}, nil
	}
	return gemm.Area{}, nil
}

// create creates the temporary file of the result, as rank 0, and opens it on the other ranks.
func (r *rankRun) create(ctx context.Context, p *gemm.Problem) (*matio.Shared, error) {
	id, err := strconv.ParseUint(r.group.ID(), 16, 64)
	if err != nil {
		return nil, err
	}
	out, err := matio.NewShared(r.out, *p.C(), id, r.force)
	if err != nil {
		return nil, fmt.Errorf("-o: %w", err)
	}
	if r.group.Rank() == 0 {
		if err := r.checkDisk(p, 0, r.stderr); err != nil {
			return nil, err
		}
		err = out.Create()
	}
	if err == nil {
		err = r.group.Barrier(ctx, "the creation of the output file")
	}
	if err == nil && r.group.Rank() > 0 {
		err = out.Open()
	}
	if err != nil {
		out.Discard()
		if !errors.Is(err, ranks.ErrRank) {
			err = fmt.Errorf("-o: %w", err)
		}
		return nil, err
	}
	return out, nil
}

// compute computes an area of C in memory of its own.
func (r *rankRun) compute(ctx context.Context, whole *dispatch.Job, a gemm.Area,
	c0 *input) (c []byte, report rankReport, err error) {
	if a.Rows == 0 || a.Cols == 0 {
		return nil, report, ctx.Err()
	}
	part, err := whole.Part(a)
	if err != nil {
		return nil, report, err
	}
	p := &part.Problem
	_, memory, err := whole.Problem.Part(a, &whole.Buffers)
	if err != nil {
		return nil, report, err
	}
	what := fmt.Sprintf("rank %d's %d×%d part of the result", r.group.Rank(), p.M, p.N)
	if err := host.CheckMemory(p.C().Bytes()+part.Memory(), what); err != nil {
		return nil, report, err
	}
	c = alignedBytes(p.C().Bytes())
	memory[gemm.C] = c
	if !part.Device().Kind.IsGPU() {
		if err := r.unmap(p, &whole.Buffers, &memory); err != nil {
			return nil, report, err
		}
	}
	if c0 != nil {
		if err := fillC(ctx, p, c, c0, a); err != nil {
			return nil, report, err
		}
	}
	if r.verbose {
		fmt.Fprintf(r.stderr, "%v of %v on %v, kernel %s: %s (%s)\n", a, &whole.Problem, part.Device(), part.Kernel(),
			part.Detail(), whole.Why())
	}
	err = part.Run(ctx, &memory)
	switch {
	case errors.Is(err, mapping.ErrFault):
		err = cmp.Or(r.files.checkUnchanged(), err)
	case errors.Is(err, gemm.ErrVerify):
		err = fmt.Errorf("%v: %w", a, err)
	}
	return c, rankReport{part.Took(), part.CompileTime(), part.Verified()}, err
}

// alignedBytes returns n bytes, aligned for every element type.
func alignedBytes(n int) []byte { return dtype.Bytes(make([]float64, (n+7)/8))[:n] }

// unmap copies the parts of operands in mapped files into memory. A kernel of the CPU would end the
// program if a mapped file is truncated. b holds the whole operands.
func (r *rankRun) unmap(p *gemm.Problem, b, memory *gemm.Buffers) error {
	for o := range gemm.Bias {
		if !p.Uses(o) || !r.files.isMapped(b[o]) {
			continue
		}
		n := p.Layout(o).Bytes()
		if err := host.CheckMemory(n, fmt.Sprintf("rank %d's part of %s", r.group.Rank(), o.Phrase())); err != nil {
			return err
		}
		part := alignedBytes(n)
		if err := mapping.Access(func() { copy(part, memory[o]) }); err != nil {
			return err
		}
		memory[o] = part
	}
	return nil
}

// commit waits for the parts of all ranks, and makes rank 0 give the file its name. It returns the
// longest times, and the worst residual of the verification.
func (r *rankRun) commit(ctx context.Context, mine rankReport, out *matio.Shared) (total rankReport, err error) {
	data, err := json.Marshal(mine)
	if err != nil {
		return total, err
	}
	all, err := r.group.Gather(ctx, "the parts of the result", data)
	if err != nil {
		return total, err
	}
	for rank, data := range all {
		var one rankReport
		if err := json.Unmarshal(data, &one); err != nil {
			return total, fmt.Errorf("report of rank %d: %s", rank, phrase.Printable(err.Error(), maxPeerText))
		}
		total.Took, total.Compile = max(total.Took, one.Took), max(total.Compile, one.Compile)
		switch {
		case one.Verified == nil:
		case total.Verified == nil:
			total.Verified = one.Verified
		default:
			total.Verified.Merge(*one.Verified)
		}
	}
	if r.group.Rank() > 0 {
		return total, r.group.Barrier(ctx, "the name of the output file")
	}
	if err := out.Commit(); err != nil {
		return total, fmt.Errorf("-o: %w", err)
	}
	_ = r.group.Barrier(ctx, "the name of the output file") // the file is complete, even if a rank fails now
	return total, nil
}
