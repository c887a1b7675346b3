package device

import (
	"encoding/binary"
	"math"

	"tilework/ptx"
)

// Params builds the parameter buffer of a kernel launch. Arguments are added in the order of the
// kernel's parameters and are padded to their natural alignment. The zero Params is empty.
type Params struct{ buf []byte }

// Bytes returns the buffer, for [Launch].Params.
func (p *Params) Bytes() []byte { return p.buf }

// TensorMap appends a tensor map from [Device].EncodeTensorMap, a .align 64 .b8[128].
func (p *Params) TensorMap(m [ptx.TensorMapBytes]byte) {
	p.align(ptx.TensorMapAlign)
	p.buf = append(p.buf, m[:]...)
}

// U32 appends a .u32, .s32 or .b32.
func (p *Params) U32(v uint32) {
	p.align(4)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, v)
}

// U64 appends a .u64, .s64 or .b64.
func (p *Params) U64(v uint64) {
	p.align(8)
	p.buf = binary.LittleEndian.AppendUint64(p.buf, v)
}

// F32 appends a .f32.
func (p *Params) F32(v float32) { p.U32(math.Float32bits(v)) }

// F64 appends a .f64.
func (p *Params) F64(v float64) { p.U64(math.Float64bits(v)) }

// Ptr appends a pointer.
func (p *Params) Ptr(v Ptr) { p.U64(uint64(v)) }

// initialCapacity is the initial capacity of a Params in bytes. It suffices for most kernels.
const initialCapacity = 128

// align pads the buffer to a multiple of n bytes.
func (p *Params) align(n int) {
	if p.buf == nil {
		p.buf = make([]byte, 0, initialCapacity)
	}
	for len(p.buf)%n != 0 {
		p.buf = append(p.buf, 0)
	}
}
