package cuda

import (
	"slices"
	"unsafe"

	"tilework/ptx"
)

// paramMove gives the offsets of a parameter in the PTX layout and in the driver's layout.
type paramMove struct{ from, to, size int }

// findParamLayout queries the driver's offsets of f's parameters if f takes tensor maps. The driver
// aligns a tensor map to 64 bytes in a buffer that itself starts between two multiples of 64, so
// the driver's offset of a tensor map always differs from the PTX layout.
func (k *kernel) findParamLayout(f *ptx.Func) error {
	if !slices.ContainsFunc(f.Params, func(v *ptx.Var) bool { return v.Alignment() >= ptx.TensorMapAlign }) {
		return nil
	}
	end := 0
	for i, v := range f.Params {
		var offset, size uintptr
		err := k.module.gpu.call(cuFuncGetParamInfo, k.handle, uintptr(i), uintptr(unsafe.Pointer(&offset)),
			uintptr(unsafe.Pointer(&size)))
		if err != nil {
			return err
		}
		from := (end + v.Alignment() - 1) / v.Alignment() * v.Alignment()
		end = from + v.Size()
		k.moves = append(k.moves, paramMove{from, int(offset), v.Size()})
	}
	return nil
}

// driverParams converts arguments from the PTX layout to the driver's layout, in the memory of
// buffer if it is large enough.
func (k *kernel) driverParams(buffer, params []byte) []byte {
	last := k.moves[len(k.moves)-1]
	n := last.to + last.size
	moved := slices.Grow(buffer[:0], n)[:n]
	clear(moved) // the gaps between arguments
	for _, m := range k.moves {
		copy(moved[m.to:][:m.size], params[m.from:])
	}
	return moved
}
