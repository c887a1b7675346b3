package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tilework/internal/bench"
	"tilework/internal/gemm"
)

// bencher measures products, as one kind of device needs it.
type bencher struct {
	subjects []string
	options  bench.Options
	kase     func(p gemm.Problem) bench.Case
	// fits reports whether there is the memory to measure a product.
	fits    func(p *gemm.Problem) error
	measure func(ctx context.Context, c bench.Case) ([]bench.Record, error)
	close   func() error
}

// job is products to measure in one way.
type job struct {
	bencher
	device   string
	problems []gemm.Problem
}

// study is all that a command measures.
type study struct {
	jobs    []*job
	history *bench.History
	file    *recordFile
}

// openStudy opens all devices and libraries, and refuses what cannot be measured, before
// anything is.
func openStudy(ctx context.Context, parts []*benchFlags, stderr io.Writer) (_ *study, err error) {
	s := &study{history: bench.NewHistory(nil)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	stderr = &once{w: stderr, said: map[string]bool{}} // parts have libraries in common
	var missing []string
	var why error
	for _, f := range parts {
		j, err := f.open(ctx, stderr)
		if f.optional && errors.Is(err, gemm.ErrNoDevice) || f.ofPreset() && errors.Is(err, gemm.ErrUnsupported) {
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
		fmt.Fprintf(stderr, "left out: %s: %v\n", strings.Join(missing, "; "), why)
	}
	return s, nil
}

// once is a writer that says nothing twice.
type once struct {
	w    io.Writer
	said map[string]bool
}

func (o *once) Write(text []byte) (int, error) {
	if o.said[string(text)] {
		return len(text), nil
	}
	o.said[string(text)] = true
	return o.w.Write(text)
}

// open readies what one set of flags asks for.
func (f *benchFlags) open(ctx context.Context, stderr io.Writer) (*job, error) {
	device, err := namedDevice(f.device)
	if err != nil {
		return nil, err
	}
	sizes, open := "64,256,1024", f.onProcessor
	switch device.Kind {
	case "emu":
		sizes, open = "64,256", f.onEmulator
	case "gpu":
		if open = f.onGPU; f.transfers {
			open = f.throughGPU
		}
	}
	if f.transfers && device.Kind != "gpu" {
		return nil, fmt.Errorf("--transfers: there are no copies to time on %s (want --device gpu)", f.device)
	}
	if f.batch < 1 {
		return nil, fmt.Errorf("--batch %d: want 1 or more", f.batch)
	}
	if (f.batch > 1 || f.groups != "") && (device.Kind == "cpu" || f.transfers) {
		return nil, fmt.Errorf("--batch and --groups are for matrices that are on a GPU, real or emulated (want --device gpu or emu, and no --transfers)")
	}
	if f.packed && device.Kind != "cpu" {
		return nil, fmt.Errorf("--packed: B is packed before on the processor alone (want --device cpu)")
	}
	problems, err := f.problems(sizes)
	if err != nil {
		return nil, err
	}
	if f.kernels == "none" && f.peers == "" {
		return nil, fmt.Errorf("--kernels none without --peers: nothing to measure")
	}
	if f.threads < 0 {
		return nil, fmt.Errorf("--threads %d: want 1 or more, or 0 for all", f.threads)
	}
	b, err := open(ctx, device, problems, stderr)
	if err != nil {
		return nil, err
	}
	return &job{b, f.device, problems}, nil
}

// checkMemory refuses products that there is no memory for; optional ones are left out,
// which is said.
func (j *job) checkMemory(optional bool, stderr io.Writer) error {
	var fit []gemm.Problem
	for i := range j.problems {
		switch err := j.fits(&j.problems[i]); {
		case err == nil:
			fit = append(fit, j.problems[i])
		case optional:
			fmt.Fprintf(stderr, "left out: %v\n", err)
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
		if other := s.history.Differs(&here, j.device); other != "" {
			return fmt.Errorf("--resume: %s cannot be continued here: %s", f.resume, other)
		}
	}
	s.file, err = records.open(stderr)
	return err
}

// measure measures what the history lacks, and writes it to the file; it returns the
// records of all products, with those of the history in their places.
func (s *study) measure(ctx context.Context, bar *progress) (all []bench.Record, failed error) {
	defer bar.close()
	left := newForecast(s.jobs)
	for i, j := range s.jobs {
		for k := range j.problems {
			c := j.kase(j.problems[k])
			if known, ok := s.history.Find(c, j.options, j.subjects); ok {
				all = append(all, known...)
				left.skip(i, k)
				continue
			}
			bar.expect(fmt.Sprintf("%s, %v", j.device, &c.Problem), left.time())
			start := time.Now()
			records, err := j.measure(ctx, c)
			all = append(all, records...)
			failed = errors.Join(failed, err)
			if err := s.file.write(records); err != nil {
				return all, errors.Join(failed, err)
			}
			if ctx.Err() != nil || errors.Is(err, gemm.ErrNoDevice) {
				return all, errors.Join(failed, ctx.Err()) // it may have ended just now
			}
			left.done(i, k, time.Since(start))
		}
	}
	return all, failed
}

func (s *study) close() error {
	err := s.file.close()
	for i := len(s.jobs) - 1; i >= 0; i-- {
		err = errors.Join(err, s.jobs[i].close())
	}
	return err
}
