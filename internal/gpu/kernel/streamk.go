package kernel

import (
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Stream-K is for a C with a few more tiles than a whole number of rounds. Persistent blocks divide
// the steps of the last tiles evenly, so that all end at the same time. A tile of two blocks is not
// a sum of two parts: one block multiplies its first steps and stores the accumulators, and the
// next block begins with them. So the bits are those of an undivided K.

// streamParams lists the parameters of stream-K.
var streamParams = []Param[Args]{
	{Name: "handed", Type: typeSum, Pointer: true, When: streamsK,
		Value: func(a *Args) uint64 { return uint64(a.Handed) }},
	{Name: "flags", Type: TypeU32, Pointer: true, When: streamsK,
		Value: func(a *Args) uint64 { return uint64(a.Flags) }},
}

func streamsK(c *Config) bool { return c.Tile.StreamK }

// maxWarps is the number of warps of the largest block.
const maxWarps = 32

// FlagBytes returns the bytes of the flags of stream-K on a device, one for each warp of a block on
// each SM. All are zero before and after a launch.
func FlagBytes(d *device.Info) int { return ptx.U32.Bytes() * d.SMs * maxWarps }

// HandedTiles returns the number of tiles whose accumulators the blocks of a launch can hand over
// with stream-K.
func (k *Kernel) HandedTiles(c *Config, p *gemm.Problem, d *device.Info) int {
	grid, _, err := k.grid(c, p, d)
	if err != nil { // Launch returns it
		return 0
	}
	return grid.X
}

// Handed returns the pointer to the accumulators that blocks hand over, and that to the flags.
func (g *Writer) Handed() (sums, flags build.Ptr) { return g.handed, g.flags }
