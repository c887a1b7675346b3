// Package pytorch measures products of PyTorch on one GPU or several. It starts Python with a
// program that this package contains, and exchanges JSON lines with it; see pytorch.py.
package pytorch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
)

//go:embed pytorch.py
var program []byte

// ErrNotFound reports that Python or PyTorch is missing, or GPUs that PyTorch can use.
var ErrNotFound = errors.New("PyTorch cannot run")

// Way is a way in which several GPUs compute a product.
type Way string

// The ways. On one GPU, both are one matmul.
const (
	Gather Way = "gather" // gathers B with NCCL, and multiplies then
	// Async gathers A while it multiplies, with the operation of async tensor parallelism.
	Async Way = "async"
)

// Options selects Python and its devices.
type Options struct {
	Python  string        // the file or name of Python; "python3" if it is empty
	Devices []string      // one for each process: "cuda:0" or "cpu"
	Timeout time.Duration // for each answer; 0 means five minutes
}

// Runner is a running program. Its methods are not safe for concurrent use.
type Runner struct {
	Python  string // the file of Python
	version versions
	timeout time.Duration

	process  *exec.Cmd
	in       io.WriteCloser
	answers  chan []byte // closed at the end of the output
	messages *tail
	folder   string
	prepared int
	failed   error // after it the program does not answer
	close    sync.Once
}

// versions is the program's first answer.
type versions struct {
	Version string `json:"version"`
	CUDA    string `json:"cuda"`
	NCCL    string `json:"nccl"`
}

// Start starts the program, which ends with ctx. The error wraps ErrNotFound if Python, PyTorch or
// devices are missing.
func Start(ctx context.Context, o Options) (_ *Runner, err error) {
	if o.Python == "" {
		o.Python = "python3"
	}
	python, err := exec.LookPath(o.Python)
	if err != nil {
		return nil, fmt.Errorf("%w: no %s on the PATH: install Python 3 with PyTorch", ErrNotFound, o.Python)
	}
	r := &Runner{Python: python, timeout: o.Timeout, answers: make(chan []byte, 1), messages: &tail{}}
	if r.timeout == 0 {
		r.timeout = 5 * time.Minute
	}
	// The processes of the ranks import the program, so it must be a file.
	if r.folder, err = os.MkdirTemp("", "tilework-pytorch-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	file := filepath.Join(r.folder, "pytorch.py")
	if err := os.WriteFile(file, program, 0o600); err != nil {
		return nil, err
	}
	r.process = exec.CommandContext(ctx, python, file)
	r.process.Stderr = r.messages
	r.process.WaitDelay = 2 * time.Second // for processes that it leaves
	group(r.process)
	if r.in, err = r.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.process.Start(); err != nil {
		r.process = nil
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	go r.read(out)
	err = r.ask(ctx, map[string]any{"devices": o.Devices}, &r.version)
	if errors.As(err, new(failure)) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return r, err
}

// read passes the lines of the output on until its end.
func (r *Runner) read(out io.Reader) {
	defer close(r.answers)
	const longest = 1 << 20
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		r.answers <- bytes.Clone(lines.Bytes())
	}
}

// failure is a failure that the program reports.
type failure struct{ text string }

func (f failure) Error() string { return f.text }

// ask sends a request and decodes the answer into to.
func (r *Runner) ask(ctx context.Context, request map[string]any, to any) (err error) {
	if r.failed != nil {
		return r.failed
	}
	defer func() {
		if err != nil && !errors.Is(err, gemm.ErrUnsupported) {
			r.failed = fmt.Errorf("PyTorch: %w", err)
			err = r.failed
		}
	}()
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	// An error of writing to a program that has ended is less informative than its messages.
	_, _ = r.in.Write(append(text, '\n'))
	var line []byte
	ok := false
	select {
	case line, ok = <-r.answers:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.timeout):
		return fmt.Errorf("no answer within %v to %s", r.timeout, text)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !ok {
		_ = r.process.Wait() // its error is in the state
		kill(r.process)      // the processes that it leaves
		state := r.process.ProcessState
		r.process = nil
		return fmt.Errorf("%s ended, %v: %s", r.Python, state, cmp.Or(r.messages.last(), "no message"))
	}
	var problem struct{ Failure, Unsupported string }
	switch err := json.Unmarshal(line, &problem); {
	case err != nil:
		return fmt.Errorf("answer %.80q is not JSON: %w", line, err)
	case problem.Failure != "":
		return failure{problem.Failure}
	case problem.Unsupported != "":
		return fmt.Errorf("%w: PyTorch: %s", gemm.ErrUnsupported, problem.Unsupported)
	}
	if err := json.Unmarshal(line, to); err != nil {
		return fmt.Errorf("answer %.80q: %w", line, err)
	}
	return nil
}

// String returns the versions of PyTorch and its libraries.
func (r *Runner) String() string {
	text := "PyTorch " + r.version.Version
	if r.version.CUDA != "" {
		text += ", CUDA " + r.version.CUDA
	}
	if r.version.NCCL != "" {
		text += ", NCCL " + r.version.NCCL
	}
	return text
}

// Close ends the program and its processes.
func (r *Runner) Close() (err error) {
	r.close.Do(func() {
		if r.process != nil && r.process.Process != nil {
			// The program cannot end by itself while a rank waits for another one.
			kill(r.process)
			for range r.answers {
			}
			_ = r.process.Wait() // killed
		}
		err = os.RemoveAll(r.folder)
	})
	return err
}

// Prepared is a product whose operands, random numbers between -1 and 1 without space between their
// rows, are on the devices.
type Prepared struct {
	runner *Runner
	number int
}

// types lists the element types by PyTorch's names.
var types = map[dtype.Type]string{dtype.F32: "float32", dtype.F64: "float64", dtype.F16: "float16",
	dtype.BF16: "bfloat16"}

// Prepare allocates the operands of p. The error wraps ErrUnsupported for products other than plain
// ones.
func (r *Runner) Prepare(ctx context.Context, way Way, p *gemm.Problem, seed uint64) (*Prepared, error) {
	name, ok := types[p.In()]
	switch {
	case !ok || p.Out() != p.In() || p.Precision != gemm.Native:
		return nil, fmt.Errorf("%w: PyTorch with %v: want float32, float64, float16 or bfloat16 for A, B and C",
			gemm.ErrUnsupported, p)
	case p.Alpha != 1 || p.Beta != 0 || p.Epilogue != gemm.Epilogue{} || p.Batch != gemm.Batch{}:
		return nil, fmt.Errorf("%w: PyTorch with factors, an epilogue or a batch: want a plain product", gemm.ErrUnsupported)
	}
	r.prepared++
	if err := r.ask(ctx, map[string]any{"prepare": r.prepared, "way": way, "type": name, "m": p.M, "n": p.N, "k": p.K,
		"trans_a": p.A().Trans, "trans_b": p.B().Trans, "seed": seed}, &struct{}{}); err != nil {
		return nil, err
	}
	return &Prepared{r, r.prepared}, nil
}

// Run computes the product n times, and returns the time from the start of all processes until the
// last one has finished.
func (p *Prepared) Run(ctx context.Context, n int) (time.Duration, error) {
	var answer struct{ Seconds float64 }
	if err := p.runner.ask(ctx, map[string]any{"run": p.number, "products": n}, &answer); err != nil {
		return 0, err
	}
	if !(answer.Seconds > 0) {
		return 0, fmt.Errorf("PyTorch: a time of %v s for %d products: want more than 0", answer.Seconds, n)
	}
	return time.Duration(answer.Seconds * float64(time.Second)), nil
}

// Check computes the product, and compares some rows of C with float64 sums. It returns the largest
// error divided by its bound.
func (p *Prepared) Check(ctx context.Context) (ratio float64, err error) {
	var answer struct{ Error *float64 }
	if err := p.runner.ask(ctx, map[string]any{"check": p.number}, &answer); err != nil {
		return 0, err
	}
	if answer.Error == nil {
		return 0, errors.New("PyTorch: an answer without the error of the product")
	}
	return *answer.Error, nil
}

// Close frees the operands.
func (p *Prepared) Close() error {
	if p.runner.failed != nil {
		return nil // the program has ended
	}
	return p.runner.ask(context.Background(), map[string]any{"free": p.number}, &struct{}{})
}

// tail keeps the end of a text.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements [io.Writer].
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 4096
	t.text = append(t.text, b...)
	t.text = t.text[max(len(t.text)-most, 0):]
	return len(b), nil
}

// last returns the last line.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
