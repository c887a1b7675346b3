package emu

import (
	"encoding/binary"

	"tilework/ptx"
)

// The data movement of a bulk copy whose addresses are resolved.

// read copies the source to m.data.
func (m *bulkMove) read() {
	m.data = make([]byte, m.bytes)
	if m.source != nil {
		memory := m.source.block.shared.bytes()
		m.eachPiece(m.source.off, func(addr uint64, at, n int) { copy(m.data[at:][:n], memory[addr:]) })
		return
	}
	for at := 0; at < m.bytes && m.fillNaN; at += len(outsideNaN) {
		copy(m.data[at:], outsideNaN)
	}
	for _, s := range m.global {
		part := m.data[s.at:][:s.n]
		copy(part, m.alloc.bytes()[s.addr-m.alloc.Base:])
		for at := 0; at < s.n && m.roundsToTF32; at += 4 {
			binary.LittleEndian.PutUint32(part[at:], roundTF32(binary.LittleEndian.Uint32(part[at:])))
		}
	}
}

// sharedExtent returns the bytes of shared memory from the first to the last byte of the copy.
func (m *bulkMove) sharedExtent() int { return (m.bytes/m.row-1)*m.pitch + m.row }

// eachPiece calls move for each contiguous piece of shared memory that the copy accesses. off is
// the address of the copy; a piece has n bytes at address addr and at offset at of the data.
// Without a swizzle there is one piece. A swizzled copy consists of pieces of 16 bytes, and its
// rows are at least m.swizzle bytes apart, even if they are shorter.
func (m *bulkMove) eachPiece(off uint64, move func(addr uint64, at, n int)) {
	if m.swizzle == 0 {
		move(off, 0, m.bytes)
		return
	}
	for at := 0; at < m.bytes; at += tensorPiece {
		addr := off + uint64(at/m.row*m.pitch+at%m.row)
		move(swizzled(addr, 0, m.swizzle), at, tensorPiece)
	}
}

// writeShared writes the data to a block's shared memory and completes its bytes at the mbarrier.
func (m *bulkMove) writeShared(id uint64, to *sharedLocation) {
	memory := to.block.shared.bytes()
	m.eachPiece(to.off, func(addr uint64, at, n int) { m.combine(memory[addr:][:n], m.data[at:][:n]) })
	to.completeTx(m.warp, m.in, m.lane, id, m.bytes)
}

// completeTx subtracts n bytes from the transaction count of the destination's mbarrier.
func (to *sharedLocation) completeTx(w *warp, in *inst, lane int, id uint64, n int) {
	at := mbarrierAt{origin: Origin{Site: in.site, Warp: w.index, Mask: 1 << lane}, block: to.block, off: to.mbarrier}
	at.complete(w, in, func(m *mbarrier) error { return m.expect(-n) }, id)
}

func (m *bulkMove) writeGlobal() {
	for _, s := range m.global {
		off := int(s.addr - m.alloc.Base)
		m.combine(m.alloc.bytes()[off:][:s.n], m.data[s.at:][:s.n])
		m.alloc.mark(off, s.n)
	}
}

// combine copies data to dst, or reduces data into dst.
func (m *bulkMove) combine(dst, data []byte) {
	if m.op == "" {
		copy(dst, data)
		return
	}
	size := m.elem.Bytes()
	f := updateOf(m.op, m.elem)
	for at := 0; at < len(dst); at += size {
		var old, b [8]byte
		copy(old[:], dst[at:][:size])
		copy(b[:], data[at:][:size])
		binary.LittleEndian.PutUint64(old[:], f(binary.LittleEndian.Uint64(old[:]), binary.LittleEndian.Uint64(b[:]), 0,
			false))
		copy(dst[at:][:size], old[:])
	}
}

func (m *bulkMove) emitShared(id uint64, kind AccessKind, at *sharedLocation) {
	e := m.event(id, kind)
	e.Space, e.Rank = ptx.Shared, at.block.rank
	if m.pitch == m.row { // contiguous, with or without a swizzle
		e.Spans = []Span{{at.off, m.bytes}}
	} else {
		m.eachPiece(at.off, func(addr uint64, _, n int) { e.Spans = append(e.Spans, Span{addr, n}) })
	}
	if kind == AsyncWrite {
		e.move, e.shared = m, at.off
	}
	if kind == AsyncWrite && m.mbarrier != nil {
		e.Mbarrier, e.HasMbarrier = at.mbarrier, true
	}
	m.warp.emitBulk(e)
}

func (m *bulkMove) emitGlobal(id uint64, kind AccessKind) {
	if len(m.global) == 0 || len(m.warp.block.bulk) == 0 && !m.warp.tracks {
		return
	}
	e := m.event(id, kind)
	e.Space, e.Alloc = ptx.Global, m.alloc
	for _, s := range m.global {
		e.Spans = append(e.Spans, Span{s.addr, s.n})
	}
	if kind == AsyncWrite && m.source != nil {
		e.move, e.shared = m, m.source.off
	}
	m.warp.emitBulk(e)
}

func (m *bulkMove) event(id uint64, kind AccessKind) *Bulk {
	return &Bulk{Origin: m.warp.origin(m.in), Kind: kind, Copy: id, Atomic: m.op != "" && kind == AsyncWrite}
}

func (w *warp) emitBulk(e *Bulk) {
	if w.tracks {
		w.trackBulk(e)
	}
	w.block.emitBulk(e)
}

func (b *block) emitBulk(e *Bulk) {
	for _, f := range b.bulk {
		f(e)
	}
}

// roundTF32 rounds the bits of a float32 to the 10 fraction bits of tf32, ties to even.
func roundTF32(bits uint32) uint32 {
	const drop = 13
	switch magnitude := bits &^ (1 << 31); {
	case magnitude > 0x7f800000: // NaN
		bits = 0x7fffffff
	case magnitude < 0x7f800000:
		bits += 1<<(drop-1) - 1 + bits>>drop&1
	}
	return bits &^ (1<<drop - 1)
}
