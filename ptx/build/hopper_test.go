package build_test

import (
	"errors"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/build"
)

// hopper returns a kernel that calls each method for sm_90 once.
func hopper() *build.Kernel {
	k := build.New("hopper", "one product of a cluster of two")
	k.Threads(256, 1, 1)
	k.MinBlocks(1)
	k.Cluster(2, 1, 1)
	a, b, c := k.Tensor("a"), k.Tensor("b"), k.Tensor("c")
	bias := k.Pointer("bias", ptx.F32)
	as, bs, cs := k.Tile("as", ptx.BF16, 64, 64), k.Tile("bs", ptx.BF16, 64, 64), k.Tile("cs", ptx.F32, 64, 8)
	row := k.Shared("row", ptx.F32, 1, 32)
	bars := k.Mbarriers("bars", 2)
	k.If(k.Eq(k.ThreadIdx(build.X), 0), func() {
		bars.Init(0, 1)
		bars.Init(1, 2)
		k.MbarrierFence()
	})
	k.ClusterArrive()
	k.ClusterWait()
	k.If(k.Ge(k.ThreadIdx(build.X), 128), func() {
		k.WarpgroupRegDealloc(40)
		k.If(k.Elect(), func() {
			bars.ArriveExpectTx(0, 16384+128)
			a.LoadMulticast(as.Ptr, bars.At(0), k.To(ptx.U16, 3), 0, k.Mul(k.ClusterRank(), 32))
			b.Load(bs.Ptr, bars.At(0), 0, k.BlockIdx(build.X))
			k.BulkLoad(row.Ptr, bias, 128, bars.At(0))
		})
		k.Return()
	})
	k.WarpgroupRegAlloc(232)
	bars.Wait(0, 0)
	bars.Arrive(1)
	bars.ArrivePeer(1, k.Xor(k.ClusterRank(), 1))
	sums := k.Vars("sum", ptx.F32, 4, 0)
	db := k.Descriptor(bs.Ptr, build.MatrixLayout{Stride: 1024, Leading: 4096, Swizzle: 128})
	k.WgmmaFence()
	w := build.Wgmma{N: 8, A: ptx.BF16, B: ptx.BF16, MNMajorB: true, NegateA: true}
	k.Wgmma(w, sums, k.Descriptor(as.Ptr, build.MatrixLayout{Stride: 1024, Swizzle: 128}), db, false)
	k.Wgmma(w, sums, k.LoadMatrices(as.Ptr, 4, false), k.Add(db, 2048/16), true)
	k.WgmmaCommit()
	k.WgmmaWait(0)
	cs.At(k.LaneID(), 0).StoreVec(sums[0], sums[1], sums[2], sums[3])
	k.Peer(cs.At(0, 0), 1).Store(sums[0])
	k.ProxyFence()
	c.Store(cs.Ptr, 0, 0)
	k.BulkStore(bias, row.Ptr, 128)
	k.BulkCommit()
	k.BulkWaitRead(1)
	k.BulkWait(0)
	return k
}

func TestHopper(t *testing.T) {
	k := hopper()
	snapshot(t, "hopper", text(t, k))
	if got, want := k.DynamicBytes(), 8192+8192+2048; got != want {
		t.Errorf("DynamicBytes = %d, want %d", got, want)
	}
	m, _ := k.Build()
	if m.Target.String() != "sm_90a" {
		t.Errorf("target is %v, want sm_90a", m.Target)
	}
	for _, s := range [][2]string{
		{"f16x2 sums of e4m3", "wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e5m2"},
		{"s32 sums of s8", "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.u8"},
		{"f32 sums of tf32", "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32"},
	} {
		k := build.New("k")
		w := map[string]build.Wgmma{"f16x2": {N: 16, A: ptx.E4M3, B: ptx.E5M2}, "s32": {N: 16, A: ptx.S8, B: ptx.U8},
			"f32": {N: 16, A: ptx.TF32, B: ptx.TF32}}
		kind, _, _ := strings.Cut(s[0], " ")
		sum, n := map[string]ptx.Type{"f16x2": ptx.F16x2, "s32": ptx.S32, "f32": ptx.F32}[kind], 8
		if kind == "f16x2" {
			n = 4
		}
		var sums []build.Reg
		for range n {
			sums = append(sums, k.Fresh(sum))
		}
		d := k.Descriptor(k.Tile("s", ptx.B8, 64, 64).Ptr, build.MatrixLayout{Stride: 512, Swizzle: 64})
		k.Wgmma(w[kind], sums, d, d, true)
		if got := text(t, k); !strings.Contains(got, s[1]) {
			t.Errorf("%s: want %s in\n%s", s[0], s[1], got)
		}
	}
}

func TestHopperErrors(t *testing.T) {
	for _, c := range []struct {
		want  string
		write func(k *build.Kernel)
	}{
		{"Cluster(3, 3, 1): want 1 to 8 blocks", func(k *build.Kernel) { k.Cluster(3, 3, 1) }},
		{"Peer of a pointer to global memory: want a pointer to shared memory",
			func(k *build.Kernel) { k.Peer(k.Pointer("p", ptx.F32), 0) }},
		{"operand is a zero Reg", func(k *build.Kernel) { k.Peer(k.Shared("s", ptx.F32, 1, 1).Ptr, build.Reg{}) }},
		{"modifier .x0 is not allowed", func(k *build.Kernel) {
			k.LoadMatrices(k.Shared("s", ptx.F16, 8, 8).Ptr, -1, false)
		}},
		{"matrix layout {Stride:1000 Leading:0 Swizzle:128}: want multiples of 16", func(k *build.Kernel) {
			k.Descriptor(k.Shared("s", ptx.F32, 8, 8).Ptr, build.MatrixLayout{Stride: 1000, Swizzle: 128})
		}},
		{"a swizzle of 0, 32, 64 or 128", func(k *build.Kernel) {
			k.Descriptor(k.Shared("s", ptx.F32, 8, 8).Ptr, build.MatrixLayout{Swizzle: 16})
		}},
		{"Wgmma: sums is empty", func(k *build.Kernel) { k.Wgmma(build.Wgmma{}, nil, nil, build.Reg{}, true) }},
		{"operand 1 is a vector of 4: want a vector of 8 registers", func(k *build.Kernel) {
			d := k.Descriptor(k.Shared("s", ptx.BF16, 8, 8).Ptr, build.MatrixLayout{})
			k.Wgmma(build.Wgmma{N: 16, A: ptx.BF16, B: ptx.BF16}, k.Vars("s", ptx.F32, 4, 0), d, d, true)
		}},
		{"name \"a b\"", func(k *build.Kernel) { k.Tensor("a b").Store(k.Shared("s", ptx.F32, 8, 8).Ptr, 0) }},
	} {
		k := build.New("k")
		c.write(k)
		if _, err := k.Build(); !errors.Is(err, ptx.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one error", err)
		}
	}
}
