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

	// members names all that a file holds, of a format whose files hold several matrices, chosen
	// by "::name"; it brings the name that is asked for into the same form.
	members  func(*source) ([]string, error)
	reserved string // the member name that a file cannot have
	// spelling is how the format writes the types that it can hold.
	spelling map[dtype.Type]string
	read     func(*source) (*Matrix, error)
	// write writes the file's bytes; the layout and the data are known to fit.
	write func(w io.Writer, member string, l gemm.Layout, data []byte) error
}

// formats is the one list of formats; reading, writing, messages and help text
// range over it.
var formats = []Format{
	{
		Ext:      ".npy",
		Doc:      "NumPy array, versions 1 to 3, any byte order, C or Fortran order",
		spelling: npyTypes,
		read:     readNpy, write: writeNpy,
	},
	{
		Ext:      ".npz",
		Doc:      "zip archive of NumPy arrays, stored or deflated; written with one",
		spelling: npyTypes,
		members:  npzMembers, read: readNpz, write: writeNpz,
	},
	{
		Ext:      ".safetensors",
		Doc:      "named tensors; written with one",
		reserved: safetensorsMetadata,
		spelling: safetensorsTypes,
		members:  safetensorsMembers, read: readSafetensors, write: writeSafetensors,
	},
	{
		Ext:      ".mtx",
		Doc:      "Matrix Market: array or coordinate; real, integer or pattern; general, symmetric or skew-symmetric",
		spelling: mtxTypes,
		read:     readMtx, write: writeMtx,
	},
	{
		Ext:      ".csv",
		Doc:      "numbers separated by commas (or by tabs, if the first line has those and no comma), no header line",
		spelling: csvTypes,
		read:     readCSV, write: writeCSV,
	},
}

// Formats lists the formats in the order of the table.
func Formats() []Format { return slices.Clone(formats) }

// Types lists the element types that the format can hold.
func (f *Format) Types() []dtype.Type {
	return slices.DeleteFunc(dtype.All(), func(t dtype.Type) bool { return f.spelling[t] == "" })
}

// typeNamed is the type that the format spells so, or Invalid.
func (f *Format) typeNamed(spelling string) dtype.Type {
	for _, t := range f.Types() {
		if f.spelling[t] == spelling {
			return t
		}
	}
	return dtype.Invalid
}

// formatOf is the format that a path's extension says, or nil.
func formatOf(path string) *Format {
	ext := strings.ToLower(filepath.Ext(path))
	for i := range formats {
		if formats[i].Ext == ext {
			return &formats[i]
		}
	}
	return nil
}

// typeNames is a list of types as messages show it: "float64, int8".
func typeNames(types []dtype.Type) string {
	all := make([]string, len(types))
	for i, t := range types {
		all[i] = t.String()
	}
	return strings.Join(all, ", ")
}
