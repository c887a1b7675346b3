package peers

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/dl"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// needsLoader skips a test on platforms that cannot open libraries.
func needsLoader(t *testing.T) {
	t.Helper()
	if _, err := dl.Open("", dl.Local); errors.Is(err, gemm.ErrUnsupported) {
		t.Skip(err)
	}
}

// open opens a library. If it is not installed, the test is skipped, or fails if
// TILEWORK_REQUIRE_PEERS ("openblas,mkl") names it.
func open(t *testing.T, name string, o Options) *Peer {
	t.Helper()
	needsLoader(t)
	p, err := Open(name, o)
	if errors.Is(err, ErrNotFound) && !slices.Contains(strings.Split(os.Getenv("TILEWORK_REQUIRE_PEERS"), ","), name) {
		t.Skipf("%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLibrariesDescribeThemselves(t *testing.T) {
	for _, l := range Libraries() {
		t.Run(l.Name, func(t *testing.T) {
			p := open(t, l.Name, Options{})
			t.Logf("%v; %s; %s; %d threads; caveat %q", p, p.Path, p.Config, p.Threads(), p.Caveat())
			if p.Version == "" || p.Version[0] < '0' || p.Version[0] > '9' {
				t.Errorf("got version %q, want a number", p.Version)
			}
			if p.Core == "" {
				t.Error("got no core type")
			}
			if !filepath.IsAbs(p.Path) {
				t.Errorf("got path %q, want an absolute one", p.Path)
			}
			if p.Threads() != runtime.GOMAXPROCS(0) {
				t.Errorf("got %d threads, want GOMAXPROCS, %d", p.Threads(), runtime.GOMAXPROCS(0))
			}
			if p.Name() != l.Name || !strings.HasPrefix(p.String(), l.Title+" ") {
				t.Errorf("got name %q and description %q", p.Name(), p)
			}
		})
	}
}

// TestGemm compares random products with sums in float64. The padding of the matrices is NaN.
func TestGemm(t *testing.T) {
	seed := testrand.Seed(t)
	for _, l := range Libraries() {
		t.Run(l.Name, func(t *testing.T) {
			p := open(t, l.Name, Options{})
			rng := rand.New(rand.NewPCG(seed, 1))
			for _, threads := range []int{1, 2} {
				if err := p.SetThreads(threads); err != nil {
					t.Fatal(err)
				}
				for range 150 {
					if err := randomProduct(rng, p); err != nil {
						t.Fatalf("%d threads: %v", threads, err)
					}
				}
			}
		})
	}
}

func randomProduct(rng *rand.Rand, p *Peer) error {
	typ := p.Library.types[rng.IntN(len(p.Library.types))]
	layout := func(rows, cols int) gemm.Layout {
		l := gemm.Dense(typ, rows, cols)
		if trans := rng.IntN(2) == 1; trans {
			l = gemm.Dense(typ, cols, rows).T()
		}
		l.LD += rng.IntN(4)
		return l
	}
	out := typ.Info().Results[0]
	if typ != dtype.F32 && typ != dtype.I8 {
		out = typ.Info().Results[rng.IntN(len(typ.Info().Results))]
	}
	m, n, k := rng.IntN(40), rng.IntN(40), rng.IntN(40)
	c := gemm.Dense(out, m, n)
	c.LD += rng.IntN(4)
	scalars := []complex128{0, 1, -0.5}
	alpha, beta := scalars[rng.IntN(3)], scalars[rng.IntN(3)]
	if p.Library.onlyAB {
		k, alpha, beta = k+1, 1, 0
	}
	pr, _, err := gemm.New(alpha, layout(m, k), layout(k, n), beta, c, gemm.Epilogue{})
	if err != nil {
		return err
	}
	b := gemm.Buffers{gemm.A: random(rng, pr.Layouts[gemm.A]), gemm.B: random(rng, pr.Layouts[gemm.B]),
		gemm.C: random(rng, pr.Layouts[gemm.C])}
	before := slices.Clone(b[gemm.C])
	if err := p.Gemm(&pr, &b); err != nil {
		return err
	}
	at := func(l gemm.Layout, buf []byte, i, j int) float64 { return l.Type.At(buf, l.Index(i, j)) }
	sums, u := pr.Accum().Info(), out.Info().Roundoff
	for i := range m {
		for j := range n {
			var sum, abs float64
			for q := range k {
				term := at(pr.Layouts[gemm.A], b[gemm.A], i, q) * at(pr.Layouts[gemm.B], b[gemm.B], q, j)
				sum, abs = sum+term, abs+math.Abs(term)
			}
			old := at(pr.Layouts[gemm.C], before, i, j)
			alpha, beta := real(pr.Alpha), real(pr.Beta)
			want := alpha*sum + beta*old
			bound := (2*float64(k+3)*sums.Roundoff+2*u)*(math.Abs(alpha)*abs+math.Abs(beta*old)) + out.Info().Tiny
			if got := at(pr.Layouts[gemm.C], b[gemm.C], i, j); !(math.Abs(got-want) <= bound) {
				return fmt.Errorf("%v, α %v, β %v, A %v, B %v: C[%d,%d] = %v, want %v ± %v", &pr, alpha, beta,
					pr.Layouts[gemm.A], pr.Layouts[gemm.B], i, j, got, want, bound)
			}
		}
	}
	for i := range max(m-1, 0) * min(n, 1) { // the padding after each row but the last
		for j := n; j < pr.C().LD; j++ {
			at := out.Bytes(i*pr.C().LD + j)
			if !bytes.Equal(b[gemm.C][at:][:out.Size()], before[at:][:out.Size()]) {
				return fmt.Errorf("%v: padding [%d,%d] was overwritten", &pr, i, j)
			}
		}
	}
	return nil
}

// random returns a matrix of random values in [-1, 1], or up to 100 for integers. Its padding is
// NaN or the largest integer.
func random(rng *rand.Rand, l gemm.Layout) []byte {
	b := make([]byte, l.Bytes())
	scale, poison := 1.0, math.NaN()
	if in := l.Type.Info(); in.Integer {
		scale, poison = 100, in.Max
	}
	for i := range l.Len() {
		v := poison
		if i%l.LD < l.Cols {
			v = scale * (2*rng.Float64() - 1)
		}
		l.Type.Set(b, i, v)
	}
	return b
}

// TestConcurrentCallers sets the number of threads on one OS thread and multiplies on others, for
// which some libraries would use their default number.
func TestConcurrentCallers(t *testing.T) {
	for _, l := range Libraries() {
		t.Run(l.Name, func(t *testing.T) {
			p := open(t, l.Name, Options{Threads: 1})
			var wg sync.WaitGroup
			errs := make(chan error, 8)
			for g := range cap(errs) {
				wg.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					rng := rand.New(rand.NewPCG(uint64(g), 2))
					for range 20 {
						if err := randomProduct(rng, p); err != nil {
							errs <- err
							return
						}
					}
					if got := int32(p.call(l.getThreads)); got != 1 {
						errs <- fmt.Errorf("a product used %d threads, want 1", got)
					}
				})
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				t.Error(err)
			}
		})
	}
}

func TestGemmErrors(t *testing.T) {
	for _, l := range Libraries() {
		t.Run(l.Name, func(t *testing.T) {
			p := open(t, l.Name, Options{})
			problem := func(in, out dtype.Type, n, ld int, e gemm.Epilogue) gemm.Problem {
				a := gemm.Dense(in, n, n)
				a.LD = max(ld, n)
				pr, _, err := gemm.New(1, a, gemm.Dense(in, n, n), 0, gemm.Dense(out, n, n), e)
				if err != nil {
					t.Fatal(err)
				}
				return pr
			}
			other := dtype.F16
			if slices.Contains(l.types, other) {
				other = dtype.F64
			}
			buf := make([]byte, 64)
			good := gemm.Buffers{gemm.A: buf[:16], gemm.B: buf[16:32], gemm.C: buf[32:48]}
			short, overlap := good, good
			short[gemm.B] = short[gemm.B][:15]
			overlap[gemm.C] = overlap[gemm.A]
			for _, c := range []struct {
				name string
				pr   gemm.Problem
				b    gemm.Buffers
				want error
			}{
				{"unsupported type", problem(other, other, 2, 0, gemm.Epilogue{}), good, gemm.ErrUnsupported},
				{"activation", problem(dtype.F32, dtype.F32, 2, 0, gemm.Epilogue{Activation: gemm.ActReLU}), good,
					gemm.ErrUnsupported},
				{"bias", problem(dtype.F32, dtype.F32, 2, 0, gemm.Epilogue{Bias: gemm.BiasRow}), good, gemm.ErrUnsupported},
				{"33-bit leading dimension", problem(dtype.F32, dtype.F32, 2, 1<<32, gemm.Epilogue{}), good, gemm.ErrUnsupported},
				{"short buffer", problem(dtype.F32, dtype.F32, 2, 0, gemm.Epilogue{}), short, gemm.ErrShape},
				{"overlap", problem(dtype.F32, dtype.F32, 2, 0, gemm.Epilogue{}), overlap, gemm.ErrOverlap},
				{"valid", problem(dtype.F32, dtype.F32, 2, 0, gemm.Epilogue{}), good, nil},
			} {
				if err := p.Gemm(&c.pr, &c.b); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
					t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
				}
			}
			for _, n := range []int{-1, 0, 1 << 20} {
				if err := p.SetThreads(n); !errors.Is(err, gemm.ErrUnsupported) {
					t.Errorf("%d threads: got error %v, want %v", n, err, gemm.ErrUnsupported)
				}
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "libopenblas.so.0")
	if err := os.WriteFile(text, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, lib string
		o         Options
		env       map[string]string
		want      string // part of the message
		is        error
	}{
		{name: "unknown name", lib: "atlas", want: `unknown peer "atlas": want one of openblas, blis, mkl, onednn`},
		{name: "missing file", lib: "blis", o: Options{Path: filepath.Join(dir, "none.so")}, want: "no file " + dir,
			is: ErrNotFound},
		{name: "directory", lib: "mkl", o: Options{Path: dir}, want: "want a regular file"},
		{name: "text file", lib: "openblas", o: Options{Path: text}, want: "libopenblas.so.0"},
		{name: "text file in the variable", lib: "openblas", env: map[string]string{"TILEWORK_OPENBLAS": text},
			want: "TILEWORK_OPENBLAS: " + text},
		{name: "relative path in the variable", lib: "openblas",
			env: map[string]string{"TILEWORK_OPENBLAS": "libopenblas.so.0"}, want: "want an absolute path"},
		{name: "no choice of cores", lib: "blis", o: Options{Core: "zen4"}, want: "no choice of kernels",
			is: gemm.ErrUnsupported},
		{name: "negative threads", lib: "blis", o: Options{Threads: -2}, want: "-2 threads", is: gemm.ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "text file") {
				needsLoader(t)
			}
			t.Setenv("TILEWORK_OPENBLAS", "")
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			p, err := Open(c.lib, c.o)
			if err == nil {
				t.Fatalf("opened %v", p.Path)
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %q, want one line with %q", err, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got error %v, want %v", err, c.is)
			}
		})
	}
}

// TestWrongLibrary opens libraries as if they were OpenBLAS.
func TestWrongLibrary(t *testing.T) {
	blis := open(t, "blis", Options{})
	if _, err := Open("openblas", Options{Path: blis.Path}); err == nil ||
		!strings.Contains(err.Error(), "want the library OpenBLAS") {
		t.Errorf("BLIS opened as OpenBLAS: got error %v", err)
	}
	libc, _ := filepath.Glob("/lib/*/libm.so.6")
	if len(libc) == 0 {
		t.Skip("no libm in the usual directories")
	}
	if _, err := Open("openblas", Options{Path: libc[0]}); err == nil ||
		!strings.Contains(err.Error(), "has no function sgemm_") {
		t.Errorf("libm opened as OpenBLAS: got error %v", err)
	}
}

// TestMKLWithoutItsFiles checks that missing files of MKL are an error. MKL itself would end the
// process.
func TestMKLWithoutItsFiles(t *testing.T) {
	mkl := open(t, "mkl", Options{})
	dir := t.TempDir()
	data, err := os.ReadFile(mkl.Path)
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(dir, filepath.Base(mkl.Path))
	if err := os.WriteFile(alone, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("mkl", Options{Path: alone}); err == nil ||
		!strings.Contains(err.Error(), "no libmkl_core in the same directory") {
		t.Errorf("error %v", err)
	}
}

// TestCore runs the test binary once per kernel family, because a process opens a library only
// once.
func TestCore(t *testing.T) {
	const env, coreEnv = "TILEWORK_TEST_CORE", "OPENBLAS_CORETYPE"
	if core := os.Getenv(env); core != "" {
		p, err := Open("openblas", Options{Core: core})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("core=%s caveat=%q env=%q\n", p.Core, p.Caveat(), os.Getenv(coreEnv))
		os.Exit(0)
	}
	open(t, "openblas", Options{})
	if runtime.GOARCH != "amd64" {
		t.Skip("the core names are for x86")
	}
	for _, tt := range []struct{ before, core, want string }{
		{"", "haswell", "core=Haswell"},
		{"Nehalem", "haswell", "core=Haswell"},
		{"", "SANDYBRIDGE", "core=Sandybridge"},
		{"", "nonesuch", "despite OPENBLAS_CORETYPE=nonesuch"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCore$")
		cmd.Env = append(os.Environ(), env+"="+tt.core, coreEnv+"="+tt.before)
		out, _ := cmd.CombinedOutput()
		t.Logf("%s", out)
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("core %s: got %q, want %q", tt.core, out, tt.want)
		}
		restored := fmt.Sprintf("env=%q", tt.before)
		if strings.Contains(tt.want, "core=") && !strings.Contains(string(out), restored) {
			t.Errorf("core %s: got %q, want the variable restored: %s", tt.core, out, restored)
		}
	}
}

// BenchmarkCall measures the overhead of a call with a tiny product.
func BenchmarkCall(b *testing.B) {
	for _, l := range Libraries() {
		b.Run(l.Name, func(b *testing.B) {
			p, err := Open(l.Name, Options{Threads: 1})
			if err != nil {
				b.Skip(err)
			}
			one := gemm.Dense(dtype.F32, 1, 1)
			pr, _, err := gemm.New(1, one, one, 0, one, gemm.Epilogue{})
			if err != nil {
				b.Fatal(err)
			}
			run, err := p.Prepare(b.Context(), &pr)
			if err != nil {
				b.Fatal(err)
			}
			buf := gemm.Buffers{gemm.A: make([]byte, 4), gemm.B: make([]byte, 4), gemm.C: make([]byte, 4)}
			for b.Loop() {
				if err := run(&buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
