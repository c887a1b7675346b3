package matio

import (
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Format describes a file format.
type Format struct {
	Ext string // ".npy"
	Doc string // one line of help text

	also     map[string]byte // further extensions of text with another delimiter
	signed   bool            // the first bytes of a file identify the format
	text     bool            // a file is text
	archive  bool            // a file holds several arrays, selected by "::name"
	reserved string          // a name that no member can have
	// spelling maps the types that the format can store to their names in a file. foreign maps
	// the names of further types, which can only be read.
	spelling map[dtype.Type]string
	foreign  map[string]element
	read     func(*source) (*Matrix, error)
	list     func(*source) ([]Entry, error)
	// write writes a file. The caller has checked the type, the layout and the data.
	write func(w io.Writer, member string, l gemm.Layout, data []byte) error
	// start, if set, returns the start of a file whose elements follow row by row, in the byte order
	// of the machine if that is little-endian.
	start func(member string, l gemm.Layout) ([]byte, error)
	// size returns bounds on the size of a file in bytes.
	size func(l gemm.Layout) (least, most int64)
}

// formats lists all formats. Reading, writing, messages and help text use this list.
var formats = []Format{
	{
		Ext:      ".npy",
		Doc:      "NumPy array, versions 1 to 3, any byte order, C or Fortran order",
		signed:   true,
		spelling: npyTypes, foreign: npyForeign,
		read: readNpy, list: listNpy, write: writeNpy, start: startNpy, size: binarySize,
	},
	{
		Ext:      ".npz",
		Doc:      "zip archive of NumPy arrays, stored or deflated; files written hold one array",
		signed:   true,
		archive:  true,
		spelling: npyTypes, foreign: npyForeign,
		read: readNpz, list: listNpz, write: writeNpz, size: binarySize,
	},
	{
		Ext:     ".safetensors",
		Doc:     "named tensors; files written hold one tensor",
		signed:  true,
		archive: true, reserved: safetensorsMetadata,
		spelling: safetensorsTypes, foreign: safetensorsForeign,
		read: readSafetensors, list: listSafetensors, write: writeSafetensors, start: startSafetensors, size: binarySize,
	},
	{
		Ext:      ".mtx",
		Doc:      "Matrix Market: array or coordinate; real, integer or pattern; general, symmetric or skew-symmetric",
		signed:   true,
		text:     true,
		spelling: mtxTypes,
		read:     readMtx, list: listMtx, write: writeMtx, size: textSize,
	},
	{
		Ext:      ".csv",
		Doc:      "numbers separated by semicolons, commas, tabs or blanks as in the first line; also .tsv, .txt and .dat",
		also:     map[string]byte{".tsv": '\t', ".txt": ' ', ".dat": ' '},
		text:     true,
		spelling: csvTypes,
		read:     readCSV, list: listCSV, write: csvWriter(','), size: textSize,
	},
}

// binarySize returns bounds on the size of a file with elements and a header.
func binarySize(l gemm.Layout) (least, most int64) {
	elements := elementBytes(l)
	return elements, elements + 1<<10
}

// elementBytes returns the bytes of the elements of op(matrix) in a file.
func elementBytes(l gemm.Layout) int64 { return int64(l.OpRows()) * int64(l.Type.Bytes(l.OpCols())) }

// Formats returns all formats.
func Formats() []Format { return slices.Clone(formats) }

// byExtension maps the extensions of all formats, including further ones, to the formats.
var byExtension = func() map[string]*Format {
	all := map[string]*Format{}
	for i, f := range formats {
		all[f.Ext] = &formats[i]
		for ext, sep := range f.also {
			other := f
			other.Ext, other.write = ext, csvWriter(sep)
			all[ext] = &other
		}
	}
	return all
}()

// extensions returns the extensions of all formats for a message: ".npy, .npz".
func extensions() string {
	var all []string
	for _, f := range formats {
		all = append(all, f.Ext)
		all = append(all, slices.Sorted(maps.Keys(f.also))...)
	}
	return strings.Join(all, ", ")
}

// Types returns the element types that the format can store.
func (f *Format) Types() []dtype.Type {
	return slices.DeleteFunc(dtype.All(), func(t dtype.Type) bool { return f.spelling[t] == "" })
}

// element returns the element with the given spelling in the format.
func (f *Format) element(spelling string) (element, bool) {
	for _, t := range f.Types() {
		if f.spelling[t] == spelling {
			return nativeElement(t), true
		}
	}
	e, ok := f.foreign[spelling]
	return e, ok
}

// elementNames returns the names of all elements that the format can be read with: "float64, int8".
func (f *Format) elementNames() string {
	names := strings.Split(typeNames(f.Types()), ", ")
	for _, e := range f.foreign {
		names = append(names, e.Name)
	}
	slices.Sort(names[len(f.Types()):])
	return strings.Join(slices.Compact(names), ", ")
}

// formatOf returns the format for the extension of path, or nil.
func formatOf(path string) *Format { return byExtension[strings.ToLower(filepath.Ext(path))] }

// typeNames joins the names of types for a message: "float64, int8".
func typeNames(types []dtype.Type) string {
	all := make([]string, len(types))
	for i, t := range types {
		all[i] = t.String()
	}
	return strings.Join(all, ", ")
}
