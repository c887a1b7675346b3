package check

import (
	"fmt"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

func TestBarriers(t *testing.T) {
	arrive := func(b *block, site string, id, warp int, mask uint32, expected int, missing ...emu.Missing) {
		b.hooks.Barrier(&emu.Barrier{
			Origin: emu.Origin{Site: b.site(site), Warp: warp, Mask: mask}, ID: id, Expected: expected,
			Arrived: 32 * (warp + 1), Aligned: true, Missing: missing,
		})
	}
	deadlock := fmt.Errorf("block (0,0,0): %w", emu.ErrDeadlock)
	for _, c := range []struct {
		name string
		run  func(b *block)
		err  error
		want string
		says string
	}{
		{"complete", func(b *block) { b.sync("bar", 0, b.all(), 0) }, nil, "", ""},
		{"part of a warp", func(b *block) {
			arrive(b, "bar", 0, 0, 0xfffe, 64, emu.Missing{Origin: emu.Origin{Site: b.site("wait"), Mask: 0xffff0001}})
		}, nil, "barrier bar", "threads (1,0,0) to (15,0,0) are at this barrier while 17 of the threads (0,0,0) to " +
			"(31,0,0) of the same warp are at test.ptx:1"},
		{"two instructions", func(b *block) {
			arrive(b, "bar", 0, 0, ^uint32(0), 64)
			arrive(b, "other", 0, 1, ^uint32(0), 64)
		}, nil, "barrier other bar", "same __syncthreads()"},
		{"two barriers in sequence", func(b *block) {
			b.sync("bar", 0, b.all(), 0)
			b.sync("other", 0, b.all(), 0)
		}, nil, "", ""},
		{"deadlock", func(b *block) {
			arrive(b, "bar", 1, 0, ^uint32(0), 96)
			arrive(b, "bar", 1, 1, ^uint32(0), 96)
		}, deadlock, "barrier bar", "deadlock: 64 threads, including thread (0,0,0) of block (0,0,0), wait at barrier 1, " +
			"which expects 96 threads"},
		{"incomplete after another error", func(b *block) {
			arrive(b, "bar", 1, 0, ^uint32(0), 96)
		}, emu.ErrBudget, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Options{Only: []Checker{Barrier}}, 1, 64)
			b := f.block(0)
			c.run(b)
			b.hooks.End()
			r, got := f.report(c.err)
			if s := strings.Join(got, ", "); s != c.want || !strings.Contains(r.String(), c.says) {
				t.Errorf("found %q, want %q and a report that contains %q\n%v", s, c.want, c.says, r)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	f := newFake(t, Options{Only: []Checker{Bounds}}, 2, 64)
	for n := range 2 {
		b := f.block(1 - n) // the report has the message of the lower block
		for range 3 {
			continues := b.hooks.Fault(&emu.Fault{
				Origin: emu.Origin{Site: b.site("ld"), Mask: 2}, Kind: emu.OutOfBounds, Access: emu.Read, Space: ptx.Global,
				Size: 4, Block: b.info.Index, Thread: emu.Dim3{X: 1}, FirstAddr: 0x7f00000404, Detail: "4 bytes past the end of it",
			})
			if !continues {
				t.Error("the launch ends at the first fault, want it to continue")
			}
		}
		b.hooks.Fault(&emu.Fault{
			Origin: emu.Origin{Site: b.site("ld"), Mask: 2}, Kind: emu.Misaligned, Access: emu.Write, Space: ptx.Shared,
			Size: 16, Block: b.info.Index, FirstAddr: 0x8,
		})
		b.hooks.End()
	}
	r, got := f.report(nil)
	if s := strings.Join(got, ", "); s != "bounds ld, bounds ld" || r.Errors() != 2 {
		t.Fatalf("found %q, want two bounds errors", s)
	}
	for _, want := range []string{
		"thread (1,0,0) of block (0,0,0) reads 4 bytes at global address 0x7f00000404, 4 bytes past the end of it: want a " +
			"bounds check",
		"(6 times)", "writes 16 bytes at shared address 0x8: want a multiple of 16", "(2 times)",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("report %q, want it to contain %q", r.String(), want)
		}
	}
}

func TestUninit(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(f *fake, b *block)
		want string
		says string
	}{
		{"written words", func(_ *fake, b *block) {
			b.do(st, b.all(), own)
			b.do(ld, b.all(), next)
		}, "", ""},
		{"unwritten word", func(_ *fake, b *block) {
			b.do(st, span(0, 63), own)
			b.do(ld, b.all(), own)
		}, "uninit ld", "thread (63,0,0) of block (0,0,0) reads offset 0xfc of shared memory"},
		{"unwritten byte", func(_ *fake, b *block) {
			o := st
			o.size = 1
			b.do(o, span(0, 3), func(t int) uint64 { return 61 + uint64(t) })
			o = ld
			o.size = 2
			b.do(o, []int{7}, func(int) uint64 { return 62 })
			b.do(o, []int{7}, func(int) uint64 { return 60 })
		}, "uninit ld", "thread (7,0,0) of block (0,0,0) reads offset 0x3c"},
		{"partly written vector", func(_ *fake, b *block) {
			b.do(st, span(0, 3), own)
			o := ld
			o.size = 16
			b.do(o, []int{0}, same)
		}, "uninit ld", "offset 0xc"},
		{"write of an asynchronous copy", func(_ *fake, b *block) {
			b.do(op{site: "cp", kind: emu.AsyncWrite, copy: 1}, []int{0}, same)
			b.do(ld, []int{0}, same)
		}, "", ""},
		{"write of a bulk copy", func(_ *fake, b *block) {
			b.bulk("load", 1, emu.AsyncWrite, 0, 0, 0)
			b.do(ld, []int{0}, same)
		}, "", ""},
		{"read of a bulk copy", func(_ *fake, b *block) {
			b.do(st, span(0, 8), own)
			b.bulk("store", 1, emu.AsyncRead, 40, 0, 0)
		}, "uninit store", "thread (40,0,0) of block (0,0,0) reads offset 0x20"},
		{"atomic", func(_ *fake, b *block) {
			b.do(op{site: "atom", kind: emu.Atomic}, []int{0}, same)
		}, "uninit atom", ""},
		{"write of the previous block", func(f *fake, b *block) {
			b.do(st, b.all(), own)
			b.hooks.End()
			after := f.block(1)
			after.do(ld, []int{0}, same)
			after.hooks.End()
			f.block(0)
		}, "uninit ld", "of block (1,0,0)"},
		{"register", func(_ *fake, b *block) {
			for range 2 {
				b.hooks.UninitRead(&emu.UninitRead{Origin: emu.Origin{Site: b.site("add"), Warp: 1, Mask: 0b100}, Register: "%f1"})
				b.hooks.UninitRead(&emu.UninitRead{Origin: emu.Origin{Site: b.site("add"), Warp: 1, Mask: 0b100}, Register: "%f2"})
			}
		}, "uninit add, uninit add", "thread (34,0,0) reads register %f1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Options{Only: []Checker{Uninit}}, 2, 64)
			b := f.block(0)
			c.run(f, b)
			b.hooks.End()
			r, got := f.report(nil)
			if s := strings.Join(got, ", "); s != c.want || !strings.Contains(r.String(), c.says) {
				t.Errorf("found %q, want %q and a report that contains %q\n%v", s, c.want, c.says, r)
			}
		})
	}
}
