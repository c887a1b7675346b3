package emu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/ptx"
)

// convolution describes a convolution over 1 to 3 spatial dimensions, innermost first.
type convolution struct {
	images, channels                       int
	size, filter, stride, dilation, before []int
	after                                  []int // padding after the end; before holds that before the start
}

func randomConvolution(rng *rand.Rand, element int) *convolution {
	c := &convolution{images: 1 + rng.IntN(3), channels: 16 / element * (1 + rng.IntN(4))}
	for range 1 + rng.IntN(3) {
		size, filter, dilation := 5+rng.IntN(5), 1+rng.IntN(3), 1+rng.IntN(2)
		c.size, c.filter, c.dilation = append(c.size, size), append(c.filter, filter), append(c.dilation, dilation)
		c.stride = append(c.stride, 1+rng.IntN(3))
		c.before, c.after = append(c.before, rng.IntN(3)), append(c.after, rng.IntN(3))
	}
	return c
}

// outputs returns the size of the output in a spatial dimension.
func (c *convolution) outputs(i int) int {
	reach := (c.filter[i]-1)*c.dilation[i] + 1
	return (c.before[i]+c.size[i]+c.after[i]-reach)/c.stride[i] + 1
}

// tensorMap returns the map that loads boxes of the im2col matrix.
func (c *convolution) tensorMap(element ptx.Type, base uint64, channels, pixels int) *ptx.TensorMap {
	m := &ptx.TensorMap{Element: element, Base: base, Dims: []int{c.channels}, Steps: []int{1},
		Box: []int{channels, pixels}}
	stride := c.channels * element.Bytes()
	for i, n := range c.size {
		m.Dims, m.Steps = append(m.Dims, n), append(m.Steps, c.stride[i])
		m.Strides = append(m.Strides, stride)
		m.Lower = append(m.Lower, -c.before[i])
		m.Upper = append(m.Upper, c.after[i]-(c.filter[i]-1)*c.dilation[i])
		stride *= n
	}
	m.Dims, m.Steps, m.Strides = append(m.Dims, c.images), append(m.Steps, 1), append(m.Strides, stride)
	return m
}

// matrix returns the bytes of a part of the im2col matrix: those of the given element of the
// filter, for n channels of n pixels from the given ones on. outside is an element of the padding.
func (c *convolution) matrix(data []byte, element int, outside []byte, tap []int, channel, channels, pixel,
	pixels int) (part []byte) {
	for p := pixel; p < pixel+pixels; p++ {
		rest, index, inside, scale := p, 0, true, 1
		for i, n := range c.size {
			output := rest % c.outputs(i)
			rest /= c.outputs(i)
			x := output*c.stride[i] - c.before[i] + tap[i]*c.dilation[i]
			inside = inside && x >= 0 && x < n
			index += x * scale
			scale *= n
		}
		index += rest * scale
		for ch := channel; ch < channel+channels; ch++ {
			if inside && rest < c.images && ch < c.channels {
				part = append(part, data[(index*c.channels+ch)*element:][:element]...)
			} else {
				part = append(part, outside...)
			}
		}
	}
	return part
}

// im2colKernel returns a kernel whose first block loads a box into the shared memory of both blocks
// of a cluster. Each block writes it to the output.
func im2colKernel(m *ptx.TensorMap, coords, offsets []int) string {
	list := func(n []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ", "), "[]") }
	return fmt.Sprintf(`.version 8.0
.target sm_90
.address_size 64
.visible .entry k (.param .align 64 .b8 map[128], .param .u64 pout)
{
	.shared .align 1024 .b8 s[%[1]d]; .shared .align 8 .b64 bar;
	.reg .pred %%p, %%q, %%r; .reg .b32 %%t, %%rank, %%a, %%v, %%n; .reg .b64 %%map, %%out, %%at;
	mov.b64 %%map, map;
	cvta.param.u64 %%map, %%map;
	ld.param.u64 %%out, [pout];
	mov.u32 %%t, %%tid.x;
	mov.u32 %%rank, %%cluster_ctarank;
	setp.eq.u32 %%p, %%t, 0;
	@%%p mbarrier.init.shared.b64 [bar], 1;
	@%%p fence.mbarrier_init.release.cluster;
	@%%p mbarrier.arrive.expect_tx.shared.b64 _, [bar], %[1]d;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	setp.eq.and.u32 %%q, %%rank, 0, %%p;
	@%%q cp.async.bulk.prefetch.tensor.%[2]dd.L2.global.im2col [%%map, {%[3]s}], {%[4]s};
	@%%q cp.async.bulk.tensor.%[2]dd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [s], [%%map, {%[3]s}], [bar], {%[4]s}, 3;
WAIT:
	mbarrier.try_wait.parity.shared.b64 %%r, [bar], 0;
	@!%%r bra WAIT;
	shl.b32 %%n, %%t, 2;
NEXT:
	setp.ge.u32 %%r, %%n, %[1]d;
	@%%r bra DONE;
	mov.u32 %%a, s;
	add.u32 %%a, %%a, %%n;
	ld.shared.b32 %%v, [%%a];
	mad.lo.u32 %%a, %%rank, %[1]d, %%n;
	cvt.u64.u32 %%at, %%a;
	add.u64 %%at, %%at, %%out;
	st.global.b32 [%%at], %%v;
	add.u32 %%n, %%n, 128;
	bra NEXT;
DONE:
	ret;
}
`, m.BoxBytes(), len(m.Dims), list(coords), list(offsets))
}

// runIm2col runs a variant of im2colKernel and returns the boxes of both blocks.
func runIm2col(t *testing.T, mem *Memory, m *ptx.TensorMap, text string, seed uint64) ([]byte, error) {
	t.Helper()
	encoded, err := EncodeTensorMap(m)
	if err != nil {
		t.Fatal(err)
	}
	p := loadText(t, "k.ptx", text)
	out := make([]byte, 2*m.BoxBytes())
	to := upload(t, mem, out)
	_, err = p.Run(context.Background(), mem, Launch{Entry: "k", Grid: Dim3{2, 1, 1}, Cluster: Dim3{2, 1, 1},
		Block: Dim3{32, 1, 1}, Seed: seed, Params: pack(t, p, "k", encoded[:], to)})
	download(t, mem, to, out)
	return out, err
}

// TestIm2col loads random parts of the im2col matrices of random convolutions.
func TestIm2col(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	elements := []ptx.Type{ptx.U8, ptx.F16, ptx.U32, ptx.F32, ptx.F64}
	for n := range uint64(300) {
		elem := elements[rng.IntN(len(elements))]
		size := elem.Bytes()
		c := randomConvolution(rng, size)
		total := c.images * c.channels * size
		for _, side := range c.size {
			total *= side
		}
		data := make([]byte, total)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		unit := 16 / size
		channel, channels, pixels := unit*rng.IntN(c.channels/unit), unit*(1+rng.IntN(4)), 1+rng.IntN(60)
		mem := NewMemory(MemoryOptions{})
		m := c.tensorMap(elem, upload(t, mem, data), channels, pixels)
		outside := make([]byte, size)
		if m.FillNaN = elem.Class() == ptx.Float && rng.IntN(2) == 0; m.FillNaN {
			outside = bytes.Repeat([]byte{0xf7, 0x7f}, size/2)
		}
		if row := channels * size; row&(row-1) == 0 && row > 16 && rng.IntN(2) == 0 {
			m.Swizzle = row
		}
		// The load starts at a random pixel of the output, for a random element of the filter.
		coords, tap, offsets, pixel, scale := []int{channel}, []int(nil), []int(nil), 0, 1
		for i := range c.size {
			output := rng.IntN(c.outputs(i))
			coords = append(coords, output*c.stride[i]-c.before[i])
			tap = append(tap, rng.IntN(c.filter[i]))
			offsets = append(offsets, tap[i]*c.dilation[i])
			pixel += output * scale
			scale *= c.outputs(i)
		}
		image := rng.IntN(c.images)
		coords, pixel = append(coords, image), pixel+image*scale
		want := c.matrix(data, size, outside, tap, channel, channels, pixel, pixels)
		got, err := runIm2col(t, mem, m, im2colKernel(m, coords, offsets), n)
		if err != nil {
			t.Fatalf("%+v at %v with offsets %v: %v", *m, coords, offsets, err)
		}
		for rank := range 2 {
			box := got[rank*m.BoxBytes():][:m.BoxBytes()]
			for at := 0; at < len(want); at += 16 {
				from := at
				if m.Swizzle > 0 {
					from ^= at >> 7 & (m.Swizzle/16 - 1) << 4
				}
				if !bytes.Equal(box[from:][:16], want[at:][:16]) {
					t.Fatalf("%+v at %v with offsets %v: block %d got % x from byte %d on, want % x", *m, coords, offsets, rank,
						box[from:][:16], at, want[at:][:16])
				}
			}
		}
	}
}

// TestIm2colErrors checks the errors of wrong maps, positions and offsets.
func TestIm2colErrors(t *testing.T) {
	mem := NewMemory(MemoryOptions{})
	base := upload(t, mem, make([]byte, 4<<10))
	good := ptx.TensorMap{Element: ptx.F32, Base: base, Dims: []int{4, 8, 8, 2}, Strides: []int{16, 128, 1024},
		Box: []int{4, 8}, Lower: []int{-1, -2}, Upper: []int{0, -3}}
	for _, c := range []struct {
		change func(*ptx.TensorMap)
		want   string
	}{
		{func(m *ptx.TensorMap) { m.Upper = nil }, "corners of 2 and 0: want 3 to 5 dimensions"},
		{func(m *ptx.TensorMap) { m.Lower = nil }, "corners of 0 and 2: want 3 to 5 dimensions"},
		{func(m *ptx.TensorMap) { m.Dims, m.Strides = m.Dims[:2], m.Strides[:1] }, "has 2 dimensions"},
		{func(m *ptx.TensorMap) { m.Box = []int{4, 8, 1, 1} }, "a box of 4 dimensions"},
		{func(m *ptx.TensorMap) { m.Box = []int{4, 1025} }, "4 channels and 1025 pixels: want 1 to 256 and 1 to 1024"},
		{func(m *ptx.TensorMap) { m.Box = []int{2, 8} }, "rows of the box have 8 bytes"},
		{func(m *ptx.TensorMap) { m.Lower = []int{-129, 0} }, "want -128 to 127 in a tensor of 4 dimensions"},
		{func(m *ptx.TensorMap) { m.Upper = []int{-9, 0} }, "leave no position of the filter in dimension 1, of 8 elements"},
		{func(m *ptx.TensorMap) { m.Steps = []int{1, 9, 1, 1} }, "want 1 to 8"},
	} {
		m := good
		c.change(&m)
		if _, err := EncodeTensorMap(&m); !errors.Is(err, ErrLaunch) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want an error: %s", err, c.want)
		}
	}
	for _, c := range []struct {
		coords, offsets []int
		want            string
	}{
		{[]int{0, -1, -2, 0}, []int{255, 255}, ""},
		{[]int{0, 7, 4, 5}, []int{0, 0}, ""},
		{[]int{0, 8, 0, 0}, []int{0, 0}, "coordinate 8 in dimension 1: want -1 to 7, between the corners"},
		{[]int{0, 0, -3, 0}, []int{0, 0}, "coordinate -3 in dimension 2: want -2 to 4, between the corners"},
		{[]int{0, 0, 0, 0}, []int{256, 0}, "offsets [256 0]: want at most 255 in a tensor of 4 dimensions"},
		{[]int{2, 0, 0, 0}, []int{0, 0}, "want a multiple of 16 bytes"},
		{[]int{0, 0, 0}, []int{0}, "3 coordinates for a tensor of 4 dimensions"},
	} {
		text := im2colKernel(&good, c.coords, c.offsets)
		text = strings.ReplaceAll(text, "4d", fmt.Sprintf("%dd", len(c.coords)))
		checkIm2colRun(t, mem, &good, text, c.want)
	}
	tiled := good
	tiled.Lower, tiled.Upper, tiled.Box = nil, nil, []int{4, 8, 1, 1}
	text := im2colKernel(&good, []int{0, 0, 0, 0}, []int{0, 0})
	checkIm2colRun(t, mem, &tiled, text, "the tensor map is for tiled mode: want an instruction without .im2col")
	text = strings.NewReplacer("global.im2col", "global.tile", ", {0, 0}", "").Replace(text)
	checkIm2colRun(t, mem, &good, text, "the tensor map is for im2col mode: want an instruction with .im2col")
}

// checkIm2colRun runs a kernel, and expects the given misuse, or none.
func checkIm2colRun(t *testing.T, mem *Memory, m *ptx.TensorMap, text, want string) {
	t.Helper()
	_, err := runIm2col(t, mem, m, text, 1)
	if want == "" && err != nil || want != "" && (!errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), want)) {
		t.Errorf("%v, want a misuse: %s", err, want)
	}
}
