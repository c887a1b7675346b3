package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// Kinds of uninit findings.
const (
	unsetRegister uint8 = iota
	unsetShared
	unsetGlobal
)

// uninit detects reads of uninitialized registers, shared memory and global memory. For global
// memory, the emulated memory must track writes ([emu.MemoryOptions]).
type uninit struct {
	*worker
	written [][]uint64 // by rank, one bit per byte of shared memory
	// partial holds allocations that were found not to be completely written in this
	// block.
	partial map[*emu.Allocation]bool
}

func (u *uninit) start(b *emu.BlockInfo) {
	for len(u.written) < max(b.Ranks, 1) {
		u.written = append(u.written, nil)
	}
	for rank := range u.written {
		u.written[rank] = cleared(u.written[rank], (b.SharedSize+63)/64)
	}
	clear(u.partial)
}

// isWhole reports whether the allocation of an access is completely written, as most are. If so,
// individual accesses need no check.
func (u *uninit) isWhole(in *instruction) bool {
	if !in.whole && !u.partial[in.alloc] {
		in.whole = in.alloc.Unwritten(in.alloc.Base, in.alloc.Size) < 0
		if !in.whole {
			if u.partial == nil {
				u.partial = map[*emu.Allocation]bool{}
			}
			u.partial[in.alloc] = true
		}
	}
	return in.whole
}

func (u *uninit) register(r *emu.UninitRead) {
	u.found.add(u.block, key{checker: Uninit, kind: unsetRegister, site: r.Site, name: r.Register}, func(f *Finding) {
		f.Thread = u.thread(r.Warp*32 + bits.TrailingZeros32(r.Mask))
		f.Message = fmt.Sprintf("thread %v reads register %s, which it has not written: want the variable set on "+
			"all paths before its use",
			f.Thread, r.Register)
	})
}

func (u *uninit) access(a *emu.Access, rs *runs, in *instruction) {
	if a.Space == ptx.Global && (!isRead(a.Kind) || u.isWhole(in)) {
		return
	}
	for i := range rs.byLane[:rs.n] {
		cur := &rs.byLane[i]
		n := int(cur.bytes(a.Size))
		if isRead(a.Kind) {
			if at := u.unwritten(a.Alloc, a.Rank, cur.addr, n); at >= 0 {
				lane := cur.lane
				if cur.step > 0 {
					lane += at / a.Size
				}
				u.report(a.Site, a.Warp*32+lane, a.Alloc, cur.addr+uint64(at))
			}
		}
		if isWrite(a.Kind) && a.Space == ptx.Shared {
			u.write(a.Rank, cur.addr, n)
		}
	}
}

// bulk checks an access of the async proxy.
func (u *uninit) bulk(b *emu.Bulk) {
	for _, s := range b.Spans {
		if b.Kind == emu.AsyncRead {
			if at := u.unwritten(b.Alloc, b.Rank, s.Addr, s.Size); at >= 0 {
				u.report(b.Site, b.Warp*32+bits.TrailingZeros32(b.Mask), b.Alloc, s.Addr+uint64(at))
				return
			}
		} else if b.Space == ptx.Shared {
			u.write(b.Rank, s.Addr, s.Size)
		}
	}
}

// unwritten returns the offset of the first unwritten byte among the n bytes at addr, or -1. addr
// is in alloc, or in the shared memory of the block with the given rank if alloc is nil.
func (u *uninit) unwritten(alloc *emu.Allocation, rank int, addr uint64, n int) int {
	if alloc != nil {
		return alloc.Unwritten(addr, n)
	}
	written := u.written[rank]
	for off := 0; off < n; {
		word, bit := (addr+uint64(off))/64, int((addr+uint64(off))%64)
		if missing := ^written[word] >> bit; missing != 0 {
			if at := off + bits.TrailingZeros64(missing); at < n {
				return at
			}
			return -1
		}
		off += 64 - bit
	}
	return -1
}

func (u *uninit) write(rank int, addr uint64, n int) {
	for n > 0 {
		word, bit := addr/64, int(addr%64)
		m := min(n, 64-bit)
		u.written[rank][word] |= ^uint64(0) >> (64 - m) << bit
		addr += uint64(m)
		n -= m
	}
}

func (u *uninit) report(site *emu.Site, reader int, alloc *emu.Allocation, addr uint64) {
	kind := unsetShared
	if alloc != nil {
		kind = unsetGlobal
	}
	u.found.add(u.block, key{checker: Uninit, kind: kind, site: site}, func(f *Finding) {
		f.Thread = u.thread(reader)
		if kind == unsetShared {
			f.Message = fmt.Sprintf("thread %v of block %v reads %s, which no thread of the block has written: "+
				"want each element of a tile stored before it is read",
				f.Thread, f.Block, place(ptx.Shared, addr, nil))
			return
		}
		f.Message = fmt.Sprintf("thread %v of block %v reads %s, which neither the host nor a kernel has written: "+
			"want it copied to the device first, or another index",
			f.Thread, f.Block, place(ptx.Global, addr, alloc))
	})
}
