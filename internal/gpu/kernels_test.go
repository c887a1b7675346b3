package gpu

import (
	"os"
	"path/filepath"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/ptx"
)

// problems are products that between them need every way of writing a kernel.
func problems(t *testing.T) []*gemm.Problem {
	t.Helper()
	var all []*gemm.Problem
	add := func(in, out dtype.Type, m, n, k int, transA, transB bool, e gemm.Epilogue) {
		a, b := gemm.Dense(in, m, k), gemm.Dense(in, k, n)
		if transA {
			a = gemm.Dense(in, k, m).T()
		}
		if transB {
			b = gemm.Dense(in, n, k).T()
		}
		p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &p)
	}
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			for trans := range 4 {
				add(in, out, 64, 64, 64, trans&1 != 0, trans&2 != 0, gemm.Epilogue{})
				add(in, out, 33, 35, 37, trans&1 != 0, trans&2 != 0, gemm.Epilogue{})
			}
			for _, act := range gemm.Activations() {
				if act.Info().Integer || !out.Info().Integer {
					add(in, out, 64, 64, 64, false, false, gemm.Epilogue{Bias: gemm.BiasDim(len(all) % 3), Activation: act})
				}
			}
		}
		if len(in.Info().Results) > 0 {
			add(in, in.Info().Results[0], 1<<31, 1, 1, false, false, gemm.Epilogue{})
		}
	}
	return all
}

// configs calls f for every kernel, every shape of its list and every problem.
func configs(t *testing.T, f func(k *Kernel, p *gemm.Problem, c Config)) {
	all := problems(t)
	for _, k := range Kernels() {
		for _, p := range all {
			if k.Supports(p) != nil {
				continue
			}
			for _, s := range k.Shapes() {
				f(k, p, k.Config(p, s))
			}
		}
	}
}

// TestEmit: every kernel can be written for every type, shape and epilogue, and what
// is written can be read.
func TestEmit(t *testing.T) {
	n := 0
	configs(t, func(k *Kernel, p *gemm.Problem, c Config) {
		n++
		m, err := k.Emit(c)
		if err != nil {
			t.Errorf("%s, %v: %v", k.Name, c, err)
			return
		}
		if m.Target.SM > k.SM {
			t.Errorf("%s, %v: the text needs %v, the kernel's row says sm_%d", k.Name, c, m.Target, k.SM)
		}
		text := m.String()
		again, err := ptx.Parse(k.Name, text)
		if err == nil {
			err = ptx.Verify(again)
		}
		if err != nil || again.String() != text {
			t.Errorf("%s, %v: read back: %v", k.Name, c, err)
		}
	})
	t.Logf("%d texts", n)
}

// TestSnapshots: the text of one configuration of each kernel, for a person to read.
func TestSnapshots(t *testing.T) {
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 64, 64), gemm.Dense(dtype.F32, 64, 64), 0, gemm.Dense(dtype.F32, 64, 64), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kernels() {
		s := k.Shapes()[len(k.Shapes())-1]
		if k == tiled {
			s = square(4, 4)
		}
		m, err := k.Emit(k.Config(&p, s))
		if err != nil {
			t.Fatal(err)
		}
		path, got := filepath.Join("testdata", k.Name+".ptx"), m.String()
		if os.Getenv("TILEWORK_UPDATE") != "" {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s has changed (TILEWORK_UPDATE=1 writes it anew):\n%s", path, got)
		}
	}
}
