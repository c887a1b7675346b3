package main

import (
	"math"
	"os"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/matio"
)

// copyTensor is a kernel with clusters of two blocks. Each block copies 16 rows of a tensor to
// shared memory, and from there to another tensor, both with TMA.
const copyTensor = `.version 8.0
.target sm_90
.address_size 64
.visible .entry copy (.param .align 64 .b8 from[128], .param .align 64 .b8 to[128])
{
	.reg .pred %p, %q; .reg .b32 %t, %row; .reg .b64 %from, %to;
	.shared .align 1024 .b8 s[3072];
	.shared .align 8 .b64 bar;
	mov.b64 %from, from;
	cvta.param.u64 %from, %from;
	mov.b64 %to, to;
	cvta.param.u64 %to, %to;
	mov.u32 %t, %tid.x;
	setp.ne.u32 %p, %t, 0;
	mov.u32 %row, %clusterid.x;
	shl.b32 %row, %row, 1;
	mov.u32 %t, %cluster_ctarank;
	add.u32 %row, %row, %t;
	shl.b32 %row, %row, 4;
	@%p bra WAIT;
	mbarrier.init.shared.b64 [bar], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 _, [bar], 3072;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%from, {0, %row}], [bar];
WAIT:
	bar.sync 0;
LOOP:
	mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
	@!%q bra LOOP;
	@%p bra DONE;
	cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%to, {0, %row}], [s];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
DONE:
	ret;
}
`

// emulateCopy runs a variant of copyTensor with the given arguments.
func emulateCopy(t *testing.T, text string, more ...string) (stdout, stderr string, code int) {
	t.Helper()
	if err := os.WriteFile("copy.ptx", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"emulate", "copy.ptx", "--grid", "4", "--cluster", "2", "--block", "32"}
	return run(t.Context(), append(args, more...)...)
}

func TestEmulateTensors(t *testing.T) {
	nvccFolder(t)
	args := []string{"--arg", "tensor:16x48:0:a.npy", "--arg", "tensor:16x48:0:out:f32:64x48:c.npy", "--force"}
	if stdout, stderr, code := emulateCopy(t, copyTensor, args...); code != 0 || !strings.Contains(stdout, "0 errors") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	got, want := element(t, "c.npy"), element(t, "a.npy")
	for i := range 64 {
		for j := range 48 {
			w := 0.0 // outside of a.npy
			if i < 48 {
				w = want(i, j)
			}
			if got(i, j) != w {
				t.Fatalf("element (%d, %d) is %v, want %v", i, j, got(i, j), w)
			}
		}
	}
	// Without waiting at the mbarrier, the store may read shared memory before the load is
	// complete.
	noWait := strings.Replace(copyTensor, "@!%q bra LOOP;", "", 1)
	noWait = strings.Replace(noWait, "mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;", "", 1)
	if stdout, _, code := emulateCopy(t, noWait, args...); code != 1 ||
		!strings.Contains(stdout, "may still write") {
		t.Errorf("without the wait: exit code %d, %q", code, stdout)
	}
}

// TestEmulateTensorModes loads every second row of a matrix, with NaNs after its end. It stores
// them to successive rows and to every second row.
func TestEmulateTensorModes(t *testing.T) {
	nvccFolder(t)
	for _, c := range []struct {
		shift, to string
		rows      int
		from      func(i int) int // row of a.npy
	}{
		{"%row, 4;", "16x48:0:out:f32:64x48:c.npy", 64, func(i int) int { return i/16*16 + i%16*2 }},
		{"%row, 5;", "32x48/2x1:0:out:f32:128x48:c.npy", 128, func(i int) int { return i + i%2*48 }},
	} {
		text := strings.Replace(copyTensor, "%row, 4;", c.shift, 1)
		stdout, stderr, code := emulateCopy(t, text, "--force", "--arg", "tensor:32x48/2x1:0,nan:a.npy", "--arg",
			"tensor:"+c.to)
		if code != 0 || !strings.Contains(stdout, "0 errors") {
			t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
		}
		got, a := element(t, "c.npy"), element(t, "a.npy")
		for i := range c.rows {
			for j := range 48 {
				want := math.NaN() // also that of memory which is not written
				if from := c.from(i); from < 48 {
					want = a(from, j)
				}
				if v := got(i, j); v != want && !(math.IsNaN(v) && math.IsNaN(want)) {
					t.Fatalf("%s: element (%d, %d) is %v, want %v", c.to, i, j, v, want)
				}
			}
		}
	}
}

// TestEmulateTensorIm2col loads the pixels under one element of a filter of 1x2 with stride 2 along
// the rows of three images.
func TestEmulateTensorIm2col(t *testing.T) {
	t.Chdir(t.TempDir())
	data := make([]float32, 3*3*8*48) // images, rows, columns, channels
	for i := range data {
		data[i] = float32(i + 1)
	}
	in := matio.Array{Type: "f4", Shape: []int{3, 3, 8, 48}, Data: dtype.Bytes(data)}
	if err := os.WriteFile("in.npy", in.Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	// A row of an image has the positions -1, 1, 3 and 5 of the filter, and a block starts at the
	// first one of its image.
	text := strings.NewReplacer("shl.b32 %row, %row, 4;", "shl.b32 %r16, %row, 4;", ".reg .b32 %t,", ".reg .b32 %r16, %t,",
		"2d.shared::cluster.global", "4d.shared::cluster.global.im2col", "[%from, {0, %row}], [bar]",
		"[%from, {0, -1, 0, %row}], [bar], {1, 0}", "[%to, {0, %row}]", "[%to, {0, %r16}]").Replace(copyTensor)
	stdout, stderr, code := emulateCopy(t, text, "--force", "--arg", "tensor:16x48@0x-1@0x-1/1x1x2x1:0:in.npy", "--arg",
		"tensor:16x48:0:out:f32:64x48:c.npy")
	if code != 0 || !strings.Contains(stdout, "0 errors") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	got := element(t, "c.npy")
	for i := range 64 {
		image, row, column := i/16+i%16/12, i%16/4%3, i%4*2 // the last pixels are those of the next image
		for j := range 48 {
			want := 0.0
			if image < 3 {
				want = float64(((image*3+row)*8+column)*48 + j + 1)
			}
			if got(i, j) != want {
				t.Fatalf("element (%d, %d) is %v, want %v", i, j, got(i, j), want)
			}
		}
	}
}

// TestEmulateTensorDimensions copies arrays of three and of five dimensions, and arrays with
// interleaved slices of channels.
func TestEmulateTensorDimensions(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ from, box, to, coordinates string }{
		{"48x4x12", "16x4x12:0", "64x4x12", "3d {0, 0, %row}"},
		{"48x2x1x2x12", "16x2x1x2x12:0", "64x2x1x2x12", "5d {0, 0, 0, 0, %row}"},
		{"48x3x4x4", "16x3x4:0,slices", "64x3x4x4", "3d {0, 0, %row}"},
		{"48x2x3x8", "16x2x3:32,slices", "64x2x3x8", "3d {0, 0, %row}"},
	} {
		shape, err := arrayDims.parse(c.from)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]float32, 48*48)
		for i := range data {
			data[i] = float32(i)
		}
		in := matio.Array{Type: "f4", Shape: shape, Data: dtype.Bytes(data)}
		if err := os.WriteFile("in.npy", in.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		dims, at, _ := strings.Cut(c.coordinates, " ")
		text := strings.NewReplacer(".2d", "."+dims, "{0, %row}", at).Replace(copyTensor)
		stdout, stderr, code := emulateCopy(t, text, "--force", "--arg", "tensor:"+c.box+":in.npy", "--arg",
			"tensor:"+c.box+":out:f32:"+c.to+":out.npy")
		if code != 0 || !strings.Contains(stdout, "0 errors") {
			t.Fatalf("%s: exit code %d, %q, %q", c.from, code, stdout, stderr)
		}
		out, err := matio.ReadArray(t.Context(), "out.npy", matio.ReadOptions{})
		if err != nil || len(out.Shape) != len(shape) {
			t.Fatalf("%s: out.npy is %+v, %v", c.from, out, err)
		}
		if want := string(in.Data) + strings.Repeat("\x00", 16*48*4); string(out.Data) != want {
			t.Errorf("%s: the copy differs", c.from)
		}
	}
}

func TestEmulateTensorErrors(t *testing.T) {
	nvccFolder(t)
	for _, c := range [][2]string{
		{"--arg tensor:16x48:0", "want tensor:BOX:SWIZZLE:ARG"},
		{"--arg tensor:16x48/9x1:0:a.npy", "steps are [1 9]: want 1 to 8"},
		{"--arg tensor:16x48/2:0:a.npy", "tensor has 2 dimensions and 1 steps"},
		{"--arg tensor:16x48@-1:0:a.npy", `"-1" is no pair of corners: want numbers, such as -1x-1@0x0`},
		{"--arg tensor:16x48@-1@1.5:0:a.npy", `"-1@1.5" is no pair of corners`},
		{"--arg tensor:16x48@-1@-1:0:a.npy", "im2col tensor has 2 dimensions"},
		{"--arg tensor:16:0:a.npy", "the box has 1 dimension and the tensor 2: want as many"},
		{"--arg tensor:16x48:none:a.npy", `"none" is not a swizzle`},
		{"--arg tensor:16x48:128:a.npy", "want at most the swizzle width, 128"},
		{"--arg tensor:16x48:0,inf:a.npy", `"inf" is not a mode of a tensor map: want nan or slices`},
		{"--arg tensor:16:0,slices:a.npy", "the last dimension of a.npy has"},
		{"--arg tensor:16x48:0:u32:5", "u32:5 is no matrix or array"},
		{"--arg tensor:16x48:0:b.txt", "b.txt"},
		{"--cluster 2,x", `--cluster 2,x: "x" is not a size`},
		{"--cluster 3 --arg tensor:16x48:0:a.npy --arg tensor:16x48:0:out:f32:64x48:c.npy", "want multiples of the cluster"},
	} {
		if _, stderr, code := emulateCopy(t, copyTensor, strings.Fields(c[0])...); code != 2 ||
			!strings.Contains(stderr, c[1]) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", c[0], code, stderr, c[1])
		}
	}
}
