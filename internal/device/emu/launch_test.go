package emu

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"tilework/internal/device"
)

// meeting is a kernel whose blocks wait for each other and then increment a counter.
const meeting = `.version 7.0
.target sm_75
.address_size 64
.visible .entry meeting(.param .u64 at)
{
	.reg .u64 %a;
	.reg .u32 %all, %come;
	.reg .pred %wait;
	ld.param.u64 %a, [at];
	mov.u32 %all, %nctaid.x;
	atom.release.gpu.global.add.u32 %come, [%a], 1;
again:
	ld.acquire.gpu.global.u32 %come, [%a];
	setp.lt.u32 %wait, %come, %all;
	@%wait bra again;
	red.global.add.u32 [%a+4], 1;
	ret;
}
`

// meet launches meeting and returns its counter.
func meet(t *testing.T, opt Options, l device.Launch) (met uint32, err error) {
	t.Helper()
	d := open(t, opt)
	m, err := d.Load(t.Context(), meeting)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("meeting")
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(t.Context(), p, make([]byte, 8), device.Whole(8)); err != nil {
		t.Fatal(err)
	}
	l.Params = singleThread(p).Params
	if err := d.Launch(t.Context(), f, l); err != nil {
		return 0, err
	}
	var b [8]byte
	if err := d.CopyOut(t.Context(), b[:], p, device.Whole(8)); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(b[4:]), nil
}

// TestCooperative checks that all blocks of a cooperative launch run at once for any value of
// Options.Workers, and that a grid larger than the GPU can hold is rejected.
func TestCooperative(t *testing.T) {
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	l := device.Launch{Grid: device.Dim3{X: 40, Y: 1, Z: 1}, Block: one, Cooperative: true}
	if met, err := meet(t, Options{Workers: 1}, l); err != nil || met != 40 {
		t.Errorf("cooperative launch: %d blocks met, error %v; want 40", met, err)
	}
	l.Cooperative = false
	if met, err := meet(t, Options{Workers: 1, MaxInstructions: 1e5}, l); !errors.Is(err, device.ErrLaunch) {
		t.Errorf("plain launch with one worker: %d blocks met, error %v; want %v", met, err, device.ErrLaunch)
	}
	for _, c := range []struct {
		blocks, threads, shared int
		want                    string
	}{
		{132*32 + 1, 1, 0, "holds 4224 at once"},
		{132*2 + 1, 1024, 0, "holds 264 at once"},
		{132 + 1, 32, 200 << 10, "holds 132 at once"},
		{math.MaxInt, 1, 0, "at once"},
	} {
		l := device.Launch{Grid: one, Block: one, Shared: c.shared, Cooperative: true}
		l.Grid.X, l.Block.X = c.blocks, c.threads
		if _, err := meet(t, Options{}, l); !errors.Is(err, device.ErrLaunch) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%d blocks of %d threads with %d bytes of shared memory: got error %v, want one containing %q",
				c.blocks, c.threads, c.shared, err, c.want)
		}
	}
}

func TestClusters(t *testing.T) {
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	l := device.Launch{Grid: device.Dim3{X: 2, Y: 1, Z: 1}, Block: one, Cluster: device.Dim3{X: 2, Y: 1, Z: 1}}
	if met, err := meet(t, Options{}, l); err != nil || met != 2 {
		t.Errorf("cluster of two: %d blocks met, error %v; want 2", met, err)
	}
	l.Cluster.X = 3
	if _, err := meet(t, Options{}, l); !errors.Is(err, device.ErrLaunch) ||
		!strings.Contains(err.Error(), "want multiples of the cluster") {
		t.Errorf("clusters of three in a grid of two: got error %v, want one about the grid", err)
	}
	l.Grid, l.Cluster = one, one
	if met, err := meet(t, Options{}, l); err != nil || met != 1 {
		t.Errorf("cluster of one: %d blocks met, error %v; want 1", met, err)
	}
}
