package study

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/matio"
	"tilework/internal/phrase"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// Arg is an argument: a number, or a pointer to a matrix or an array.
type Arg struct {
	// Kind is "number", "unused" for a parameter that the kernel does not read, or a row of
	// matrixKinds.
	Kind  string `json:"kind"`
	Value string `json:"value,omitempty"` // of a number
	Type  string `json:"type,omitempty"`  // element type of a matrix
	Rows  int    `json:"rows,omitempty"`
	Cols  int    `json:"cols,omitempty"` // 0 for an array of one dimension
	// File is the name of a file, and Data is its contents.
	File string `json:"file,omitempty"`
	Data []byte `json:"data,omitempty"`
}

// Output is a matrix or an array that the kernel wrote.
type Output struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	// Values is a corner of a matrix, or the first elements of an array of other dimensions. It is
	// empty for elements that are not written.
	Values    [][]string `json:"values"`
	Unwritten int        `json:"unwritten"` // elements
	// NPY is the .npy file. It is empty for types that NumPy lacks.
	NPY []byte `json:"npy,omitempty"`
}

const maxShown = 8 // rows and columns of an output

// ownTypes returns the element types of matrices and arrays.
func ownTypes() (list []string) {
	for _, t := range dtype.All() {
		list = append(list, t.String())
	}
	return append(list, "u8", "u16", "u32", "u64", "s16", "s64")
}

// matrix is a matrix or an array in the emulator's memory.
type matrix struct {
	name, typeName string
	at             uint64
	shape          []int
	// array describes the elements if NumPy has their type, and kind does otherwise.
	array *matio.Array
	kind  dtype.Type

	output bool // the kernel writes it
}

// count returns the number of elements.
func (m *matrix) count() int {
	n := 1
	for _, side := range m.shape {
		n *= side
	}
	return n
}

func (m *matrix) bytes() int {
	if m.array != nil {
		return m.count() * m.array.Size()
	}
	return m.kind.Bytes(m.count())
}

// matrixKind describes the contents of a matrix before the run, and whether the kernel writes it.
type matrixKind struct {
	file, digits, zeros, output bool
}

var matrixKinds = map[string]matrixKind{
	"in":     {digits: true},
	"update": {digits: true, output: true},
	"zeros":  {zeros: true, output: true},
	"out":    {output: true},
	"file":   {file: true},
	"inout":  {file: true, output: true},
}

// matrix allocates the matrix of an argument.
func (a *Arg) matrix(ctx context.Context, memory *emu.Memory, name string) (*matrix, error) {
	kind, ok := matrixKinds[a.Kind]
	if !ok {
		return nil, fmt.Errorf("kind %q: want %s for a pointer", a.Kind,
			strings.Join(slices.Sorted(maps.Keys(matrixKinds)), ", "))
	}
	m, data := &matrix{name: name, output: kind.output}, []byte(nil)
	var err error
	if kind.file {
		data, err = m.read(ctx, a)
	} else {
		err = m.create(a)
	}
	if err != nil {
		return nil, err
	}
	if m.count() == 0 {
		return nil, fmt.Errorf("%s has no elements: want at least one", a.File)
	}
	switch {
	case kind.digits:
		data = m.digits()
	case kind.zeros:
		data = make([]byte, m.bytes())
	}
	if m.at, err = memory.Alloc(m.bytes()); err != nil || data == nil {
		return m, err
	}
	return m, memory.Write(m.at, data)
}

// read sets the shape and the type to those of a file and returns its elements, row by row.
func (m *matrix) read(ctx context.Context, a *Arg) ([]byte, error) {
	if a.File == "" {
		return nil, errors.New("no file: want an .npy file")
	}
	if len(a.Data) == 0 {
		return nil, fmt.Errorf("%s: the file is empty or not chosen anew, and addresses contain no files", a.File)
	}
	o := matio.ReadOptions{Files: map[string][]byte{a.File: a.Data}, Room: room}
	array, err := matio.ReadArray(ctx, a.File, o)
	if err == nil {
		m.typeName, m.shape, m.array = array.Type, array.Shape, array
		return array.Data, nil
	}
	x, err := matio.Read(ctx, a.File, o)
	if err != nil {
		return nil, err
	}
	l, data, err := x.RowMajor(ctx)
	if err != nil {
		return nil, err
	}
	m.setType(l.Type)
	m.shape = []int{l.Rows, l.Cols}
	return data, nil
}

// room limits the memory of a file's elements.
func room(bytes int, what string) error {
	const most = 8 * maxElements
	if bytes > most {
		return fmt.Errorf("%s has %s bytes: want at most %s in a browser", what, phrase.Commas(bytes), phrase.Commas(most))
	}
	return nil
}

func (m *matrix) setType(t dtype.Type) {
	m.typeName, m.kind, m.array = t.String(), t, nil
	if spelling, ok := matio.Spelling(t.Info().Short); ok {
		m.array = &matio.Array{Type: spelling}
	}
}

// create sets the shape and the type of a matrix without a file.
func (m *matrix) create(a *Arg) error {
	m.shape = []int{a.Rows, a.Cols}
	if a.Cols == 0 {
		m.shape = m.shape[:1]
	}
	for _, side := range m.shape {
		if side < 1 || side > maxElements || m.count() > maxElements {
			return fmt.Errorf("a matrix of %d×%d: want 1 to %s elements in a browser", a.Rows, a.Cols,
				phrase.Commas(maxElements))
		}
	}
	return m.parseType(a.Type)
}

// parseType sets the element type by its name.
func (m *matrix) parseType(name string) error {
	t, err := dtype.Parse(name)
	if err == nil {
		m.setType(t)
		return nil
	}
	spelling, ok := matio.Spelling(name)
	if !ok {
		return err
	}
	m.typeName, m.array = name, &matio.Array{Type: spelling}
	return nil
}

// digits returns elements that count from 1 to 9 repeatedly.
func (m *matrix) digits() []byte {
	data := make([]byte, m.bytes())
	for i := range m.count() {
		const digits = 9
		if digit := i%digits + 1; m.kind != dtype.Invalid {
			m.kind.Set(data, i, float64(digit))
		} else {
			data[i*m.array.Size()] = byte(digit) // an integer
		}
	}
	return data
}

// result returns the matrix after the run.
func (m *matrix) result(memory *emu.Memory) (Output, error) {
	o := Output{Name: m.name, Type: m.typeName, Shape: m.shape}
	data := make([]byte, m.bytes())
	if err := memory.Read(m.at, data); err != nil {
		return o, err
	}
	element := func(i int) string { return strconv.FormatFloat(m.kind.At(data, i), 'g', 6, 64) }
	if m.array != nil {
		file := &matio.Array{Type: m.array.Type, Shape: m.shape, Data: data}
		element, o.NPY = file.Element, file.Encode()
	}
	size := len(data) / m.count()
	written := func(i int) bool { return memory.Written(m.at+uint64(i*size), size) }
	for i := range m.count() {
		if !written(i) {
			o.Unwritten++
		}
	}
	rows, cols := 1, m.count()
	if len(m.shape) == 2 {
		rows, cols = m.shape[0], m.shape[1]
	}
	for i := range min(rows, maxShown) {
		var row []string
		for j := range min(cols, maxShown) {
			text := ""
			if written(i*cols + j) {
				text = element(i*cols + j)
			}
			row = append(row, text)
		}
		o.Values = append(o.Values, row)
	}
	return o, nil
}

// number parses a number for a parameter.
func number(text string, v *ptx.Var) (any, error) {
	bits := 8 * v.Type.Bytes()
	want := func(err error) error {
		if err != nil {
			return fmt.Errorf("%q: want a number of type .%v", text, v.Type)
		}
		return nil
	}
	switch {
	case len(v.Dims) > 0 || v.Vec > 0:
		return nil, fmt.Errorf("a structure or array of %d bytes: want a kernel with numbers and pointers", v.Size())
	case v.Type.Class() == ptx.Float:
		x, err := strconv.ParseFloat(text, bits)
		if bits == 32 {
			return float32(x), want(err)
		}
		return x, want(err)
	case strings.HasPrefix(text, "-"):
		x, err := strconv.ParseInt(text, 0, bits)
		return map[int]any{8: int8(x), 16: int16(x), 32: int32(x), 64: x}[bits], want(err)
	}
	x, err := strconv.ParseUint(text, 0, bits)
	return map[int]any{8: uint8(x), 16: uint16(x), 32: uint32(x), 64: x}[bits], want(err)
}
