//go:build unix

package pytorch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// fake makes a shell script the python3 of the PATH. The script runs in its folder, which fake
// returns, with the lines of body for each request in $line.
func fake(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\ncd " + dir + "\nwhile read -r line; do\nprintf '%s\\n' \"$line\" >> requests\n" + body +
		"\ndone\n"
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}

// answers are the lines of a script that answers all requests.
const answers = `case $line in
*devices*) echo '{"version": "2.11.0", "cuda": "13.0", "nccl": "2.28.9"}' ;;
*run*) echo '{"seconds": 0.25}' ;;
*check*) echo '{"error": 0.125}' ;;
*) echo '{}' ;;
esac`

// with returns the lines of a script that does something else for requests with a key.
func with(key, line string) string {
	return "case $line in *'\"" + key + "\"'*) " + line + " ;; esac\n" + answers
}

func start(t *testing.T, o Options) (*Runner, error) {
	r, err := Start(t.Context(), o)
	if r != nil {
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(r.folder); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder of the program is left: %v", err)
			}
		})
	}
	return r, err
}

// use starts PyTorch and sends every kind of request.
func use(t *testing.T, o Options) (*Runner, error) {
	r, err := start(t, o)
	if err != nil {
		return r, err
	}
	x, err := r.Prepare(t.Context(), Gather, testkit.Product(t, dtype.BF16, dtype.BF16, 4, 6, 8), 7)
	if err != nil {
		return r, err
	}
	if took, err := x.Run(t.Context(), 3); err != nil || took <= 0 {
		return r, errors.Join(errTime, err)
	}
	if ratio, err := x.Check(t.Context()); err != nil || ratio < 0 || ratio > 1 {
		return r, errors.Join(errRatio, err)
	}
	return r, x.Close()
}

var (
	errTime  = errors.New("no time")
	errRatio = errors.New("no ratio")
)

// TestProtocol checks all requests.
func TestProtocol(t *testing.T) {
	dir := fake(t, answers)
	r, err := use(t, Options{Devices: []string{"cuda:0", "cuda:2"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.String(); got != "PyTorch 2.11.0, CUDA 13.0, NCCL 2.28.9" {
		t.Errorf("versions %q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "requests"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, want := range []string{
		`{"devices":["cuda:0","cuda:2"]}`,
		`{"k":8,"m":4,"n":6,"prepare":1,"seed":7,"trans_a":false,"trans_b":false,"type":"bfloat16","way":"gather"}`,
		`{"products":3,"run":1}`, `{"check":1}`, `{"free":1}`,
	} {
		if lines[i] != want {
			t.Errorf("request %d is %s, want %s", i, lines[i], want)
		}
	}
}

// TestFailures lets the program fail in every way. Each error is one line, and later requests
// return the same one.
func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		kind error
		text string
	}{
		"no PyTorch": {with("devices", `echo '{"failure": "PyTorch is not installed for x: y"}'; exit 1`), ErrNotFound,
			"PyTorch cannot run: PyTorch: PyTorch is not installed for x: y"},
		"end at the start": {with("devices", "echo first >&2; echo last >&2; exit 3"), nil,
			"python3 ended, exit status 3: last"},
		"end":            {with("run", "exit 0"), errTime, "ended, exit status 0: no message"},
		"no JSON":        {with("run", "echo abc"), errTime, `answer "abc" is not JSON`},
		"other JSON":     {with("run", `echo '{"seconds": "x"}'`), errTime, "answer"},
		"no time":        {with("run", "echo '{}'"), errTime, "a time of 0 s for 3 products"},
		"no error":       {with("check", "echo '{}'"), errRatio, "without the error"},
		"failure":        {with("run", `echo '{"failure": "cuda:1: out of memory"}'`), errTime, "cuda:1: out of memory"},
		"unsupported":    {with("prepare", `echo '{"unsupported": "odd sizes"}'`), gemm.ErrUnsupported, "odd sizes"},
		"no answer":      {with("run", "sleep 1000"), errTime, "no answer within 300ms"},
		"a long message": {with("run", "head -c 100000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1"), errTime, "end"},
	} {
		t.Run(name, func(t *testing.T) {
			fake(t, test.body)
			o := Options{Devices: []string{"cpu"}}
			if name == "no answer" {
				o.Timeout = 300 * time.Millisecond
			}
			r, err := use(t, o)
			if err == nil || !strings.Contains(err.Error(), test.text) || test.kind != nil && !errors.Is(err, test.kind) ||
				errors.Is(err, ErrNotFound) != (test.kind == ErrNotFound) {
				t.Fatalf("error %v, want %v with %q", err, test.kind, test.text)
			}
			if r.failed != nil {
				p := testkit.Product(t, dtype.F32, dtype.F32, 1, 1, 1)
				if _, again := r.Prepare(t.Context(), Gather, p, 1); again != r.failed {
					t.Errorf("a later request: error %v, want %v", again, r.failed)
				}
			}
		})
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrNotFound) ||
		!strings.Contains(err.Error(), "no python3 on the PATH") {
		t.Errorf("without Python: error %v", err)
	}
}

// TestCancel cancels a run of a program that has started another process. Both must end.
func TestCancel(t *testing.T) {
	dir := fake(t, with("run", "sleep 1000 & echo $! > pid.new; mv pid.new pid; wait"))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Start(ctx, Options{Devices: []string{"cpu"}})
	if err != nil {
		t.Fatal(err)
	}
	x, err := r.Prepare(ctx, Gather, testkit.Product(t, dtype.F32, dtype.F32, 4, 4, 4), 1)
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	go func() {
		for pid == 0 {
			text, _ := os.ReadFile(filepath.Join(dir, "pid"))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := x.Run(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if err := errors.Join(x.Close(), r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	for start := time.Now(); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		state, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if strings.Contains(string(state), ") Z ") {
			break // ended, and not yet reaped by its new parent
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("the process that the program started is left")
		}
	}
}

// TestUnsupported checks that other products than plain ones are refused before the program is
// asked.
func TestUnsupported(t *testing.T) {
	dir := fake(t, answers)
	r, err := start(t, Options{Devices: []string{"cpu"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *gemm.Problem){
		"integers":  func(p *gemm.Problem) { *p = *testkit.Product(t, dtype.I8, dtype.I32, 4, 4, 4) },
		"two types": func(p *gemm.Problem) { *p = *testkit.Product(t, dtype.BF16, dtype.F32, 4, 4, 4) },
		"alpha":     func(p *gemm.Problem) { p.Alpha = 2 },
		"beta":      func(p *gemm.Problem) { p.Beta = 1 },
		"epilogue":  func(p *gemm.Problem) { p.Epilogue.Activation = gemm.ActReLU },
		"batch":     func(p *gemm.Problem) { p.Batch = gemm.Batch{Kind: gemm.Strided, Count: 2} },
		"TF32":      func(p *gemm.Problem) { p.Precision = gemm.Precisions()[1] },
	} {
		p := testkit.Product(t, dtype.F32, dtype.F32, 4, 4, 4)
		change(p)
		if _, err := r.Prepare(t.Context(), Gather, p, 1); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%s: error %v, want ErrUnsupported", name, err)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "requests")); strings.Count(string(text), "\n") != 1 {
		t.Errorf("requests %q, want that of the start alone", text)
	}
}

// python returns the Python of TILEWORK_PYTHON, or python3. It skips the test if there is none.
func python(t *testing.T) string {
	name := os.Getenv("TILEWORK_PYTHON")
	if name == "" {
		name = "python3"
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("no Python 3")
	}
	return name
}

// TestProgram compiles the program.
func TestProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pytorch.py")
	if err := os.WriteFile(file, program, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python(t), "-m", "py_compile", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWithoutDevices runs the program for a GPU that does not exist, and without PyTorch where that
// is not installed.
func TestWithoutDevices(t *testing.T) {
	_, err := start(t, Options{Python: python(t), Devices: []string{"cuda:99"}})
	if !errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "PyTorch is not installed for ") && !strings.Contains(err.Error(), "want cuda:99") {
		t.Errorf("error %v, want ErrNotFound in one line", err)
	}
}

// TestPyTorch multiplies with PyTorch on the CPU, in one process and in two.
func TestPyTorch(t *testing.T) {
	for _, devices := range [][]string{{"cpu"}, {"cpu", "cpu"}} {
		r, err := start(t, Options{Python: python(t), Devices: devices})
		if errors.Is(err, ErrNotFound) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16} {
			for trans := range 4 {
				m, n, k := 64-trans, 48+trans, 32-trans // the shares of the ranks differ
				a, b := gemm.Dense(kind, m, k), gemm.Dense(kind, k, n)
				if trans&1 != 0 {
					a = gemm.Dense(kind, k, m).T()
				}
				if trans&2 != 0 {
					b = gemm.Dense(kind, n, k).T()
				}
				p, _, err := gemm.New(1, a, b, 0, gemm.Dense(kind, m, n), gemm.Epilogue{})
				if err != nil {
					t.Fatal(err)
				}
				x, err := r.Prepare(t.Context(), Gather, &p, 1)
				if err != nil {
					t.Fatalf("%v: %v", &p, err)
				}
				took, err := x.Run(t.Context(), 2)
				if err != nil || took <= 0 {
					t.Fatalf("%v: %v, %v", &p, took, err)
				}
				ratio, err := x.Check(t.Context())
				if err != nil || !(ratio >= 0 && ratio <= 1) || ratio == 0 && kind == dtype.F32 {
					t.Errorf("%v on %d devices: error / bound %v, %v", &p, len(devices), ratio, err)
				}
				if err := x.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(devices) == 1 {
			continue
		}
		p := testkit.Product(t, dtype.F32, dtype.F32, 4, 4, 4)
		if _, err := r.Prepare(t.Context(), Async, p, 1); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("async on CPUs: error %v, want ErrUnsupported", err)
		}
		one := testkit.Product(t, dtype.F32, dtype.F32, 1, 1, 1) // the second rank has nothing
		x, err := r.Prepare(t.Context(), Gather, one, 1)
		if err != nil {
			t.Fatal(err)
		}
		if ratio, err := x.Check(t.Context()); err != nil || ratio > 1 {
			t.Errorf("1×1×1: error / bound %v, %v", ratio, err)
		}
		unknown := Prepared{r, 1000}
		if _, err := unknown.Run(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "KeyError") {
			t.Errorf("a product that was not prepared: error %v", err)
		}
	}
}
