package tilework

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// DeviceFunc is a function that GPU kernels apply to every element of a result, after all other
// options and before the result is rounded; see [NewDeviceFunc].
type DeviceFunc struct{ f *kernel.Function }

// DeviceElement is the argument of a [DeviceFunc]: an element of the result.
type DeviceElement struct {
	Value    build.Reg // of the type of α and β: F32, F64 or S32
	Row, Col build.Reg // from 0, inside of C; integers of 32 or 64 bits
	Data     build.Ptr // the numbers given to [WithDeviceFunc], of Value's type
}

// NewDeviceFunc returns the function that f writes with the builder of tilework/ptx/build. f
// returns a value of the type of the element's. A product that needs the function compiles it into
// its kernel, once for all functions with the same code; put values that differ between products
// into the data of [WithDeviceFunc].
//
//	f, err := tilework.NewDeviceFunc(func(k *build.Kernel, e tilework.DeviceElement) build.Reg {
//		return k.Mul(e.Value, e.Data.At(e.Col).Load())
//	})
//
// f must not write to memory or wait for other threads. Its code is checked like every kernel's.
// The error is ErrUnsupported.
func NewDeviceFunc(f func(k *build.Kernel, e DeviceElement) build.Reg) (*DeviceFunc, error) {
	if f == nil {
		return nil, fmt.Errorf("%w: nil as a device function", ErrUnsupported)
	}
	own, err := kernel.NewFunction(func(k *build.Kernel, e kernel.Element) build.Reg {
		return f(k, DeviceElement{Value: e.Value, Row: e.Row, Col: e.Col, Data: e.Data})
	})
	if err != nil {
		return nil, err
	}
	return &DeviceFunc{own}, nil
}

// WithDeviceFunc applies f to every element on a GPU. On the CPU, which has [WithTileFunc], and
// with [WithVerify] it is ErrUnsupported. data is a 1×n matrix of numbers for f, of the type of α
// and β, or nil if f reads none.
func WithDeviceFunc[T dtype.Element](f *DeviceFunc, data Operand[T]) Option {
	if data == nil {
		data = Vector[T]()
	}
	return func(c *config) {
		if f == nil || f.f == nil {
			c.Fail(fmt.Errorf("%w: the zero DeviceFunc: make one with NewDeviceFunc", ErrUnsupported))
			return
		}
		c.Epilogue.Function = f.f
		if f.f.Reads() {
			give(c, gemm.FunctionData, data)
		}
	}
}
