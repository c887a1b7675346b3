package baseline

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
)

// plainPTX computes C[row,col] = alpha*sum + beta*C[row,col] with one thread per element, with the
// parameters that nvcc would declare.
const plainPTX = `.version 8.0
.target sm_90
.address_size 64
.visible .entry plain(.param .u64 A, .param .u64 B, .param .u64 C, .param .u32 m, .param .u32 n, .param .u32 k,
	.param .u32 lda, .param .u32 ldb, .param .u32 ldc, .param .f32 alpha, .param .f32 beta)
{
	.reg .u32 %row, %col, %p, %m, %n, %k, %ld, %x, %y;
	.reg .u64 %a, %b, %c;
	.reg .f32 %u, %v, %sum;
	.reg .pred %q;
	mov.u32 %x, %ctaid.x; mov.u32 %y, %ntid.x; mov.u32 %col, %tid.x; mad.lo.u32 %col, %x, %y, %col;
	mov.u32 %x, %ctaid.y; mov.u32 %y, %ntid.y; mov.u32 %row, %tid.y; mad.lo.u32 %row, %x, %y, %row;
	ld.param.u32 %m, [m]; ld.param.u32 %n, [n]; ld.param.u32 %k, [k];
	setp.ge.u32 %q, %row, %m; @%q ret;
	setp.ge.u32 %q, %col, %n; @%q ret;
	ld.param.u64 %a, [A]; ld.param.u32 %ld, [lda]; mul.lo.u32 %x, %row, %ld; mad.wide.u32 %a, %x, 4, %a;
	ld.param.u64 %b, [B]; mad.wide.u32 %b, %col, 4, %b;
	ld.param.u32 %ld, [ldb]; shl.b32 %ld, %ld, 2;
	mov.f32 %sum, 0f00000000;
	mov.u32 %p, 0;
loop:
	ld.f32 %u, [%a]; ld.f32 %v, [%b]; fma.rn.f32 %sum, %u, %v, %sum;
	add.u64 %a, %a, 4; cvt.u64.u32 %c, %ld; add.u64 %b, %b, %c;
	add.u32 %p, %p, 1;
	setp.lt.u32 %q, %p, %k; @%q bra loop;
	ld.param.u64 %c, [C]; ld.param.u32 %ld, [ldc]; mad.lo.u32 %x, %row, %ld, %col; mad.wide.u32 %c, %x, 4, %c;
	ld.param.f32 %u, [alpha]; mul.f32 %sum, %sum, %u;
	ld.param.f32 %v, [beta]; ld.f32 %u, [%c]; fma.rn.f32 %sum, %v, %u, %sum;
	st.f32 [%c], %sum;
	ret;
}
`

func emulator(t *testing.T) device.Device {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ptxFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k.ptx")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestKernel checks that the kernel receives all arguments and that the grid covers C.
func TestKernel(t *testing.T) {
	d, ctx := emulator(t), t.Context()
	k, err := OpenKernel(ctx, d, ptxFile(t, plainPTX), "plain:4x8/8x4")
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	const m, n, depth = 5, 19, 3
	a, b, c := gemm.Dense(dtype.F32, m, depth), gemm.Dense(dtype.F32, depth, n), gemm.Dense(dtype.F32, m, n)
	a.LD, b.LD, c.LD = depth+1, n+2, n+3
	p, _, err := gemm.New(2, a, b, -3, c, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	var at [3]device.Ptr
	var host [3][]byte
	for i, l := range []gemm.Layout{a, b, c} {
		host[i] = make([]byte, l.Bytes())
		for j := range l.Len() {
			l.Type.Set(host[i], j, float64((j*7+i)%11-5))
		}
		if at[i], err = d.Alloc(len(host[i])); err != nil {
			t.Fatal(err)
		}
		if err := d.CopyIn(ctx, at[i], host[i], device.Whole(len(host[i]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.CheckSupported(&p); err != nil {
		t.Fatal(err)
	}
	if err := k.Enqueue(ctx, &p, at[0], at[1], at[2]); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(host[2]))
	if err := d.CopyOut(ctx, got, at[2], device.Whole(len(got))); err != nil {
		t.Fatal(err)
	}
	for i := range m {
		for j := range n {
			sum := 0.0
			for q := range depth {
				sum += dtype.F32.At(host[0], a.Index(i, q)) * dtype.F32.At(host[1], b.Index(q, j))
			}
			want := 2*sum - 3*dtype.F32.At(host[2], c.Index(i, j))
			if v := dtype.F32.At(got, c.Index(i, j)); v != want {
				t.Fatalf("C[%d,%d] = %v, want %v", i, j, v, want)
			}
		}
	}
}

func TestKernelErrors(t *testing.T) {
	d := emulator(t)
	good := ptxFile(t, plainPTX)
	for _, c := range []struct{ name, file, spec, want string }{
		{"no launch", good, "plain", "want ENTRY:ROWSxCOLS/XxY"},
		{"no entry", good, ":4x4/4x4", "want ENTRY:ROWSxCOLS/XxY"},
		{"incomplete launch", good, "plain:4x4", "want ENTRY:ROWSxCOLS/XxY"},
		{"no threads", good, "plain:4x4/0x4", "want ENTRY:ROWSxCOLS/XxY"},
		{"negative tile", good, "plain:-4x4/4x4", "want ENTRY:ROWSxCOLS/XxY"},
		{"extra dimension", good, "plain:4x4/4x4x1", "want ENTRY:ROWSxCOLS/XxY"},
		{"missing entry", good, "fancy:4x4/4x4", `"fancy"`},
		{"no file", good + ".none", "plain:4x4/4x4", "no such file"},
		{"directory", filepath.Dir(good), "plain:4x4/4x4", "is a directory"},
		{"not PTX", ptxFile(t, "\x7fELF\x00"), "plain:4x4/4x4", "cuda: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenKernel(t.Context(), d, c.file, c.spec)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, c.want)
			}
		})
	}
	k := &Kernel{Entry: "plain"}
	big, small := gemm.Dense(dtype.F32, 1<<32, 1), gemm.Dense(dtype.F32, 1, 1)
	for name, p := range map[string]*gemm.Problem{
		"33 bits of rows": {M: 1 << 32, N: 1, K: 1, Layouts: gemm.Layouts{gemm.A: big, gemm.B: small, gemm.C: big}},
		"an activation": {M: 1, N: 1, K: 1, Layouts: gemm.Layouts{gemm.A: small, gemm.B: small, gemm.C: small},
			Epilogue: gemm.Epilogue{Activation: gemm.ActReLU}},
	} {
		if err := k.CheckSupported(p); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%s: got error %v, want ErrUnsupported", name, err)
		}
	}
}
