package emu

import (
	"fmt"
	"slices"
	"strings"

	"tilework/ptx"
)

// fillKind is the kind of value that a call stores in a slot of its frame.
type fillKind uint8

const (
	fillVariable fillKind = iota // address of the global or constant variable index, plus add
	fillShared                   // address of the shared variable index, plus add
	fillLocal                    // offset of the frame's local memory, plus add
	fillSpecial                  // value of the special register index
)

// fill is a value that is constant during a call of a function.
type fill struct {
	offset uint32
	size   uint8 // bytes per lane; 0 for a predicate
	kind   fillKind
	index  int32
	add    uint64
}

// specialRegister is a special register that is constant during a call.
type specialRegister struct {
	name  string
	size  uint8
	value func(w *warp, lane int) uint64
}

// specialRegisters lists the constant special registers. readClock reads the clocks. All others are
// not supported.
var specialRegisters = slices.Concat([]specialRegister{
	{"%tid.x", 4, func(w *warp, lane int) uint64 { return uint64(w.thread(lane).X) }},
	{"%tid.y", 4, func(w *warp, lane int) uint64 { return uint64(w.thread(lane).Y) }},
	{"%tid.z", 4, func(w *warp, lane int) uint64 { return uint64(w.thread(lane).Z) }},
	{"%ntid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Block.X) }},
	{"%ntid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Block.Y) }},
	{"%ntid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Block.Z) }},
	{"%ctaid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.index.X) }},
	{"%ctaid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.index.Y) }},
	{"%ctaid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.index.Z) }},
	{"%nctaid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Grid.X) }},
	{"%nctaid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Grid.Y) }},
	{"%nctaid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Grid.Z) }},
	{"%tid.w", 4, zero}, {"%ntid.w", 4, one}, {"%ctaid.w", 4, zero}, {"%nctaid.w", 4, one},
	{"%laneid", 4, func(_ *warp, lane int) uint64 { return uint64(lane) }},
	{"%warpid", 4, func(w *warp, _ int) uint64 { return uint64(w.index) }},
	{"%nwarpid", 4, func(w *warp, _ int) uint64 { return uint64(len(w.block.warps)) }},
	{"WARP_SZ", 4, func(*warp, int) uint64 { return lanes }},
	{"%smid", 4, zero}, {"%nsmid", 4, one}, {"%gridid", 8, zero},
	{"%lanemask_eq", 4, func(_ *warp, lane int) uint64 { return 1 << lane }},
	{"%lanemask_lt", 4, func(_ *warp, lane int) uint64 { return 1<<lane - 1 }},
	{"%lanemask_le", 4, func(_ *warp, lane int) uint64 { return 2<<lane - 1 }},
	{"%lanemask_gt", 4, func(_ *warp, lane int) uint64 { return full &^ (2<<lane - 1) }},
	{"%lanemask_ge", 4, func(_ *warp, lane int) uint64 { return full &^ (1<<lane - 1) }},
	{"%total_smem_size", 4, func(w *warp, _ int) uint64 { return w.block.shared.size - w.block.run.reserved }},
	{"%aggr_smem_size", 4, func(w *warp, _ int) uint64 { return uint64(w.block.shared.size) }},
	{"%dynamic_smem_size", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.launch.Shared) }},
	{"%is_explicit_cluster", 0, func(w *warp, _ int) uint64 { return choose[uint64](w.block.run.explicit, 1, 0) }},
	{"%clusterid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.cluster.gridIndex().X) }},
	{"%clusterid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.cluster.gridIndex().Y) }},
	{"%clusterid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.cluster.gridIndex().Z) }},
	{"%nclusterid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.clusterGrid().X) }},
	{"%nclusterid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.clusterGrid().Y) }},
	{"%nclusterid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.clusterGrid().Z) }},
	{"%cluster_ctaid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.indexInCluster().X) }},
	{"%cluster_ctaid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.indexInCluster().Y) }},
	{"%cluster_ctaid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.indexInCluster().Z) }},
	{"%cluster_nctaid.x", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.cluster.X) }},
	{"%cluster_nctaid.y", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.cluster.Y) }},
	{"%cluster_nctaid.z", 4, func(w *warp, _ int) uint64 { return uint64(w.block.run.cluster.Z) }},
	{"%cluster_ctarank", 4, func(w *warp, _ int) uint64 { return uint64(w.block.rank) }},
	{"%cluster_nctarank", 4, func(w *warp, _ int) uint64 { return uint64(len(w.block.cluster.blocks)) }},
}, environmentRegisters(), reservedRegisters())

// reservedShared is the size in bytes of the shared memory that the system reserves for itself, and
// for cooperative groups, in each block. Here it follows the block's own shared memory, if the
// kernel reads its address.
const reservedShared = 1 << 10

// reservedPrefix is the start of the names of the special registers with addresses in reserved
// shared memory.
const reservedPrefix = "%reserved_smem_offset_"

// environmentPrefix is the start of the names of the special registers that the driver sets.
const environmentPrefix = "%envreg"

// environmentRegisters returns the registers that the driver sets.
func environmentRegisters() (all []specialRegister) {
	for n := range 32 {
		value := zero
		switch n { // the address of the grid barrier, as the driver sets it for cooperative launches
		case 1:
			value = func(w *warp, _ int) uint64 { return w.block.run.gridBarrier >> 32 }
		case 2:
			value = func(w *warp, _ int) uint64 { return w.block.run.gridBarrier & (1<<32 - 1) }
		}
		all = append(all, specialRegister{fmt.Sprintf("%s%d", environmentPrefix, n), 4, value})
	}
	return all
}

// reservedRegisters returns the registers with addresses in reserved shared memory.
func reservedRegisters() (all []specialRegister) {
	for _, r := range []struct {
		name   string
		offset uint64
	}{{"begin", 0}, {"0", 0}, {"1", reservedShared / 2}, {"end", reservedShared}, {"cap", reservedShared}} {
		all = append(all, specialRegister{reservedPrefix + r.name, 4, func(w *warp, _ int) uint64 {
			return w.block.shared.base + w.block.shared.size - reservedShared + r.offset
		}})
	}
	return all
}

// readsSpecial reports whether f or a function that it calls reads a special register whose name
// starts with prefix.
func (f *function) readsSpecial(prefix string) bool {
	reads := false
	f.walkCalls(func(g *function) {
		for _, v := range g.fills {
			reads = reads || v.kind == fillSpecial && strings.HasPrefix(specialRegisters[v.index].name, prefix)
		}
	})
	return reads
}

func zero(*warp, int) uint64 { return 0 }
func one(*warp, int) uint64  { return 1 }

// clocks maps the special registers that count time to their sizes in bytes.
var clocks = map[string]int{
	"%clock": 4, "%clock64": 8, "%clock_hi": 4,
	"%globaltimer": 8, "%globaltimer_lo": 4, "%globaltimer_hi": 4,
}

// special returns the slot of a special register.
func (d *decoder) special(n *ptx.Name) uint32 {
	name := ptx.Format(n)
	for k := range specialRegisters {
		if s := &specialRegisters[k]; s.name == name {
			return d.fill(fill{kind: fillSpecial, size: s.size, index: int32(k)})
		}
	}
	d.fail(unsupported(d.i.Pos, "special register %s in this instruction", name))
	return always
}

func broadcast[T any](d *[lanes]T, v T) {
	for i := range d {
		d[i] = v
	}
}
