package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
)

// bencher measures products on one kind of device.
type bencher struct {
	// subjects returns the names of the kernels and peers that measure times.
	subjects func(p *gemm.Problem) []string
	options  bench.Options
	newCase  func(p gemm.Problem) bench.Case
	// fits returns an error if the memory does not suffice to measure a product.
	fits    func(p *gemm.Problem) error
	measure func(ctx context.Context, c bench.Case) ([]bench.Record, error)
	close   func() error
}

// job is a bencher with the products to measure.
type job struct {
	bencher
	device   string
	problems []gemm.Problem
}

// study holds all measurements of a command, and the file to write them to.
type study struct {
	jobs    []*job
	history *bench.History
	file    *recordFile
}

// openStudy opens all devices and libraries. It fails if a product cannot be measured, so that such
// errors occur before the first measurement.
func openStudy(ctx context.Context, parts []*benchFlags, stderr io.Writer) (_ *study, err error) {
	s := &study{history: bench.NewHistory(nil)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	stderr = &dedupWriter{w: stderr, written: map[string]bool{}} // parts load the same libraries
	var missing []string
	var why error
	for _, f := range parts {
		j, err := f.open(ctx, stderr)
		if f.optional && errors.Is(err, sentinel.ErrNoDevice) || f.ofPreset() && errors.Is(err, gemm.ErrUnsupported) {
			missing, why = append(missing, f.about), err
			continue
		}
		if err != nil {
			return nil, err
		}
		s.jobs = append(s.jobs, j)
		if err := j.checkMemory(f.optional, stderr); err != nil {
			return nil, err
		}
	}
	switch {
	case len(s.jobs) == 0:
		return nil, why
	case len(missing) > 0:
		fmt.Fprintf(stderr, "skipped: %s: %v\n", strings.Join(missing, "; "), why)
	}
	return s, nil
}

// dedupWriter drops a write that is identical to an earlier one.
type dedupWriter struct {
	w       io.Writer
	written map[string]bool
}

func (o *dedupWriter) Write(text []byte) (int, error) {
	if o.written[string(text)] {
		return len(text), nil
	}
	o.written[string(text)] = true
	return o.w.Write(text)
}

// open opens the device, kernels and libraries that f names.
func (f *benchFlags) open(ctx context.Context, stderr io.Writer) (*job, error) {
	device, err := namedDevice(f.device)
	if err != nil {
		return nil, err
	}
	sizes, open := "64,256,1024", f.onCPU
	switch device.Kind {
	case backend.Emulator:
		sizes, open = "64,256", f.onEmulator
	case backend.GPU:
		switch open = f.onGPU; {
		case f.transfers:
			open = f.throughGPU
		case device.List != "" || f.wantsTorch():
			open = f.onResident
		}
	}
	if device.Kind == backend.Emulator && device.List != "" {
		return nil, fmt.Errorf("--device %s: bench counts on one emulated GPU (want emu or emu:MODEL)", f.device)
	}
	if f.transfers && device.Kind != backend.GPU {
		return nil, fmt.Errorf("--transfers: %s has no copies to time (want --device gpu)", f.device)
	}
	if f.gpuMemory != "" && !f.transfers {
		return nil, fmt.Errorf("--gpu-memory %s: want --transfers, the matrices would be in GPU memory", f.gpuMemory)
	}
	if f.sustained > 0 && (device.Kind != backend.GPU || f.transfers) {
		return nil, fmt.Errorf("--sustained reads the energy counter of a GPU: want --device gpu, without --transfers")
	}
	if f.batch < 1 {
		return nil, fmt.Errorf("--batch %d: want 1 or more", f.batch)
	}
	if (f.batch > 1 || f.groups != "") && (device.Kind == backend.CPU || f.transfers) {
		return nil, fmt.Errorf("--batch and --groups need matrices in GPU memory: want --device gpu or emu, without " +
			"--transfers")
	}
	if f.packed && device.Kind != backend.CPU {
		return nil, fmt.Errorf("--packed with --device %s: want --device cpu, only the CPU multiplies by a packed B",
			f.device)
	}
	if err := f.checkChoice(device); err != nil {
		return nil, err
	}
	problems, err := f.problems(sizes, device.Kind == backend.CPU)
	if err != nil {
		return nil, err
	}
	if f.kernels == "none" && f.peers == "" {
		return nil, fmt.Errorf("--kernels none without --peers: nothing to measure")
	}
	if err := dispatch.CheckThreads(f.threads); err != nil {
		return nil, fmt.Errorf("--threads: %w", err)
	}
	b, err := open(ctx, device, problems, stderr)
	if err != nil {
		return nil, err
	}
	return &job{b, f.device, problems}, nil
}

// checkMemory returns an error if the memory does not suffice for a product. Products of an
// optional job are removed instead, with a message on stderr.
func (j *job) checkMemory(optional bool, stderr io.Writer) error {
	var fit []gemm.Problem
	for i := range j.problems {
		switch err := j.fits(&j.problems[i]); {
		case err == nil:
			fit = append(fit, j.problems[i])
		case optional:
			fmt.Fprintf(stderr, "skipped: %v\n", err)
		default:
			return err
		}
	}
	j.problems = fit
	return nil
}

// openFile opens the file of -o or --resume.
func (s *study) openFile(f *benchFlags, stderr io.Writer) (err error) {
	switch {
	case f.out != "":
		s.file, err = newRecordFile(f.out, f.force)
		return err
	case f.resume == "":
		return nil
	}
	records, err := readResumed(f.resume)
	if err != nil {
		return err
	}
	s.history = bench.NewHistory(records.records)
	for _, j := range s.jobs {
		here := bench.Host()
		if j.options.Environment != nil {
			here = *j.options.Environment
		}
		if difference := s.history.Differs(&here, j.device); difference != "" {
			return fmt.Errorf("--resume: %s cannot be continued here: %s", f.resume, difference)
		}
	}
	s.file, err = records.open(stderr)
	return err
}

// measure measures the products that are not in the history, and writes their records to the file.
// It returns the records of all products in order, including those of the history.
func (s *study) measure(ctx context.Context, bar *progress) (all []bench.Record, failed error) {
	defer bar.close()
	estimate := bench.NewEstimate(s.problems())
	for i, j := range s.jobs {
		for k := range j.problems {
			c := j.newCase(j.problems[k])
			if known, ok := s.history.Find(c, j.options, j.subjects(&c.Problem)); ok {
				all = append(all, known...)
				estimate.Skip(i, k)
				continue
			}
			bar.expect(fmt.Sprintf("%s, %v", j.device, &c.Problem), estimate.Remaining())
			start := time.Now()
			records, err := j.measure(ctx, c)
			all = append(all, records...)
			failed = errors.Join(failed, err)
			if err := s.file.write(records); err != nil {
				return all, errors.Join(failed, err)
			}
			if ctx.Err() != nil || errors.Is(err, sentinel.ErrNoDevice) {
				return all, errors.Join(failed, ctx.Err()) // err lacks it if ctx was cancelled after the measurement
			}
			estimate.Done(i, k, time.Since(start))
		}
	}
	return all, failed
}

// problems returns the products of each job.
func (s *study) problems() (all [][]gemm.Problem) {
	for _, j := range s.jobs {
		all = append(all, j.problems)
	}
	return all
}

func (s *study) close() error {
	err := s.file.close()
	for i := len(s.jobs) - 1; i >= 0; i-- {
		err = errors.Join(err, s.jobs[i].close())
	}
	return err
}
