package matio

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Format is a file format's row of the table.
type Format struct {
	Ext string // ".npy"
	Doc string // one line for a reader of help text

	archive  bool   // whether a file holds several arrays, chosen by "::name"
	reserved string // the member name that a file cannot have
	// spelling holds the format's names of the types that it can write; foreign names the
	// elements that it can only be read with.
	spelling map[dtype.Type]string
	foreign  map[string]element
	read     func(*source) (*Matrix, error)
	list     func(*source) ([]Entry, error)
	// write writes the file's bytes. The layout and the data are known to fit.
	write func(w io.Writer, member string, l gemm.Layout, data []byte) error
	// size returns the least and the most bytes of a file.
	size func(l gemm.Layout) (least, most int64)
}

// formats is the one list of formats; reading, writing, messages and help text
// range over it.
var formats = []Format{
	{
		Ext:      ".npy",
		Doc:      "NumPy array, versions 1 to 3, any byte order, C or Fortran order",
		spelling: npyTypes, foreign: npyForeign,
		read: readNpy, list: listNpy, write: writeNpy, size: binarySize,
	},
	{
		Ext:      ".npz",
		Doc:      "zip archive of NumPy arrays, stored or deflated; written with one",
		archive:  true,
		spelling: npyTypes, foreign: npyForeign,
		read: readNpz, list: listNpz, write: writeNpz, size: binarySize,
	},
	{
		Ext:     ".safetensors",
		Doc:     "named tensors; written with one",
		archive: true, reserved: safetensorsMetadata,
		spelling: safetensorsTypes, foreign: safetensorsForeign,
		read: readSafetensors, list: listSafetensors, write: writeSafetensors, size: binarySize,
	},
	{
		Ext:      ".mtx",
		Doc:      "Matrix Market: array or coordinate; real, integer or pattern; general, symmetric or skew-symmetric",
		spelling: mtxTypes,
		read:     readMtx, list: listMtx, write: writeMtx, size: textSize,
	},
	{
		Ext:      ".csv",
		Doc:      "numbers separated by commas, or else by semicolons, tabs or blanks as in the first line",
		spelling: csvTypes,
		read:     readCSV, list: listCSV, write: writeCSV, size: textSize,
	},
}

// binarySize is the size of a file of elements and a header.
func binarySize(l gemm.Layout) (least, most int64) {
	elements := int64(l.Rows) * int64(l.Cols) * int64(l.Type.Size())
	return elements, elements + 1<<10
}

// Formats lists the formats in the order of the table.
func Formats() []Format { return slices.Clone(formats) }

// Types lists the element types that the format can hold.
func (f *Format) Types() []dtype.Type {
	return slices.DeleteFunc(dtype.All(), func(t dtype.Type) bool { return f.spelling[t] == "" })
}

// element returns the element that the format spells so.
func (f *Format) element(spelling string) (element, bool) {
	for _, t := range f.Types() {
		if f.spelling[t] == spelling {
			return nativeElement(t), true
		}
	}
	e, ok := f.foreign[spelling]
	return e, ok
}

// elementNames lists the elements that the format can be read with: "float64, int8".
func (f *Format) elementNames() string {
	names := typeNames(f.Types())
	for _, e := range foreign {
		names += ", " + e.name
	}
	return names
}

// formatOf returns the format that a path's extension names, or nil.
func formatOf(path string) *Format {
	ext := strings.ToLower(filepath.Ext(path))
	for i := range formats {
		if formats[i].Ext == ext {
			return &formats[i]
		}
	}
	return nil
}

// typeNames lists types for a message: "float64, int8".
func typeNames(types []dtype.Type) string {
	all := make([]string, len(types))
	for i, t := range types {
		all[i] = t.String()
	}
	return strings.Join(all, ", ")
}
