package device

import (
	"encoding/binary"
	"math"

	"tilework/ptx"
)

// Params collects a kernel's arguments in the order of its parameters: each stands
// at the next multiple of its own size, or of its alignment. The zero Params is empty.
type Params struct{ buf []byte }

// Bytes is the arguments as [Launch] takes them.
func (p *Params) Bytes() []byte { return p.buf }

// TensorMap adds a tensor map that the device has encoded, a .align 64 .b8[128].
func (p *Params) TensorMap(m [ptx.TensorMapBytes]byte) {
	p.align(ptx.TensorMapAlign)
	p.buf = append(p.buf, m[:]...)
}

// U32 adds a .u32, .s32 or .b32.
func (p *Params) U32(v uint32) {
	p.align(4)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, v)
}

// U64 adds a .u64, .s64 or .b64.
func (p *Params) U64(v uint64) {
	p.align(8)
	p.buf = binary.LittleEndian.AppendUint64(p.buf, v)
}

// F32 adds a .f32.
func (p *Params) F32(v float32) { p.U32(math.Float32bits(v)) }

// F64 adds a .f64.
func (p *Params) F64(v float64) { p.U64(math.Float64bits(v)) }

// Ptr adds a pointer.
func (p *Params) Ptr(v Ptr) { p.U64(uint64(v)) }

// usualBytes is room for the arguments of most kernels.
const usualBytes = 128

func (p *Params) align(n int) {
	if p.buf == nil {
		p.buf = make([]byte, 0, usualBytes)
	}
	for len(p.buf)%n != 0 {
		p.buf = append(p.buf, 0)
	}
}
