package check

import (
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// cluster returns cluster n of the grid: two blocks that run together.
func (f *fake) cluster(n int) (a, b *block) {
	infos := [2]*emu.BlockInfo{}
	blocks := [2]*block{}
	for rank := range infos {
		infos[rank] = &emu.BlockInfo{
			Grid: f.grid, BlockDim: f.dim, Index: emu.Dim3{X: 2*n + rank}, Linear: 2*n + rank,
			Warps: (f.dim.X + 31) / 32, SharedSize: 8192, Cluster: n, Rank: rank, Ranks: 2,
		}
		blocks[rank] = &block{fake: f, info: infos[rank], hooks: f.checks.Block(infos[rank])}
	}
	return blocks[0], blocks[1]
}

// bulk reports one half of a bulk copy of 64 bytes, issued by a thread, at an address in the
// shared memory of the block with the given rank.
func (b *block) bulk(site string, copy uint64, kind emu.AccessKind, thread, rank int, addr uint64) {
	b.hooks.Bulk(&emu.Bulk{
		Origin: b.by(site, thread), Kind: kind, Space: ptx.Shared, Rank: rank, Spans: []emu.Span{{Addr: addr, Size: 64}},
		Copy: copy,
	})
}

// by returns the origin of an event of one thread at an instruction.
func (b *block) by(site string, thread int) emu.Origin {
	return emu.Origin{Site: b.site(site), Warp: thread / 32, Mask: 1 << (thread % 32)}
}

func (b *block) mbarrier(kind emu.MbarrierKind, thread int, copy uint64) {
	b.hooks.Mbarrier(&emu.Mbarrier{Origin: b.by("mbarrier", thread), Kind: kind, Rank: 0, Addr: 4096, Copy: copy})
}

func (b *block) proxyFence(thread int) {
	b.hooks.Fence(&emu.Fence{Origin: b.by("proxy", thread), Proxy: "async.shared::cta"})
}

func (b *block) clusterSync(kind emu.ClusterKind, relaxed bool, warps int) {
	for w := range warps {
		b.hooks.ClusterSync(&emu.ClusterSync{Origin: emu.Origin{Site: b.site("cluster"), Warp: w, Mask: ^uint32(0)},
			Kind: kind, Relaxed: relaxed})
	}
}

func TestAsyncRaces(t *testing.T) {
	done := func(b *block, read bool) {
		b.hooks.CopyDone(&emu.CopyDone{Origin: b.by("wait", 0), Copies: []emu.CopyLanes{{Copy: 1, Mask: 1}}, Read: read})
	}
	for _, c := range []struct {
		name string
		run  func(b *block)
		want string
		says string
	}{
		{"read by the waiting thread", func(b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.mbarrier(emu.MbarrierCopy, 0, 1)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierWait, 40, 0)
			b.do(ld, []int{40}, same)
		}, "", ""},
		{"read after wait and barrier", func(b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.mbarrier(emu.MbarrierCopy, 0, 1)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierWait, 40, 0)
			b.sync("bar", 0, b.all(), 0)
			b.do(ld, []int{3}, same)
		}, "", ""},
		{"no wait for a complete copy", func(b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.mbarrier(emu.MbarrierCopy, 0, 1)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.sync("bar", 0, b.all(), 0)
			b.do(ld, []int{0}, same)
		}, "race ld load", "want a wait for the copy (on its mbarrier"},
		{"wait of another thread", func(b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.mbarrier(emu.MbarrierCopy, 0, 1)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierWait, 40, 0)
			b.do(ld, []int{0}, same)
		}, "race ld load", ""},
		{"wait for another phase", func(b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierCopy, 0, 1)
			b.mbarrier(emu.MbarrierWait, 40, 0)
			b.do(ld, []int{40}, same)
		}, "race ld load", ""},
		{"write before arrival", func(b *block) {
			b.do(st, []int{0}, same)
			b.mbarrier(emu.MbarrierArrive, 0, 0)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierWait, 40, 0)
			b.do(ld, []int{40}, same)
		}, "", ""},
		{"write after arrival", func(b *block) {
			b.mbarrier(emu.MbarrierArrive, 0, 0)
			b.do(st, []int{0}, same)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierWait, 40, 0)
			b.do(ld, []int{40}, same)
		}, "race ld st", ""},
		{"copy overwrites data being read", func(b *block) {
			b.do(ld, []int{40}, same)
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
		}, "race load ld", ""},
		{"copy of fenced writes", func(b *block) {
			b.do(st, b.all(), own)
			for _, n := range b.all() {
				b.proxyFence(n)
			}
			b.sync("bar", 0, b.all(), 0)
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 128)
		}, "", ""},
		{"fence after the barrier", func(b *block) {
			b.do(st, b.all(), own)
			b.sync("bar", 0, b.all(), 0)
			b.proxyFence(0)
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 128)
		}, "", ""},
		{"no fence", func(b *block) {
			b.do(st, b.all(), own)
			b.sync("bar", 0, b.all(), 0)
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 128)
		}, "race store st", "want a fence.proxy.async after test.ptx:1, before the barrier that follows it"},
		{"fence of another thread", func(b *block) {
			b.do(st, []int{40}, func(int) uint64 { return 128 })
			b.proxyFence(0)
			b.sync("bar", 0, b.all(), 0)
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 128)
		}, "race store st", "fence.proxy.async"},
		{"fence before the write", func(b *block) {
			b.proxyFence(0)
			b.do(st, []int{0}, same)
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 0)
		}, "race store st", "fence.proxy.async"},
		{"copy of copied data without fence", func(b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.mbarrier(emu.MbarrierCopy, 0, 1)
			b.mbarrier(emu.MbarrierComplete, 0, 0)
			b.mbarrier(emu.MbarrierWait, 0, 0)
			b.bulk("store", 2, emu.AsyncRead, 0, 0, 0)
		}, "", ""},
		{"write while a copy reads", func(b *block) {
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 0)
			b.do(st, []int{0}, same)
		}, "race st store", "may still read"},
		{"write after the copy has read", func(b *block) {
			b.bulk("store", 1, emu.AsyncRead, 0, 0, 0)
			done(b, true)
			b.do(st, []int{0}, same)
		}, "", ""},
		{"wait for the reads of a copy only", func(b *block) {
			b.bulk("copy", 1, emu.AsyncWrite, 0, 0, 0)
			done(b, true)
			b.do(ld, []int{0}, same)
		}, "race ld copy", ""},
		{"wait for a bulk group of another thread", func(b *block) {
			b.bulk("copy", 1, emu.AsyncWrite, 0, 0, 0)
			done(b, false)
			b.do(ld, []int{0}, same)
			b.do(ld, []int{40}, same)
		}, "race ld copy", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Options{Only: []Checker{Race}}, 1, 64)
			b := f.block(0)
			c.run(b)
			b.hooks.End()
			r, got := f.report(nil)
			if s := strings.Join(got, ", "); s != c.want || !strings.Contains(r.String(), c.says) {
				t.Errorf("found %q, want %q and a report that contains %q\n%v", s, c.want, c.says, r)
			}
		})
	}
}

func TestClusterRaces(t *testing.T) {
	peer := func(b *block, o op, thread, rank int) {
		addr := [32]uint64{}
		a := &emu.Access{
			Origin: b.by(o.site, thread), Kind: o.kind, Sem: o.sem, Scope: o.scope, Space: ptx.Shared, Size: 4, Addr: &addr,
			Rank: rank,
		}
		b.hooks.Access(a)
	}
	atom := func(scope emu.Scope) op {
		return op{site: "atom", kind: emu.Atomic, sem: emu.Relaxed, scope: scope}
	}
	swap := op{site: "cas", kind: emu.Atomic, sem: emu.Relaxed, scope: emu.GPU}
	for _, c := range []struct {
		name string
		run  func(a, b *block)
		want string
		says string
	}{
		{"atomics", func(a, b *block) {
			peer(a, atom(emu.Cluster), 0, 0)
			peer(b, atom(emu.GPU), 5, 0)
		}, "", ""},
		{"atomics of one block", func(a, b *block) {
			peer(a, atom(emu.CTA), 0, 0)
			peer(a, atom(emu.CTA), 40, 0)
		}, "", ""},
		{"atomic of block scope from another block", func(a, b *block) {
			peer(a, atom(emu.GPU), 0, 0)
			peer(b, atom(emu.CTA), 5, 0)
		}, "race atom atom", "want scope .gpu (atomicAdd instead of atomicAdd_block in CUDA C)"},
		{"read before a swap", func(a, b *block) {
			peer(b, atom(emu.GPU), 5, 0)
			peer(a, ld, 0, 0)
			peer(a, swap, 0, 0)
		}, "race ld atom", "advice: race"},
		{"read before a swap in another block", func(a, b *block) {
			peer(b, atom(emu.GPU), 5, 0)
			peer(a, ld, 0, 0)
			peer(a, swap, 0, 1)
		}, "race ld atom", "error: race"},
		{"reset after an update", func(a, b *block) {
			peer(a, atom(emu.GPU), 0, 0)
			peer(b, atom(emu.GPU), 5, 0)
			peer(a, st, 0, 0)
		}, "race st atom", "advice: race"},
		{"reset after an update in another block", func(a, b *block) {
			peer(a, atom(emu.GPU), 0, 1)
			peer(b, atom(emu.GPU), 5, 0)
			peer(a, st, 0, 0)
		}, "race st atom", "error: race"},
		{"private shared memory", func(a, b *block) {
			peer(a, st, 0, 0)
			peer(b, st, 0, 1)
		}, "", ""},
		{"distributed shared memory", func(a, b *block) {
			peer(a, st, 0, 0)
			peer(b, ld, 5, 0)
		}, "race ld st", "thread (5,0,0) of block (1,0,0) reads 4 bytes at offset 0x0 of shared memory of block (0,0,0) " +
			"that thread (0,0,0) of block (0,0,0) writes"},
		{"after the cluster barrier", func(a, b *block) {
			peer(a, st, 0, 0)
			a.clusterSync(emu.ClusterArrive, false, 2)
			b.clusterSync(emu.ClusterArrive, false, 2)
			a.clusterSync(emu.ClusterComplete, false, 1)
			b.clusterSync(emu.ClusterWait, false, 2)
			peer(b, ld, 5, 0)
		}, "", ""},
		{"write after the arrival", func(a, b *block) {
			a.clusterSync(emu.ClusterArrive, false, 2)
			peer(a, st, 0, 0)
			b.clusterSync(emu.ClusterArrive, false, 2)
			a.clusterSync(emu.ClusterComplete, false, 1)
			b.clusterSync(emu.ClusterWait, false, 2)
			peer(b, ld, 5, 0)
		}, "race ld st", ""},
		{"relaxed arrival", func(a, b *block) {
			peer(a, st, 0, 0)
			a.clusterSync(emu.ClusterArrive, true, 2)
			b.clusterSync(emu.ClusterArrive, false, 2)
			a.clusterSync(emu.ClusterComplete, false, 1)
			b.clusterSync(emu.ClusterWait, false, 2)
			peer(b, ld, 5, 0)
		}, "race ld st", ""},
		{"barriers of each block", func(a, b *block) {
			peer(a, st, 0, 0)
			a.sync("bar", 0, a.all(), 0)
			b.sync("bar", 0, b.all(), 0)
			peer(b, ld, 5, 0)
		}, "race ld st", ""},
		{"barrier of the own block", func(a, b *block) {
			peer(b, st, 0, 1)
			b.sync("bar", 0, b.all(), 0)
			peer(b, ld, 40, 1)
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Options{Only: []Checker{Race}}, 2, 64)
			f.site("cas").Instr = &ptx.Instr{Op: "atom", Mods: []string{"cas"}}
			a, b := f.cluster(0)
			c.run(a, b)
			a.hooks.End()
			b.hooks.End()
			r, got := f.report(nil)
			if s := strings.Join(got, ", "); s != c.want || !strings.Contains(r.String(), c.says) {
				t.Errorf("found %q, want %q and a report that contains %q\n%v", s, c.want, c.says, r)
			}
		})
	}
}

// TestRacesBetweenClusters checks that a race between clusters is reported with the blocks of the
// threads.
func TestRacesBetweenClusters(t *testing.T) {
	f := newFake(t, Options{Only: []Checker{Race}}, 4, 64)
	base := f.alloc(64)
	for n := range 2 {
		a, b := f.cluster(n)
		writer := []*block{a, b}[n]
		writer.do(op{site: "st", kind: emu.Write, space: ptx.Global}, []int{33 + n}, func(int) uint64 { return base })
		a.hooks.End()
		b.hooks.End()
	}
	r, got := f.report(nil)
	const says = "thread (34,0,0) of block (3,0,0) writes 4 bytes at offset 0x0 of the allocation of 64 bytes at " +
		"0x7f00000000 that thread (33,0,0) of block (0,0,0) writes"
	if strings.Join(got, ", ") != "race st st" || !strings.Contains(r.String(), says) {
		t.Errorf("found %q\n%v", got, r)
	}
}
