package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"tilework/ptx"
)

// moduleData holds the variables of a program that is loaded in a memory.
type moduleData struct {
	allocs []*Allocation // by the variable's index; nil for shared variables
}

// module returns the variables of p in m. The first call for p allocates and initializes them.
func (m *Memory) module(p *Program) (*moduleData, error) {
	m.mu.Lock()
	data := m.modules[p]
	m.mu.Unlock()
	if data != nil {
		return data, nil
	}
	data, err := m.variables(p)
	if err != nil {
		return nil, err
	}
	for n, v := range p.variables {
		if v.Init != nil {
			data.initial(p, v, v.Init, data.allocs[n].bytes(), 0)
		}
	}
	for n, v := range p.variables {
		if v.Space == ptx.Const {
			data.allocs[n].ReadOnly = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if first := m.modules[p]; first != nil { // another goroutine was faster
		return first, nil
	}
	m.modules[p] = data
	return data, nil
}

// variables allocates the variables of p.
func (m *Memory) variables(p *Program) (*moduleData, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := &moduleData{allocs: make([]*Allocation, len(p.variables))}
	var all []*Allocation
	total := 0
	for _, v := range p.variables {
		switch {
		case v.Space == ptx.Shared:
		case v.Linkage == "extern":
			return nil, &ptx.Error{Pos: v.Pos, Kind: ptx.ErrUnsupported, Msg: fmt.Sprintf("%s is defined in another module",
				v.Name)}
		case int64(v.Size()) > m.limit-m.used-int64(total):
			return nil, fmt.Errorf("%v: variable %s: %s: %d of %d bytes are in use: %w", v.Pos, v.Name,
				bytesText(uint64(v.Size())), m.used+int64(total), m.limit, ErrOutOfMemory)
		default:
			total += v.Size()
		}
	}
	if err := m.check(total); err != nil {
		return nil, fmt.Errorf("variables of the module: %w", err)
	}
	for n, v := range p.variables {
		if v.Space == ptx.Shared {
			continue
		}
		a := m.alloc(v.Size(), v.Name)
		clear(a.bytes())
		a.mark(0, a.Size)
		data.allocs[n] = a
		all = append(all, a)
	}
	m.add(all...)
	return data, nil
}

// Global returns the address and size of a variable in .global or .const of p, for launches with
// this memory. The error wraps ErrAddress if there is no such variable, or ErrOutOfMemory.
func (m *Memory) Global(p *Program, name string) (addr uint64, size int, err error) {
	v := p.byName[name]
	if v == nil || v.Space == ptx.Shared {
		return 0, 0, fmt.Errorf("no variable %s in .global or .const: %w", name, ErrAddress)
	}
	data, err := m.module(p)
	if err != nil {
		return 0, 0, err
	}
	a := data.allocs[v.index]
	return a.Base, a.Size, nil
}

// initial writes the initial value n to the start of b. dims is the number of array dimensions
// around n.
func (data *moduleData) initial(p *Program, v *variable, n *ptx.Init, b []byte, dims int) {
	size := v.Type.Bytes()
	if n.Value == nil {
		stride := size
		for _, d := range v.Dims[min(dims+1, len(v.Dims)):] {
			stride *= d
		}
		if v.Vec > 0 && dims < len(v.Dims) {
			stride *= v.Vec
		}
		for k, e := range n.List {
			data.initial(p, v, e, b[k*stride:], dims+1)
		}
		return
	}
	var bits uint64
	switch value := n.Value.(type) {
	case *ptx.Imm:
		bits = immediate(value, v.Type)
	case *ptx.Name:
		bits = data.symbol(p, value, 0)
	case *ptx.Sum:
		bits = data.symbol(p, value.Base, value.Offset)
	}
	if n.Mask != 0 { // mask 0xFF00 selects bits 8 to 15
		shift := 0
		for n.Mask>>shift&1 == 0 {
			shift++
		}
		bits = bits & n.Mask >> shift
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], bits)
	copy(b[:size], word[:])
}

// symbol returns the address of a variable or a function.
func (data *moduleData) symbol(p *Program, n *ptx.Name, offset int64) uint64 {
	if v := p.byName[n.Name]; v != nil && data.allocs[v.index] != nil {
		return data.allocs[v.index].Base + uint64(offset)
	}
	if f := p.functions[n.Name]; f != nil {
		return f.address + uint64(offset)
	}
	return 0
}

// ErrParams is wrapped by errors of [Program.Pack].
var ErrParams = errors.New("invalid kernel parameters")

// ArgumentError is the error of [Program.Pack] for an argument of the wrong type. It wraps
// [ErrParams].
type ArgumentError struct {
	Entry string
	Index int // of the argument, counted from 0
	Arg   any
	Param *ptx.Var
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s: argument %d is a %T: want %s for %s: %v", e.Entry, e.Index, e.Arg, paramText(e.Param),
		e.Param.Name, ErrParams)
}

func (e *ArgumentError) Unwrap() error { return ErrParams }

// Params returns the parameters of a kernel in order. The error wraps ErrLaunch if there is no such
// kernel or if it is refused.
func (p *Program) Params(entry string) ([]*ptx.Var, error) {
	f, err := p.kernel(entry)
	if err != nil {
		return nil, err
	}
	return f.Params, nil
}

// Pack encodes the arguments of a kernel for [Launch].Params. The accepted Go types depend on the
// type of the parameter:
//   - integer: a Go integer of the same size (uint64 for a device address)
//   - floating point: a float32, a float64, or a uint16 with the bits of an f16
//   - untyped: a Go integer or float of the same size
//   - array: a []byte of the same length
//
// The error is an [ArgumentError] for a wrong type. It wraps ErrParams for a wrong number of
// arguments, and ErrLaunch if there is no such kernel or if it is refused.
func (p *Program) Pack(entry string, args ...any) ([]byte, error) {
	params, err := p.Params(entry)
	if err != nil {
		return nil, err
	}
	if len(args) != len(params) {
		want := make([]string, len(params))
		for k, v := range params {
			want[k] = v.Name + " (" + strings.TrimPrefix(paramText(v), "a ") + ")"
		}
		return nil, fmt.Errorf("%s: %d arguments: want %d: %s: %w", entry, len(args), len(params), strings.Join(want, ", "),
			ErrParams)
	}
	f := p.functions[entry]
	buf := make([]byte, f.paramSize)
	for k, v := range params {
		b := buf[f.layout[v]:][:v.Size()]
		if !packArgument(b, v, args[k]) {
			return nil, &ArgumentError{entry, k, args[k], v}
		}
	}
	return buf, nil
}

func paramText(v *ptx.Var) string {
	if len(v.Dims) > 0 || v.Vec > 0 {
		return bytesText(uint64(v.Size()))
	}
	return fmt.Sprintf("a .%v", v.Type)
}

func packArgument(b []byte, v *ptx.Var, arg any) bool {
	if len(v.Dims) > 0 || v.Vec > 0 {
		bytes, ok := arg.([]byte)
		return ok && copy(b, bytes) == len(bytes) && len(bytes) == len(b)
	}
	x := reflect.ValueOf(arg)
	class := v.Type.Class()
	var bits uint64
	switch {
	case !x.IsValid():
		return false
	case x.CanInt():
		bits = uint64(x.Int())
	case x.CanUint():
		bits = x.Uint()
	case x.Kind() == reflect.Float32:
		bits = uint64(math.Float32bits(float32(x.Float())))
	case x.Kind() == reflect.Float64:
		bits = math.Float64bits(x.Float())
	default:
		return false
	}
	floating := x.CanFloat() || x.Kind() == reflect.Uint16 && class == ptx.Float
	if int(x.Type().Size()) != len(b) || class != ptx.Bits && floating != (class == ptx.Float) {
		return false
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], bits)
	copy(b, word[:])
	return true
}
