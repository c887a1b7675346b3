package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/ptx"
)

// kernelsPTX contains kernels that write a number to the address in their first argument.
const kernelsPTX = `.version 6.3
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry poke(.param .u64 at, .param .u32 value)
{
	.reg .u64 %a;
	.reg .u32 %v;
	ld.param.u64 %a, [at];
	ld.param.u32 %v, [value];
	st.global.u32 [%a], %v;
	ret;
}
.visible .entry shared(.param .u64 at)
{
	.reg .u64 %a;
	.reg .u32 %v, %s;
	ld.param.u64 %a, [at];
	mov.u32 %v, %dynamic_smem_size;
	mov.u32 %s, dynamic;
	add.u32 %s, %s, %v;
	st.shared.u32 [%s+-4], %v;
	ld.shared.u32 %v, [%s+-4];
	st.global.u32 [%a], %v;
	ret;
}
.visible .entry spin(.param .u64 at, .param .u64 nanoseconds)
{
	.reg .u64 %a, %until, %now;
	.reg .pred %p;
	ld.param.u64 %a, [at];
	ld.param.u64 %until, [nanoseconds];
	mov.u64 %now, %globaltimer;
	add.u64 %until, %until, %now;
again:
	mov.u64 %now, %globaltimer;
	setp.lt.u64 %p, %now, %until;
	@%p bra again;
	st.global.u32 [%a], 7;
	ret;
}
`

// clusterPTX contains a kernel that writes the number of blocks of a cluster along x.
const clusterPTX = `.version 7.8
.target sm_90
.address_size 64
.visible .entry cluster(.param .u64 at)
{
	.reg .u64 %a;
	.reg .u32 %v;
	ld.param.u64 %a, [at];
	mov.u32 %v, %cluster_nctaid.x;
	st.global.u32 [%a], %v;
	ret;
}
`

var one = device.Dim3{X: 1, Y: 1, Z: 1}

// find loads PTX until the test ends and returns a kernel of it.
func find(t *testing.T, g *GPU, text, name string) device.Function {
	t.Helper()
	m, err := g.Load(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Unload() }) // the test itself reports a lost device
	k, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// word allocates a 32-bit word of device memory and returns a function that reads it.
func word(t *testing.T, g *GPU) (p device.Ptr, read func() uint32) {
	t.Helper()
	p, err := g.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	return p, func() uint32 {
		t.Helper()
		var b [4]byte
		if err := g.CopyOut(t.Context(), b[:], p, device.Whole(4)); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint32(b[:])
	}
}

func TestGPULaunch(t *testing.T) {
	g := openGPU(t)
	p, read := word(t, g)
	launch := func(text, name string, l device.Launch, args func(*device.Params)) error {
		var params device.Params
		params.Ptr(p)
		if args != nil {
			args(&params)
		}
		l.Block, l.Params = one, params.Bytes()
		if l.Grid == (device.Dim3{}) {
			l.Grid = one
		}
		return g.Launch(t.Context(), find(t, g, text, name), l)
	}
	check := func(name string, want uint32, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := read(); got != want {
			t.Errorf("%s: kernel wrote %d, want %d", name, got, want)
		}
	}
	check("arguments", 12345, launch(kernelsPTX, "poke", device.Launch{}, func(a *device.Params) { a.U32(12345) }))
	check("shared memory below the default limit", 40<<10,
		launch(kernelsPTX, "shared", device.Launch{Shared: 40 << 10}, nil))
	maxShared := g.Info().MaxShared
	check("maximum shared memory", uint32(maxShared),
		launch(kernelsPTX, "shared", device.Launch{Shared: maxShared}, nil))
	if err := launch(kernelsPTX, "shared", device.Launch{Shared: maxShared + 1}, nil); !errors.Is(err,
		device.ErrLaunch) {
		t.Errorf("more than the maximum shared memory: got error %v", err)
	}
	check("cooperative", 9,
		launch(kernelsPTX, "poke", device.Launch{Cooperative: true}, func(a *device.Params) { a.U32(9) }))
	if err := launch(kernelsPTX, "poke", device.Launch{Cooperative: true, Grid: device.Dim3{X: 1 << 20, Y: 1, Z: 1}},
		func(a *device.Params) { a.U32(9) }); !errors.Is(err, device.ErrLaunch) {
		t.Errorf("cooperative launch that is too large: got error %v", err)
	}
	if err := launch(kernelsPTX, "poke", device.Launch{}, nil); !errors.Is(err, device.ErrLaunch) {
		t.Errorf("too few arguments: got error %v", err)
	}
	if g.Info().Target.SM >= 90 {
		check("cluster", 2,
			launch(clusterPTX, "cluster",
				device.Launch{Grid: device.Dim3{X: 4, Y: 1, Z: 1}, Cluster: device.Dim3{X: 2, Y: 1, Z: 1}}, nil))
		m, err := g.EncodeTensorMap(&ptx.TensorMap{Element: ptx.BF16, Base: uint64(p), Dims: []int{64, 128},
			Strides: []int{128}, Box: []int{64, 64}, Swizzle: 128})
		if err != nil || m == [128]byte{} {
			t.Errorf("tensor map % x, error %v", m, err)
		}
		if _, err := g.EncodeTensorMap(&ptx.TensorMap{Element: ptx.BF16, Base: uint64(p), Dims: []int{64, 128},
			Strides: []int{130}, Box: []int{64, 64}}); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("tensor map with a stride of 130 bytes: got error %v", err)
		}
	}
	if err := g.Sync(t.Context()); err != nil {
		t.Errorf("Sync after rejected launches: %v", err)
	}
}

func TestGPUCompile(t *testing.T) {
	g := openGPU(t)
	for name, text := range map[string]string{
		"syntax":      strings.Replace(kernelsPTX, "ret;", "retire;", 1),
		"new PTX":     strings.Replace(kernelsPTX, ".version 6.3", ".version 29.0", 1),
		"another GPU": strings.Replace(strings.Replace(kernelsPTX, "sm_75", "sm_100a", 1), "6.3", "8.6", 1),
		"no PTX":      "hello",
		"empty":       "",
	} {
		_, err := g.Load(t.Context(), text)
		if !errors.Is(err, device.ErrCompile) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %v, want one line that wraps ErrCompile", name, err)
		}
		t.Logf("%s: %v", name, err)
	}
	start := time.Now()
	first := find(t, g, kernelsPTX, "poke")
	cold := time.Since(start)
	start = time.Now()
	if again := find(t, g, kernelsPTX, "poke"); again != first {
		t.Error("the same PTX was compiled twice")
	}
	t.Logf("loaded in %v, and again in %v; %+v", cold, time.Since(start), first.Resources())
	m, err := g.Load(t.Context(), kernelsPTX)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("log:\n%s", m.Log())
	if _, err := m.Function("nobody"); err == nil {
		t.Error("Function succeeded for an unknown name, want an error")
	} else {
		t.Log(err)
	}
}

// TestGPUContextEnds checks that a copy after a long-running kernel can be cancelled and does not
// write to the caller's memory afterwards.
func TestGPUContextEnds(t *testing.T) {
	g := openGPU(t)
	p, read := word(t, g)
	const runs = 400 * time.Millisecond
	var args device.Params
	args.Ptr(p)
	args.U64(uint64(runs))
	spin := find(t, g, kernelsPTX, "spin")
	start := time.Now()
	from, err := g.Record()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(t.Context(), spin, device.Launch{Grid: one, Block: one, Params: args.Bytes()}); err != nil {
		t.Fatal(err)
	}
	to, err := g.Record()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var abandoned [4]byte
	if err := g.CopyOut(ctx, abandoned[:], p, device.Whole(4)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("CopyOut: %v", err)
	}
	if err := g.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Sync: %v", err)
	}
	if took := time.Since(start); took > runs {
		t.Errorf("CopyOut and Sync returned after %v, want less than the run time of the kernel", took)
	}
	if got := read(); got != 7 {
		t.Errorf("the kernel wrote %d, want 7", got)
	}
	if abandoned != [4]byte{} {
		t.Errorf("an abandoned copy wrote % x", abandoned)
	}
	if took, err := to.Since(t.Context(), from); err != nil || took < runs || took > 2*runs {
		t.Errorf("Since = %v, error %v; want about %v", took, err, runs)
	}
}
