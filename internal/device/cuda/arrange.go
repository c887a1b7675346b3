package cuda

import (
	"unsafe"

	"tilework/ptx"
)

// place is where a parameter stands: as a launch has it, and as the driver does.
type place struct{ here, there, size int }

// arrange moves a launch's arguments to where the driver wants them. It aligns tensor maps
// to 64 bytes of a memory that begins between two multiples of that, and so never puts
// one where the text's own layout has it: a launch without tensor maps is as long as
// the driver says.
func (k *kernel) arrange(params *[]byte) error {
	if k.params < 0 || len(*params) == k.params {
		return nil
	}
	places, err := k.places()
	if err != nil || len(places) == 0 {
		return err
	}
	last := places[len(places)-1]
	if len(*params) != last.here+last.size {
		return nil // it is of another length in any case, which the launch is refused for
	}
	there := make([]byte, last.there+last.size)
	for _, p := range places {
		copy(there[p.there:][:p.size], (*params)[p.here:])
	}
	*params = there
	return nil
}

// places are those of the kernel's parameters, if there is a tensor map among them.
func (k *kernel) places() (all []place, err error) {
	g, end, maps := k.module.gpu, 0, 0
	for i := uintptr(0); ; i++ {
		var offset, size uintptr
		answer := g.driver.result(cuFuncGetParamInfo, k.handle, i, uintptr(unsafe.Pointer(&offset)), uintptr(unsafe.Pointer(&size)))
		if answer == invalidValue { // there are no more
			break
		}
		if err := g.check(cuFuncGetParamInfo, answer); err != nil {
			return nil, err
		}
		align := int(size)
		if size == ptx.TensorMapBytes {
			align = ptx.TensorMapAlign
			maps++
		}
		here := (end + align - 1) / align * align
		all = append(all, place{here, int(offset), int(size)})
		end = here + int(size)
	}
	if maps == 0 {
		return nil, nil
	}
	return all, nil
}
