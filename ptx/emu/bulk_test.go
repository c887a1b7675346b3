package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const bulkDecls = `	.shared .align 128 .b8 s[512]; .shared .align 8 .b64 m;
	.reg .b32 %v, %a, %b, %n, %c; .reg .b64 %q0; .reg .pred %q, %r; .reg .b16 %h;
	setp.eq.u32 %q, %t0, 0;
	@%q mbarrier.init.shared.b64 [m], 1;
	mov.u32 %a, s;
	mad.lo.u32 %b, %t0, 4, %a;
`

const bulkLoad = `	@%q mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;
	@%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%buf], 128, [m];
`

const bulkWait = "LOOP:	mbarrier.try_wait.parity.shared.b64 %r, [m], 0;\n	@!%r bra LOOP;\n"

// TestBulkCopy copies words to shared memory and back, with and without each required wait.
func TestBulkCopy(t *testing.T) {
	words := make([]uint32, 128)
	want := slices.Clone(words)
	for i := range 32 {
		words[i] = uint32(i) * 7
		want[i], want[32+i], want[64+i], want[96+i] = words[i], words[i]+1, words[i]+1, words[i]+1
	}
	body := func(wait, group, read string) string {
		return bulkDecls + "	bar.sync 0;\n" + bulkLoad + wait + `
	ld.shared.u32 %v, [%b];
	add.u32 %v, %v, 1;
	st.shared.u32 [%b], %v;
	fence.proxy.async;
	bar.sync 0;
	@%q cp.async.bulk.global.shared::cta.bulk_group [%buf+128], [%a], 128;
	@%q cp.async.bulk.commit_group;
	@%q cp.async.bulk.global.shared::cta.bulk_group [%buf+256], [%a], 128;
	@%q cp.async.bulk.commit_group;
	` + read + `
	bar.sync 0;
	st.shared.u32 [%b], 0;
	` + group + `
	bar.sync 0;
	mad.wide.u32 %p, %t0, 4, %buf;
	ld.global.u32 %v, [%p+128];
	st.global.u32 [%p+384], %v;
	bar.sync 0;
	@%q cp.async.bulk.wait_group 0;`
	}
	const one, all, read = "@%q cp.async.bulk.wait_group 1;", "@%q cp.async.bulk.wait_group 0;",
		"@%q cp.async.bulk.wait_group.read 0;"
	for _, c := range []struct {
		name, wait, group, read string
		right                   bool
	}{
		{"all waits present", bulkWait, one, read, true},
		{"no wait for the mbarrier", "", one, read, false},
		{"no wait for the group", bulkWait, "", read, false},
		{"no wait for the reads", bulkWait, one, "", false},
		{"no wait for the last read", bulkWait, one, "@%q cp.async.bulk.wait_group.read 1;", false},
		{"wait for completion instead of reads", bulkWait, "", all, true},
	} {
		wrong := 0
		for seed := range uint64(30) {
			got, _, err := runBody(t, body(c.wait, c.group, c.read), words,
				Launch{Block: Dim3{32, 1, 1}, Seed: seed, MaxInstructions: 1 << 20})
			if err != nil && c.right {
				t.Fatalf("%s: %v", c.name, err)
			}
			if err != nil || !slices.Equal(got, want) {
				wrong++
			}
		}
		if c.right && wrong > 0 || !c.right && wrong == 0 {
			t.Errorf("%s: %d of 30 results are wrong", c.name, wrong)
		}
	}
}

// moveRecorder records the moves of bulk copies.
type moveRecorder struct{ moves []string }

func (r *moveRecorder) Block(*BlockInfo) *Hooks {
	return &Hooks{Bulk: func(b *Bulk) {
		b.Moves(func(global, shared uint64, n int) {
			r.moves = append(r.moves, fmt.Sprintf("%v: %#x and %d, %d bytes", b.Space, global&0xfff, shared, n))
		})
	}}
}

// TestBulkMoves checks the addresses of a copy to shared memory and of one back. Only the halves
// that write report them.
func TestBulkMoves(t *testing.T) {
	r := &moveRecorder{}
	body := bulkDecls + "	bar.sync 0;\n" + bulkLoad + bulkWait + `
	@%q cp.async.bulk.global.shared::cta.bulk_group [%buf+256], [%a], 64;
	@%q cp.async.bulk.commit_group;
	@%q cp.async.bulk.wait_group 0;`
	_, _, err := runBody(t, body, make([]uint32, 128), Launch{Block: Dim3{32, 1, 1}, Observers: []Observer{r}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"shared: 0x0 and 0, 128 bytes", "global: 0x100 and 0, 64 bytes"}
	if !slices.Equal(r.moves, want) {
		t.Errorf("got %q, want %q", r.moves, want)
	}
}

// TestBulkReduction reduces into the shared memory of another block and into global memory.
func TestBulkReduction(t *testing.T) {
	body := bulkDecls + `	barrier.cluster.arrive; barrier.cluster.wait;
	.reg .b32 %rank, %other, %to, %bar;
	mov.u32 %rank, %cluster_ctarank;
	xor.b32 %other, %rank, 1;
	mad.lo.u32 %v, %rank, 100, %t0;
	st.shared.u32 [%b], %v;
	st.shared.u32 [%b+128], %t0;
	fence.proxy.async;
	barrier.cluster.arrive; barrier.cluster.wait;
	mapa.shared::cluster.u32 %to, %a, %other;
	mov.u32 %bar, m;
	mapa.shared::cluster.u32 %bar, %bar, %other;
	@%q mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;
	@%q cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%to+128], [%a], 128, [%bar];
` + bulkWait + `	ld.shared.u32 %v, [%b+128];
	mad.lo.u32 %n, %rank, 32, %t0;
	mad.wide.u32 %p, %n, 4, %buf;
	st.global.u32 [%p+128], %v;
	@%q cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32 [%buf], [%a], 128;
	@%q cp.async.bulk.commit_group;
	@%q cp.async.bulk.wait_group 0;
	barrier.cluster.arrive; barrier.cluster.wait;`
	want := make([]uint32, 96)
	for i := range uint32(32) {
		want[i], want[32+i], want[64+i] = 100+i, i+100+i, i+i
	}
	for seed := range uint64(10) {
		got, _, err := runBody(t, body, make([]uint32, 96), Launch{Grid: Dim3{2, 1, 1}, Cluster: Dim3{2, 1, 1},
			Block: Dim3{32, 1, 1}, Seed: seed, MaxInstructions: 1 << 20})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v %v", got, err)
		}
	}
}

// TestStoreAsync has each thread store a word in the next block.
func TestStoreAsync(t *testing.T) {
	body := bulkDecls + `	.reg .b32 %rank, %other, %to, %bar;
	@%q mbarrier.arrive.expect_tx.shared.b64 _, [m], 256;
	barrier.cluster.arrive; barrier.cluster.wait;
	mov.u32 %rank, %cluster_ctarank;
	xor.b32 %other, %rank, 1;
	mad.lo.u32 %v, %t0, 8, %a;
	mapa.shared::cluster.u32 %to, %v, %other;
	mov.u32 %bar, m;
	mapa.shared::cluster.u32 %bar, %bar, %other;
	mad.lo.u32 %v, %rank, 100, %t0;
	st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%to], {%v, %rank}, [%bar];
` + bulkWait + `	mad.lo.u32 %n, %rank, 32, %t0;
	mad.wide.u32 %p, %n, 8, %buf;
	mad.lo.u32 %v, %t0, 8, %a;
	ld.shared.v2.u32 {%v, %c}, [%v];
	st.global.v2.u32 [%p], {%v, %c};
	barrier.cluster.arrive; barrier.cluster.wait;`
	for seed := range uint64(10) {
		got, _, err := runBody(t, body, make([]uint32, 128), Launch{Grid: Dim3{2, 1, 1}, Cluster: Dim3{2, 1, 1},
			Block: Dim3{32, 1, 1}, Seed: seed, MaxInstructions: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(64) {
			from := 1 - i/32
			if got[2*i] != from*100+i%32 || got[2*i+1] != from {
				t.Fatalf("thread %d got %v", i, got[2*i:2*i+2])
			}
		}
	}
}

func TestBulkMisuse(t *testing.T) {
	for _, c := range []struct {
		body string
		want string
		kind error
	}{
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%buf], 1024, [m];",
			"past the end of the allocation", ErrAccess},
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%buf+4], 16, [m];", "multiple of 16 bytes",
			ErrAccess},
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a+512], [%buf], 32, [m];",
			"of the block's shared memory", ErrAccess},
		{"mov.u32 %n, 24; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%buf], %n, [m];",
			"copy size is 24 bytes: want a multiple of 16", ErrMisuse},
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%buf], 16, [s+256]; LOOP: bra LOOP;",
			"no mbarrier at 0x100", ErrMisuse},
		{"mov.u16 %h, 3; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%a], " +
			"[%buf], 16, [m], %h;", "multicast mask is 0x3 in a cluster of 1 blocks", ErrMisuse},
		{"cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%buf, {%v}], [m];",
			"no tensor map at", ErrMisuse},
		{"add.u64 %q0, %buf, 16; cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%q0, " +
			"{%v}], [m];", "want 128 bytes at a multiple of 64", ErrMisuse},
	} {
		_, _, err := runBody(t, bulkDecls+c.body, make([]uint32, 64), Launch{Block: Dim3{1, 1, 1}, MaxInstructions: 1 << 20})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		}
	}
}

// TestEmptyMulticast checks that a multicast copy to no block writes nothing, neither to shared nor
// to global memory.
func TestEmptyMulticast(t *testing.T) {
	body := bulkDecls + `
	mov.u16 %h, 0;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%a], [%buf], 16, [m], %h;`
	words := make([]uint32, 64)
	for i := range words {
		words[i] = uint32(i)
	}
	got, _, err := runBody(t, body, slices.Clone(words), Launch{Block: Dim3{1, 1, 1}})
	if err != nil || !slices.Equal(got, words) {
		t.Errorf("got %v, %v: want the words unchanged", got, err)
	}
}
