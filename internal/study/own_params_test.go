package study

import (
	"fmt"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/ptx"
)

// TestOwnSuggested checks the launches to begin with. Each kernel has the parameters p, q and n.
func TestOwnSuggested(t *testing.T) {
	const start = "ld.param.u64 %rd0, [p]; cvta.to.global.u64 %rd1, %rd0; mov.u32 %r0, %tid.x; " +
		"mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;"
	for _, c := range []struct{ directives, body, want string }{
		{"", start + "ld.global.b32 %r1, [%rd3]; mov.b32 %f0, %r1; add.f32 %f1, %f0, %f0; st.global.f32 [%rd3], %f1;",
			"update float32, unused, unused on 128×1×1 threads, 0 bytes"},
		{"", start + "ld.param.u32 %r2, [n]; red.global.add.u32 [%rd3], %r2;",
			"zeros u32, unused, number 32 on 128×1×1 threads, 0 bytes"},
		{"", start + "ld.global.v2.b32 {%r1, %r2}, [%rd3]; mov.b32 {%h0, %h1}, %r1; cvt.f32.f16 %f0, %h0; " +
			"ld.param.b32 %r3, [q + 4]; st.shared.f32 [tile], %f0;",
			"in float16, number 32, unused on 128×1×1 threads, 49152 bytes"},
		{".maxntid 256, 1, 1", start + "st.global.s32 [%rd3], %r0;", "out u32, unused, unused on 256×1×1 threads, 0 bytes"},
		{"", start + "mov.u32 %r1, %tid.y; cp.async.ca.shared.global [tile], [%rd3], 4;",
			"in float32, unused, unused on 16×16×1 threads, 49152 bytes"},
		{".reqntid 32, 4", "mov.u32 %r1, %tid.y;", "unused, unused, unused on 32×4×1 threads, 0 bytes"},
		{"", "ld.param.u64 %rd0, [p]; st.local.u64 [kept], %rd0; ld.local.u64 %rd1, [kept]; st.global.u32 [%rd1], 1;",
			"update float32, unused, unused on 128×1×1 threads, 0 bytes"},
	} {
		q := suggested(t, ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 4 .b8 tile[];\n"+
			".visible .entry f(.param .u64 p, .param .align 8 .b8 q[16], .param .u32 n) "+c.directives+" {\n"+
			".local .u64 kept;\n.reg .b64 %rd<4>;\n.reg .b32 %r<4>;\n.reg .f32 %f<2>;\n.reg .b16 %h<2>;\n"+c.body+"\n}\n")
		var args []string
		for _, a := range q.Args {
			args = append(args, strings.TrimSpace(a.Kind+" "+a.Value+a.Type))
		}
		got := fmt.Sprintf("%s on %d×%d×%d threads, %d bytes", strings.Join(args, ", "), q.Block[0], q.Block[1],
			q.Block[2], q.Shared)
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.body, got, c.want)
		}
	}
}

// TestOwnNames checks the names of kernels, and the types of Numba's arguments.
func TestOwnNames(t *testing.T) {
	for name, want := range map[string]string{
		"matmul": "matmul ", "_Z6matmulPKfS0_Pfi": "matmul PKfS0_Pfi", "_ZN3geo4areaILi8EEvPf": "area ILi8EEvPf",
		"_ZN8__main__3addB2v1B5cw5EEE5ArrayIfLi1E1C7mutable7alignedEi": "add 5ArrayIfLi1E1C7mutable7alignedEi",
		"_Z": "_Z ", "_Z99f": "_Z99f 99f", "_Z9223372036854775807f": "_Z9223372036854775807f 9223372036854775807f",
	} {
		title, arguments := demangle(name)
		if got := title + " " + arguments; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	q := compiled(t, "numba-transpose")
	for _, c := range []struct {
		arg  Arg
		want string
	}{
		{Arg{Kind: "in", Type: "float32", Rows: 32}, "argument 1: an array of shape [32] and type float32: want float32[:"},
		{Arg{Kind: "in", Type: "float64", Rows: 2, Cols: 2}, "an array of shape [2 2] and type float64: want float32[:,:]"},
		{Arg{Kind: "in", Type: "bfloat16", Rows: 2, Cols: 2}, "type bfloat16: want float32[:,:]"},
		{Arg{Kind: "number", Value: "0"}, `argument 1: kind "number": want file, in,`},
	} {
		q.Args[0] = c.arg
		if _, err := RunOwn(t.Context(), q, quiet); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}

// TestOwnKinds adds 32 to the words of a matrix, which holds digits, zeros or nothing before.
func TestOwnKinds(t *testing.T) {
	q := suggested(t, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p, .param .u32 n) {\n"+
		".reg .b64 %d<3>;\n.reg .b32 %r<2>;\nld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\n"+
		"add.s64 %d2, %d0, %d1;\nld.param.u32 %r1, [n];\nred.global.add.u32 [%d2], %r1;\n}\n")
	for kind, want := range map[string]string{"zeros": "32 32 32", "update": "33 34 35", "in": "", "out": "uninit"} {
		q.Args[0].Kind = kind
		x, err := RunOwn(t.Context(), q, quiet)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		switch {
		case len(x.Findings) > 0:
			got = x.Findings[0].Checker
		case len(x.Outputs) > 0:
			got = strings.Join(x.Outputs[0].Values[0][:3], " ")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// TestUsesAreLinear follows a parameter and a type through copies and additions that the text lists
// in the reverse order. The memory must grow with the length of the text, and the result must show
// that the kernel writes the parameter's memory.
func TestUsesAreLinear(t *testing.T) {
	for _, step := range []string{"mov.b64 %p<, %p>;\n", "add.u64 %p<, %p>, 8;\n",
		"mov.b64 %p<, %p>; mov.f64 %d<, %d>;\n"} {
		input := func(length int) string {
			steps := new(strings.Builder)
			n := 0
			for ; steps.Len() < length; n++ {
				steps.WriteString(strings.NewReplacer("<", fmt.Sprint(n), ">", fmt.Sprint(n+1)).Replace(step))
			}
			return fmt.Sprintf(`.version 8.0
.target sm_80
.address_size 64
.entry f(.param .u64 p) { .reg .b64 %%p<%d>; .reg .f64 %%d<%[1]d>;
%s ld.param.u64 %%p%d, [p]; add.f64 %%d%[3]d, %%d%[3]d, 1.0; st.global.f64 [%%p0], %%d0; ret; }
`, n+1, steps, n)
		}
		testkit.CheckLinear(t, step, testkit.Lengths(), 100, input, func(text string) uint64 {
			m, err := ptx.Parse("", text)
			if err == nil {
				err = ptx.Verify(m)
			}
			if err != nil {
				t.Fatal(err)
			}
			f := m.Funcs()[0]
			return testkit.Allocated(func() {
				if u := usesOf(f); !u.params[f.Params[0]].written {
					t.Errorf("%s: not written", step)
				}
			})
		})
	}
}
