package cuda

import (
	"slices"
	"unsafe"

	"tilework/ptx"
)

// place is where a parameter stands: as a launch has it, and as the driver does.
type place struct{ here, there, size int }

// findPlaces finds where the parameters of an entry with tensor maps stand. The driver
// aligns a map to 64 bytes of a memory that begins between two multiples of that, and so
// never puts it where the text's own layout has it.
func (k *kernel) findPlaces(f *ptx.Func) error {
	if !slices.ContainsFunc(f.Params, func(v *ptx.Var) bool { return v.Alignment() >= ptx.TensorMapAlign }) {
		return nil
	}
	end := 0
	for i, v := range f.Params {
		var offset, size uintptr
		err := k.module.gpu.call(cuFuncGetParamInfo, k.handle, uintptr(i), uintptr(unsafe.Pointer(&offset)), uintptr(unsafe.Pointer(&size)))
		if err != nil {
			return err
		}
		here := (end + v.Alignment() - 1) / v.Alignment() * v.Alignment()
		end = here + v.Size()
		k.places = append(k.places, place{here, int(offset), v.Size()})
	}
	return nil
}

// arranged is a launch's arguments where the driver wants them.
func (k *kernel) arranged(params []byte) []byte {
	if k.places == nil {
		return params
	}
	last := k.places[len(k.places)-1]
	there := make([]byte, last.there+last.size)
	for _, p := range k.places {
		copy(there[p.there:][:p.size], params[p.here:])
	}
	return there
}
