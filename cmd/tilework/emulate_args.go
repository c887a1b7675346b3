package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
	"tilework/matfile"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// kernelArg is an argument of the kernel. If it is a pointer or a tensor map, it describes the
// matrix too.
type kernelArg struct {
	value  any
	at     uint64 // address of the matrix
	layout gemm.Layout
	array  *matio.Array // instead of layout for other element types and numbers of dimensions
	file   string       // the file of the matrix or array
	output bool         // it is written to the file at the end
	fields []kernelArg  // of a structure, if they have files
}

// exampleArgs returns an argument for each parameter. It takes 64-bit integers for pointers, and
// the last of several for the output.
func exampleArgs(params []*ptx.Var) []string {
	var pointers []int
	args := make([]string, len(params))
	for i, v := range params {
		args[i] = paramForms(v).example
		if paramForms(v).pointer {
			args[i] = fmt.Sprintf("%c.npy", 'a'+len(pointers)%26)
			pointers = append(pointers, i)
		}
	}
	if n := len(pointers); n > 1 {
		args[pointers[n-1]] = "out:f32:64x64:out.npy"
	}
	return args
}

// isArray reports whether v is an array, as structures and tensor maps are, or a vector.
func isArray(v *ptx.Var) bool { return len(v.Dims) > 0 || v.Vec > 0 }

// argForms describes the --arg that a parameter takes.
type argForms struct {
	pointer       bool // the parameter can be a pointer
	want, example string
}

func paramForms(v *ptx.Var) argForms {
	switch class, bits := v.Type.Class(), 8*v.Type.Bytes(); {
	case isArray(v) && v.Size() != ptx.TensorMapBytes:
		return argForms{false, fmt.Sprintf("struct:FIELD,FIELD,… of %d bytes", v.Size()), "struct:u32:64,f32:1.5,a.npy"}
	case isArray(v):
		return argForms{false, "tensor:BOX:SWIZZLE:ARG", "tensor:64x64:0:a.npy"}
	case class == ptx.Float && bits >= 32:
		kind := fmt.Sprintf("f%d", bits)
		return argForms{false, kind + ":NUMBER", kind + ":1.5"}
	case class == ptx.Float: // as bits
		return argForms{false, "u16:BITS", "u16:0x3c00"}
	case bits == 64:
		return argForms{true, "a file, out:TYPE:MxN:FILE or u64:NUMBER", "u64:64"}
	default:
		kind := fmt.Sprintf("u%d", bits)
		return argForms{false, fmt.Sprintf("%s:NUMBER or s%d:NUMBER", kind, bits), kind + ":64"}
	}
}

// parseArgs parses the arguments of a launch, and adds their files to uses.
func (f *emulateFlags) parseArgs(
	ctx context.Context, mem *emu.Memory, l *kernelLaunch, uses *fileUses,
) ([]kernelArg, error) {
	var args []kernelArg
	for i, text := range l.Args {
		a, err := f.parseArg(ctx, mem, text)
		if err != nil {
			return nil, l.wrong("arg", fmt.Errorf("%s (argument %d): %w", text, i+1, err))
		}
		switch other := uses.add(&a, fileUse{launch: l, arg: i}); {
		case other == nil:
		case other.launch == l:
			return nil, l.wrong("arg", fmt.Errorf("%s (argument %d): argument %d has the same file, want another",
				text, i+1, other.arg+1))
		default:
			return nil, l.wrong("arg", fmt.Errorf("%s (argument %d): memory or another launch of the script has the "+
				"same file: want both to use the same memory, as memory:NAME", text, i+1))
		}
		args = append(args, a)
	}
	return args, nil
}

// scalarType is the type of a numeric argument.
type scalarType struct {
	kind byte // u, s or f
	bits int
}

// values describes the numbers of the type.
func (t scalarType) values() string {
	switch t.kind {
	case 'u':
		return fmt.Sprintf("an integer from 0 to %d", uint64(math.MaxUint64)>>(64-t.bits))
	case 's':
		return fmt.Sprintf("an integer from %d to %d", int64(math.MinInt64)>>(64-t.bits), int64(math.MaxInt64)>>(64-t.bits))
	}
	return "a number"
}

// scalarTypes are the types of numeric arguments by name.
var scalarTypes = map[string]scalarType{
	"u8": {'u', 8}, "u16": {'u', 16}, "u32": {'u', 32}, "u64": {'u', 64},
	"s8": {'s', 8}, "s16": {'s', 16}, "s32": {'s', 32}, "s64": {'s', 64},
	"f32": {'f', 32}, "f64": {'f', 64},
}

func (f *emulateFlags) parseArg(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "out":
		return f.parseOut(mem, rest)
	case "inout":
		return f.parseInOut(ctx, mem, rest)
	case "struct":
		return f.parseStruct(ctx, mem, rest)
	case "tensor":
		return f.parseTensor(ctx, mem, rest)
	case "scratch":
		return parseScratch(mem, rest)
	case "memory":
		return f.namedMemory(rest)
	}
	if _, ok := scalarTypes[kind]; ok {
		v, err := parseScalar(kind, rest)
		return kernelArg{value: v}, err
	}
	return f.readArg(ctx, mem, text)
}

// readArg reads a matrix or an array from a file. Arrays keep their element type.
func (f *emulateFlags) readArg(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	if array, err := matio.ReadArray(ctx, text, matio.ReadOptions{Room: host.CheckMemory}); err == nil {
		at, err := mem.Alloc(len(array.Data))
		if err != nil {
			return kernelArg{}, err
		}
		a := kernelArg{value: at, at: at, array: array, file: text}
		if t, ok := array.Matrix(); ok {
			a.layout, a.array = gemm.Dense(t, array.Shape[0], array.Shape[1]), nil
		}
		return a, mem.Write(at, array.Data)
	}
	m, err := matfile.ReadAny(ctx, text, dtype.Invalid, &matfile.ReadOptions{Dims: matfile.OnlyMatrix})
	if errors.Is(err, fs.ErrNotExist) && filepath.Ext(text) == "" {
		return kernelArg{}, errors.New("neither a file nor a number with a type: " +
			"want A.npy, out:TYPE:MxN:FILE, inout:A.npy:FILE, scratch:TYPE:MxN, struct:FIELD,FIELD, " +
			"tensor:BOX:SWIZZLE:ARG or TYPE:NUMBER, such as u32:64")
	}
	if err != nil {
		return kernelArg{}, err
	}
	if m, err = m.RowMajor(ctx); err != nil {
		return kernelArg{}, err
	}
	at, err := mem.Alloc(len(m.Data))
	if err != nil {
		return kernelArg{}, err
	}
	return kernelArg{value: at, at: at, layout: gemm.Dense(m.Type, m.Rows, m.Cols), file: text}, mem.Write(at, m.Data)
}

// parseOut parses an output, such as "f32:64x64:C.npy", and allocates its memory.
func (f *emulateFlags) parseOut(mem *emu.Memory, text string) (kernelArg, error) {
	typeName, rest, _ := strings.Cut(text, ":")
	shape, file, ok := strings.Cut(rest, ":")
	if !ok || file == "" {
		return kernelArg{}, errors.New("want out:TYPE:MxN:FILE, such as out:f32:64x64:c.npy")
	}
	t, err := dtype.Parse(typeName)
	npy, isArray := matio.Spelling(typeName)
	isMatrix := err == nil && len(strings.FieldsFunc(shape, func(r rune) bool { return r == 'x' || r == ',' })) == 2
	if isArray && filepath.Ext(file) == ".npy" && !isMatrix {
		return f.parseOutArray(mem, npy, shape, file)
	}
	if err != nil {
		return kernelArg{}, err
	}
	sides, err := matrixDims.parse(shape)
	if err != nil {
		return kernelArg{}, err
	}
	l := gemm.Dense(t, sides[0], sides[1])
	if err := l.Check("the output"); err != nil {
		return kernelArg{}, err
	}
	if err := host.CheckMemory(l.Bytes(), "the output"); err != nil {
		return kernelArg{}, err
	}
	if err := matio.CheckOutput(file, t, f.force); err != nil {
		return kernelArg{}, err
	}
	at, err := mem.Alloc(l.Bytes())
	return kernelArg{value: at, at: at, layout: l, file: file, output: true}, err
}

// parseOutArray parses an output of one or more dimensions in an .npy file.
func (f *emulateFlags) parseOutArray(mem *emu.Memory, npy, shape, file string) (kernelArg, error) {
	a, err := newArray(mem, npy, shape)
	if err != nil {
		return kernelArg{}, err
	}
	a.file, a.output = file, true
	return a, matio.CheckOutput(file, dtype.Invalid, f.force)
}

// newArray allocates an array of one or more dimensions.
func newArray(mem *emu.Memory, npy, shape string) (kernelArg, error) {
	sides, err := arrayDims.parse(shape)
	if err != nil {
		return kernelArg{}, err
	}
	array := &matio.Array{Type: npy, Shape: sides}
	size := array.Size()
	for _, side := range sides {
		if size > math.MaxInt/side {
			return kernelArg{}, fmt.Errorf("%s: the array is too large", shape)
		}
		size *= side
	}
	if err := host.CheckMemory(size, "the array"); err != nil {
		return kernelArg{}, err
	}
	at, err := mem.Alloc(size)
	array.Data = make([]byte, size)
	return kernelArg{value: at, at: at, array: array}, err
}

// parseScratch allocates memory that no file has, such as "f32:1000".
func parseScratch(mem *emu.Memory, text string) (kernelArg, error) {
	typeName, shape, ok := strings.Cut(text, ":")
	npy, isArray := matio.Spelling(typeName)
	if !ok || !isArray {
		return kernelArg{}, fmt.Errorf("want scratch:TYPE:SIZE, such as scratch:f32:1000, with one of the types %s",
			strings.Join(matio.SpelledNames(), ", "))
	}
	return newArray(mem, npy, shape)
}

// parseInOut parses an argument that is read from one file and written to another, such as
// "A.npy:B.npy".
func (f *emulateFlags) parseInOut(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	from, to, ok := strings.Cut(text, ":")
	if !ok || from == "" || to == "" {
		return kernelArg{}, errors.New("want inout:FILE:FILE, such as inout:a.npy:b.npy")
	}
	a, err := f.readArg(ctx, mem, from)
	if err != nil {
		return kernelArg{}, err
	}
	if a.array != nil && filepath.Ext(to) != ".npy" {
		return kernelArg{}, fmt.Errorf("%s: an array of %d dimensions and type %s: want an .npy file", to,
			len(a.array.Shape), a.array.Type)
	}
	a.file, a.output = to, true
	return a, matio.CheckOutput(to, a.layout.Type, f.force)
}

// maxStruct is the maximum size of a structure in bytes, that of all parameters of a kernel.
const maxStruct = 32764

// parseStruct parses a structure, such as "u32:64,f32:1.5,a.npy". Each field is aligned to its
// size, as in C.
func (f *emulateFlags) parseStruct(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	var s kernelArg
	var uses fileUses
	var data []byte
	most := 1
	for field := range strings.SplitSeq(text, ",") {
		if kind, _, _ := strings.Cut(field, ":"); kind == "struct" || kind == "tensor" {
			return s, fmt.Errorf("field %s: want a number, a file, an out: or an inout: argument", field)
		}
		a, err := f.parseArg(ctx, mem, field)
		if err != nil {
			return s, fmt.Errorf("field %s: %w", field, err)
		}
		if uses.add(&a, fileUse{}) != nil {
			return s, fmt.Errorf("field %s: another field has the same file, want another", field)
		}
		if a.file != "" {
			s.fields = append(s.fields, a)
		}
		size := binary.Size(a.value)
		if len(data) > maxStruct {
			return s, fmt.Errorf("more than %d bytes: want at most those of a kernel's parameters", maxStruct)
		}
		most = max(most, size)
		data = append(data, make([]byte, -len(data)&(size-1))...)
		if data, err = binary.Append(data, binary.LittleEndian, a.value); err != nil {
			return s, err
		}
	}
	s.value = append(data, make([]byte, -len(data)&(most-1))...)
	return s, nil
}

// tensorElements are the element types of matrices that tensor maps support.
var tensorElements = map[dtype.Type]ptx.Type{
	dtype.F64: ptx.F64, dtype.F32: ptx.F32, dtype.F16: ptx.F16, dtype.BF16: ptx.BF16, dtype.I32: ptx.S32, dtype.I8: ptx.U8,
}

// arrayElements are the element types of arrays, by their NumPy spelling, in tensor maps.
var arrayElements = map[string]ptx.Type{
	"u1": ptx.U8, "i1": ptx.U8, "b1": ptx.U8, "u2": ptx.U16, "i2": ptx.U16, "u4": ptx.U32, "i4": ptx.S32, "u8": ptx.U64,
	"i8": ptx.S64, "f2": ptx.F16, "f4": ptx.F32, "f8": ptx.F64,
}

// parseTensor parses a tensor map, such as "64x64:128:A.npy".
func (f *emulateFlags) parseTensor(ctx context.Context, mem *emu.Memory, text string) (kernelArg, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 3 {
		return kernelArg{}, errors.New("want tensor:BOX:SWIZZLE:ARG, such as tensor:64x64:128:a.npy")
	}
	sides, every, stepped := strings.Cut(parts[0], "/")
	sides, corners, im2col := strings.Cut(sides, "@")
	box, err := arrayDims.parse(sides)
	if err != nil {
		return kernelArg{}, err
	}
	var lower, upper []int
	if im2col {
		if lower, upper, err = parseCorners(corners); err != nil {
			return kernelArg{}, err
		}
	}
	var steps []int
	if stepped {
		if steps, err = arrayDims.parse(every); err != nil {
			return kernelArg{}, err
		}
	}
	width, modes, _ := strings.Cut(parts[1], ",")
	swizzle, err := strconv.Atoi(width)
	if err != nil {
		return kernelArg{}, fmt.Errorf("%q is not a swizzle: want 0, 32, 64 or 128", width)
	}
	var nan, sliced bool
	for mode := range strings.SplitSeq(modes, ",") {
		switch mode {
		case "nan":
			nan = true
		case "slices":
			sliced = true
		case "":
		default:
			return kernelArg{}, fmt.Errorf("%q is not a mode of a tensor map: want nan or slices, such as 0,nan", mode)
		}
	}
	a, err := f.parseArg(ctx, mem, parts[2])
	if err != nil {
		return kernelArg{}, err
	}
	shape, element := []int{a.layout.Rows, a.layout.Cols}, tensorElements[a.layout.Type]
	switch {
	case a.array != nil:
		shape, element = slices.Clone(a.array.Shape), arrayElements[a.array.Type]
	case a.layout.Rows == 0:
		return kernelArg{}, fmt.Errorf("%s is no matrix or array: want a file, or out:TYPE:MxN:FILE", parts[2])
	}
	stride, interleave := element.Bytes(), 0
	if last := len(shape) - 1; sliced {
		stride *= shape[last]
		shape, interleave = shape[:last], stride
		if stride != 16 && stride != 32 {
			return kernelArg{}, fmt.Errorf("the last dimension of %s has %d bytes: want slices of 16 or 32", parts[2], stride)
		}
	}
	if !im2col && len(box) != len(shape) {
		return kernelArg{}, fmt.Errorf("the box has %d %s and the tensor %d: want as many", len(box),
			plural("dimension", len(box)), len(shape))
	}
	slices.Reverse(box) // tensor maps list the innermost dimension first
	slices.Reverse(shape)
	slices.Reverse(steps)
	slices.Reverse(lower)
	slices.Reverse(upper)
	tensor := &ptx.TensorMap{Element: element, Base: a.at, Dims: shape, Box: box, Swizzle: swizzle, Steps: steps,
		FillNaN: nan, Lower: lower, Upper: upper, Interleave: interleave}
	for _, side := range shape[:len(shape)-1] {
		stride *= side
		tensor.Strides = append(tensor.Strides, stride)
	}
	encoded, err := emu.EncodeTensorMap(tensor)
	a.value = encoded[:]
	return a, err
}

// parseCorners parses the corners of an im2col tensor map, such as "-1x-1@-1x-1".
func parseCorners(text string) (lower, upper []int, err error) {
	first, second, _ := strings.Cut(text, "@")
	for _, c := range []struct {
		text string
		to   *[]int
	}{{first, &lower}, {second, &upper}} {
		for coordinate := range strings.SplitSeq(c.text, "x") {
			n, err := strconv.Atoi(coordinate)
			if err != nil {
				return nil, nil, fmt.Errorf("%q is no pair of corners: want numbers, such as -1x-1@0x0", text)
			}
			*c.to = append(*c.to, n)
		}
	}
	return lower, upper, nil
}

func parseScalar(kind, text string) (any, error) {
	t := scalarTypes[kind]
	bad := fmt.Errorf("%q is not a number of type %s: want %s, such as %s:64", text, kind, t.values(), kind)
	switch t.kind {
	case 'f':
		v, err := strconv.ParseFloat(text, t.bits)
		if err != nil {
			return nil, bad
		}
		if t.bits == 32 {
			return float32(v), nil
		}
		return v, nil
	case 's':
		v, err := strconv.ParseInt(text, 0, t.bits)
		if err != nil {
			return nil, bad
		}
		return [...]any{8: int8(v), 16: int16(v), 32: int32(v), 64: v}[t.bits], nil
	}
	v, err := strconv.ParseUint(text, 0, t.bits)
	if err != nil {
		return nil, bad
	}
	return [...]any{8: uint8(v), 16: uint16(v), 32: uint32(v), 64: v}[t.bits], nil
}

// writeArgs writes the matrices of the outputs to their files.
func (f *emulateFlags) writeArgs(ctx context.Context, mem *emu.Memory, args []kernelArg, stderr io.Writer) error {
	for _, arg := range args {
		for _, a := range arg.files() {
			if !a.output {
				continue
			}
			if err := f.writeArg(ctx, mem, a, stderr); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *emulateFlags) writeArg(ctx context.Context, mem *emu.Memory, a kernelArg, stderr io.Writer) error {
	if array := a.array; array != nil {
		if err := mem.Read(a.at, array.Data); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%v of type %s → %s\n", array.Shape, array.Type, a.file)
		return matio.WriteFile(a.file, array.Encode(), f.force)
	}
	m := matfile.Any{Type: a.layout.Type, Rows: a.layout.Rows, Cols: a.layout.Cols, Data: alignedBytes(a.layout.Bytes())}
	if err := mem.Read(a.at, m.Data); err != nil {
		return err
	}
	if err := matio.CheckOutput(a.file, m.Type, f.force); err != nil { // it may exist now
		return err
	}
	if err := m.Write(ctx, a.file); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%v → %s\n", a.layout, a.file)
	return nil
}
