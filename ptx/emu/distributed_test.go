package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// readNeighbor returns a kernel body in which each thread writes a word of its own shared memory,
// executes between, and reads the word of the same thread in the next block of the cluster. It then
// executes after and stores the word.
func readNeighbor(between, after string) string {
	return `	.shared .align 4 .b8 s[128]; .reg .b32 %a, %r, %c, %v, %n; .reg .b64 %o, %g;
	mov.u32 %a, s;
	mad.lo.u32 %a, %t0, 4, %a;
	mov.u32 %c, %ctaid.x;
	mad.lo.u32 %v, %c, 1000, %t0;
	st.shared.u32 [%a], %v;
` + between + `
	mov.u32 %r, %cluster_ctarank;
	mov.u32 %n, %cluster_nctarank;
	add.u32 %r, %r, 1;
	rem.u32 %r, %r, %n;
	mapa.shared::cluster.u32 %a, %a, %r;
	ld.shared::cluster.u32 %v, [%a];
` + after + `
	mad.lo.u32 %c, %c, 32, %t0;
	mad.wide.u32 %p, %c, 4, %buf;
	st.global.u32 [%p], %v;`
}

const clusterSync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

func TestDistributedSharedMemory(t *testing.T) {
	launch := Launch{Grid: Dim3{6, 1, 1}, Block: Dim3{32, 1, 1}, Cluster: Dim3{3, 1, 1}}
	want := make([]uint32, 6*32)
	for i := range want {
		b := i / 32
		want[i] = uint32((b/3*3+(b%3+1)%3)*1000 + i%32)
	}
	wrong := func(between, after string) (n int, last error) {
		for seed := range uint64(20) {
			launch.Seed = seed
			got, _, err := runBody(t, readNeighbor(between, after), make([]uint32, len(want)), launch)
			if err != nil {
				n, last = n+1, err
			} else if !slices.Equal(got, want) {
				n++
			}
		}
		return n, last
	}
	if n, err := wrong(clusterSync, clusterSync); n > 0 {
		t.Errorf("%d of 20 runs are wrong: %v", n, err)
	}
	if n, _ := wrong("bar.sync 0;", clusterSync); n == 0 {
		t.Error("a barrier of the block synchronizes the cluster: want wrong results")
	}
	n, err := wrong(clusterSync, "")
	if n == 0 || !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(),
		"of the cluster has exited, which freed its shared memory") {
		t.Errorf("%d of 20 runs failed without the last barrier, with %v: want ErrAccess for an exited block", n, err)
	}
}

// TestClusterSpecialRegisters checks the cluster registers of each block.
func TestClusterSpecialRegisters(t *testing.T) {
	names := []string{
		"%clusterid.x", "%clusterid.y", "%nclusterid.x", "%nclusterid.y", "%cluster_ctaid.x", "%cluster_ctaid.y",
		"%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_ctarank", "%cluster_nctarank", "%ctaid.x", "%ctaid.y",
	}
	body := `.reg .b32 %v, %x, %y; .reg .pred %q; mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mad.lo.u32 %x, %y, 4, %x;
	mad.wide.u32 %p, %x, 64, %buf; mov.pred %q, %is_explicit_cluster; selp.u32 %v, 1, 0, %q; st.global.u32 [%p+60], %v;`
	for k, name := range names {
		body += fmt.Sprintf("\n\tmov.u32 %%v, %s; st.global.u32 [%%p+%d], %%v;", name, 4*k)
	}
	got, _, err := runBody(t, body, make([]uint32, 8*16), Launch{Grid: Dim3{4, 2, 1}, Block: Dim3{1, 1, 1},
		Cluster: Dim3{2, 2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for y := range uint32(2) {
		for x := range uint32(4) {
			want := []uint32{x / 2, 0, 2, 1, x % 2, y, 2, 2, x%2 + 2*y, 4, x, y, 0, 0, 0, 1}
			want[12], want[13], want[14] = 0, 0, 0
			if b := got[(y*4+x)*16:][:16]; !slices.Equal(b, want) {
				t.Errorf("block (%d,%d): %v, want %v", x, y, b, want)
			}
		}
	}
}

// TestGenericClusterAddresses accesses other blocks through generic addresses and checks the rank
// of each address.
func TestGenericClusterAddresses(t *testing.T) {
	body := `	.shared .align 8 .b8 s[64]; .reg .b32 %v, %r, %o; .reg .b64 %a, %g; .reg .pred %q;
	mov.u32 %r, %cluster_ctarank;
	xor.b32 %o, %r, 1;
	mov.u64 %a, s;
	cvta.shared.u64 %g, %a;
	mapa.u64 %g, %g, %o;
	add.u32 %v, %r, 40;
	atom.exch.b32 %v, [%g+4], %v;
	barrier.cluster.arrive; barrier.cluster.wait;
	ld.shared.u32 %v, [s+4];
	mul.wide.u32 %p, %r, 32;
	add.u64 %p, %p, %buf;
	st.global.u32 [%p], %v;
	getctarank.u64 %v, %g; st.global.u32 [%p+4], %v;
	isspacep.shared::cta %q, %g; selp.u32 %v, 1, 0, %q; st.global.u32 [%p+8], %v;
	isspacep.shared::cluster %q, %g; selp.u32 %v, 1, 0, %q; st.global.u32 [%p+12], %v;
	mapa.u64 %g, %g, %r;
	isspacep.shared::cta %q, %g; selp.u32 %v, 1, 0, %q; st.global.u32 [%p+16], %v;
	getctarank.u64 %v, %g; st.global.u32 [%p+20], %v;`
	for seed := range uint64(10) {
		got, _, err := runBody(t, body, make([]uint32, 16), Launch{Grid: Dim3{2, 1, 1}, Block: Dim3{1, 1, 1},
			Cluster: Dim3{2, 1, 1}, Seed: seed})
		want := []uint32{41, 1, 0, 1, 1, 0, 0, 0, 40, 0, 0, 1, 1, 1, 0, 0}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v %v, want %v", got, err, want)
		}
	}
}

func TestClusterFaults(t *testing.T) {
	two := Launch{Grid: Dim3{2, 1, 1}, Block: Dim3{64, 1, 1}, Cluster: Dim3{2, 1, 1}}
	for _, c := range []struct {
		body string
		want string
		kind error
	}{
		{"barrier.cluster.wait;", "wait without an arrival", ErrMisuse},
		{"barrier.cluster.arrive; barrier.cluster.arrive;", "arrive a second time without a wait", ErrMisuse},
		{".reg .b32 %v; .shared .b32 s; mov.u32 %v, s; mapa.shared::cluster.u32 %v, %v, 2;",
			"rank is 2 in a cluster of 2 blocks", ErrMisuse},
		{".reg .b32 %v; mov.u32 %v, 0x3000000; ld.shared::cluster.u32 %v, [%v];", "the cluster has no block of this rank",
			ErrAccess},
		{".reg .b32 %v; .reg .pred %q; mov.u32 %v, %ctaid.x; setp.eq.u32 %q, %v, 0; @%q bar.sync 1, 96; " +
			"barrier.cluster.arrive; barrier.cluster.wait;",
			"at the cluster barrier, where 64 threads have not arrived", ErrDeadlock},
	} {
		_, _, err := runBody(t, c.body, []uint32{0}, two)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		}
	}
	// The cluster barrier does not wait for exited threads.
	if _, _, err := runBody(t, ".reg .pred %q; setp.lt.u32 %q, %t0, 40; @%q exit; barrier.cluster.arrive; "+
		"barrier.cluster.wait;", []uint32{0}, two); err != nil {
		t.Error(err)
	}
}

func TestClusterSizes(t *testing.T) {
	text := strings.Replace(kernelSource(""), "(.param .u64 buf)", "(.param .u64 buf) .reqnctapercluster 2, 1, 1", 1)
	for _, c := range []struct {
		text string
		grid Dim3
		size Dim3
		want string
	}{
		{kernelSource(""), Dim3{4, 1, 1}, Dim3{2, 1, 1}, ""},
		{kernelSource(""), Dim3{4, 1, 1}, Dim3{3, 1, 1}, "grid is (4,1,1): want multiples of the cluster (3,1,1)"},
		{kernelSource(""), Dim3{16, 1, 1}, Dim3{16, 1, 1}, "at most 8 blocks"},
		{kernelSource(""), Dim3{16, 1, 1}, Dim3{2, 0, 1}, "sides of at least 1"},
		{text, Dim3{4, 1, 1}, Dim3{}, ""},
		{text, Dim3{3, 1, 1}, Dim3{}, "want multiples of the cluster (2,1,1)"},
		{text, Dim3{4, 1, 1}, Dim3{4, 1, 1}, "cluster is (4,1,1): want (2,1,1) (.reqnctapercluster)"},
	} {
		p := loadText(t, "k.ptx", c.text)
		mem := NewMemory(MemoryOptions{})
		_, err := p.Run(t.Context(), mem, Launch{Entry: "k", Grid: c.grid, Block: Dim3{1, 1, 1}, Cluster: c.size,
			Params: pack(t, p, "k", uint64(0))})
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrLaunch) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("grid %v, clusters %v: got %v, want %q", c.grid, c.size, err, c.want)
		}
	}
}
