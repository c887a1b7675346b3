package matio

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
)

// npy returns an array file with the given header and elements bytes of data.
func npy(header string, elements int) string {
	b := append([]byte(npyMagic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	return string(b) + header + strings.Repeat("\x01", elements)
}

// npyHeaderOf returns the header of a float32 array.
func npyHeaderOf(shape string) string {
	return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n"
}

// safe returns a safetensors file with the given header and elements bytes of data.
func safe(header string, elements int) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("\x01",
		elements)
}

// tensorJSON returns the header entry of a tensor.
func tensorJSON(name, dtype, shape string, start, end int) string {
	return fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, start, end)
}

// member is one file of an archive.
type member struct {
	name, content string
	change        func(*zip.FileHeader) // falsifies the directory entry
	packed        []byte                // replaces the compressed content
}

// archive returns a zip file of deflated members.
func archive(members ...member) string {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		packed := m.packed
		if packed == nil {
			var inner bytes.Buffer
			iw := zip.NewWriter(&inner)
			f, _ := iw.Create("x")
			f.Write([]byte(m.content))
			iw.Close()
			ir, _ := zip.NewReader(bytes.NewReader(inner.Bytes()), int64(inner.Len()))
			at, _ := ir.File[0].DataOffset()
			packed = inner.Bytes()[at : at+int64(ir.File[0].CompressedSize64)]
		}
		h := &zip.FileHeader{
			Name: m.name, Method: zip.Deflate, CRC32: crc32.ChecksumIEEE([]byte(m.content)),
			CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(len(m.content)),
		}
		if m.change != nil {
			m.change(h)
		}
		f, err := w.CreateRaw(h)
		if err != nil {
			panic(err)
		}
		f.Write(packed)
	}
	w.Close()
	return b.String()
}

// badFiles lists files that cannot be read, with the kind and a part of the message of the error.
var badFiles = []struct {
	name    string
	ext     string // extension and the rest of the spec
	content string
	o       ReadOptions
	kind    error
	message string
}{
	{"empty", ".npy", "", ReadOptions{}, ErrFormat, "empty"},
	{"no magic", ".npy", "not an array file", ReadOptions{}, ErrFormat, `starts with "not an"`},
	{"short magic", ".npy", "\x93NUM", ReadOptions{}, ErrFormat, "starts with"},
	{"only magic", ".npy", "\x93NUMPY\x01\x00", ReadOptions{}, ErrFormat, "header has 10 bytes, the file only 8"},
	{"version 4", ".npy", "\x93NUMPY\x04\x00\x00\x00\x00\x00", ReadOptions{}, gemm.ErrUnsupported,
		"version 4.0, want 1 to 3"},
	{"header longer than the file", ".npy", "\x93NUMPY\x01\x00\xff\xff{}", ReadOptions{}, ErrFormat,
		"header has 65545 bytes, the file only 12"},
	{"header too long", ".npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff{}", ReadOptions{}, ErrFormat,
		"header has 4294967295 bytes: want at most 65536"},
	{"header with a structured type", ".npy",
		npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{},
		gemm.ErrUnsupported, "structured"},
	{"header with an unknown key", ".npy", npy("{'descr': '<f4', 'order': False}", 4), ReadOptions{}, ErrFormat,
		`unknown header key "order"`},
	{"header with a key twice", ".npy",
		npy("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{}, ErrFormat,
		`"descr" appears twice`},
	{"header without a key", ".npy", npy("{'descr': '<f4', 'shape': (1, 1)}", 4), ReadOptions{}, ErrFormat,
		`lacks the key "fortran_order"`},
	{"header with an expression", ".npy", npy(npyHeaderOf("(1, __import__('os'))"), 4), ReadOptions{}, ErrFormat,
		"want a shape"},
	{"header that ends early", ".npy", npy("{'descr': '<f4', 'fortran_order'", 4), ReadOptions{}, ErrFormat,
		"header ends early, want :"},
	{"header with an open string", ".npy", npy("{'descr': '<f4", 4), ReadOptions{}, ErrFormat, "want a type"},
	{"data after the header", ".npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)} 5", 4),
		ReadOptions{}, ErrFormat, "want the end"},
	{"header without commas", ".npy", npy("{'descr': '<f4' 'fortran_order': False}", 4), ReadOptions{}, ErrFormat,
		"want , or }"},
	{"header with an escape", ".npy", npy(`{'descr': '\x3cf4'}`, 4), ReadOptions{}, ErrFormat, "want a type"},
	{"header of zeros", ".npy", npy("\x00\x00\x00", 4), ReadOptions{}, ErrFormat, "want a dictionary"},
	{"shape that is a number", ".npy", npy(npyHeaderOf("(4)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"shape without commas", ".npy", npy(npyHeaderOf("(2 2)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"negative shape", ".npy", npy(npyHeaderOf("(-1, 4)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"shape beyond 64 bits", ".npy", npy(npyHeaderOf("(1, 99999999999999999999)"), 16), ReadOptions{}, ErrFormat,
		"want a shape"},
	{"shape of 2^63", ".npy", npy(npyHeaderOf("(9223372036854775808, 1)"), 16), ReadOptions{}, ErrFormat,
		"has a side of 2^63 or more"},
	{"shape whose product overflows", ".npy", npy(npyHeaderOf("(4294967296, 4294967296)"), 16), ReadOptions{},
		ErrFormat, "has 2^63 or more bytes"},
	{"shape whose product wraps around to the data size", ".npy", npy(npyHeaderOf("(4611686018427387905, 4)"), 16),
		ReadOptions{}, ErrFormat, "has 2^63 or more bytes"},
	{"shape larger than the file", ".npy", npy(npyHeaderOf("(100000, 100000)"), 16), ReadOptions{}, ErrFormat,
		"takes 40000000000 bytes, the file holds 16"},
	{"elements cut off", ".npy", npy(npyHeaderOf("(2, 2)"), 15), ReadOptions{}, ErrFormat,
		"takes 16 bytes, the file holds 15"},
	{"elements left over", ".npy", npy(npyHeaderOf("(2, 2)"), 17), ReadOptions{}, ErrFormat,
		"takes 16 bytes, the file holds 17"},
	{"no type", ".npy", npy("{'descr': '', 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{},
		gemm.ErrUnsupported, `type ""`},
	{"matrix as vector", ".npy", npy(npyHeaderOf("(2, 2)"), 16), ReadOptions{OneD: Vector}, gemm.ErrShape,
		"2×2 matrix, want a vector"},
	{"inexact integer", ".npy", npy(npyHeaderOf("(1, 1)"), 4), ReadOptions{Type: dtype.I8}, ErrRange,
		"row 1, column 1: 2.3694278276172396e-38 is out of range for int8: want an integer from -128 to 127"},
	{"member of an npy file", ".npy::x", npy(npyHeaderOf("(1, 1)"), 4), ReadOptions{}, ErrMember, "holds one matrix"},

	{"no archive", ".npz", "PK but no archive", ReadOptions{}, ErrFormat, "not a valid zip file"},
	{"empty member name", ".npz::", archive(), ReadOptions{}, ErrMember, "no name after ::"},
	{"no such member", ".npz::c", archive(member{name: "a.npy"}, member{name: "b.npy"}, member{name: "c.txt"}),
		ReadOptions{}, ErrMember, `holds "a", "b"`},
	{"no members", ".npz", archive(), ReadOptions{}, ErrMember, "holds no arrays"},
	{"two matrices", ".npz",
		archive(member{name: "a.npy", content: npy(npyHeaderOf("(1, 1)"), 4)},
			member{name: "b.npy", content: npy(npyHeaderOf("(1, 1)"), 4)}), ReadOptions{}, ErrMember,
		`holds "a", "b": want`},
	{"many members", ".npz", archive(manyMembers(14)...), ReadOptions{}, ErrMember, `"m9" and 4 more`},
	{"a member twice", ".npz", archive(member{name: "a.npy"}, member{name: "a.npy"}), ReadOptions{}, ErrFormat,
		`"a" appears twice`},
	{"member with elements cut off", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 15)}),
		ReadOptions{}, ErrFormat, "::a: malformed: 2×2 float32 takes 16 bytes, the file holds 15"},
	{"member with an encrypted content", ".npz",
		archive(member{name: "a.npy", change: func(h *zip.FileHeader) { h.Flags |= 1 }}), ReadOptions{},
		gemm.ErrUnsupported, "encrypted"},
	{"members that share bytes", ".npz", sharedZip(100), ReadOptions{}, ErrFormat,
		"the compressed members take more bytes than the"},
	{"member packed as LZMA", ".npz", archive(member{name: "a.npy", change: func(h *zip.FileHeader) { h.Method = 14 }}),
		ReadOptions{}, gemm.ErrUnsupported, "compression method 14"},
	{"member with a wrong checksum", ".npz",
		archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 16),
			change: func(h *zip.FileHeader) { h.CRC32++ }}), ReadOptions{}, ErrFormat, "checksum"},
	{"member of garbage", ".npz",
		archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 16),
			packed: bytes.Repeat([]byte{0xff}, 100)}), ReadOptions{}, ErrFormat, "flate"},
	{"stored member with two sizes", ".npz",
		archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 16),
			change: func(h *zip.FileHeader) { h.Method = zip.Store; h.UncompressedSize64 = 1 << 40 }}), ReadOptions{},
		ErrFormat, "1099511627776 bytes: impossible"},
	{"member of an impossible size", ".npz",
		archive(member{name: "a.npy", content: npy(npyHeaderOf("(100000, 100000)"), 0),
			change: func(h *zip.FileHeader) { h.UncompressedSize64 += 4e10 }}), ReadOptions{}, ErrFormat, "impossible for"},
	{"member of a possible but untrue size", ".npz", archive(untrueSize(1 << 22)), ReadOptions{}, ErrFormat,
		"the member ends after 65"},
	{"member longer than its size", ".npz",
		archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 1000),
			change: func(h *zip.FileHeader) { h.UncompressedSize64 -= 984 }}), ReadOptions{}, ErrFormat,
		"not a valid zip file"},
	{"member before the file", ".npz", beforeStart(), ReadOptions{}, ErrFormat, "ends too early"},

	{"no header", ".safetensors", "\x01\x00", ReadOptions{}, ErrFormat, "ends too early"},
	{"header too long", ".safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", ReadOptions{}, ErrFormat,
		"header has 18446744073709551615 bytes: want at most 100000000"},
	{"header longer than the file", ".safetensors", "\xff\x00\x00\x00\x00\x00\x00\x00{}", ReadOptions{}, ErrFormat,
		"header has 255 bytes, the file only 2"},
	{"header is not an object", ".safetensors", safe(`[]`, 0), ReadOptions{}, ErrFormat, "found [, want {"},
	{"header that is a string with lines", ".safetensors", safe(`"\f\n\r"`, 0), ReadOptions{}, ErrFormat,
		`found "\f\n\r", want {`},
	{"header cut off", ".safetensors", safe(`{"a":{"dtype":"F32"`, 0), ReadOptions{}, ErrFormat, "JSON ends too early"},
	{"header with broken JSON", ".safetensors", safe(`{"a" 5}`, 0), ReadOptions{}, ErrFormat, "invalid character"},
	{"data after the header", ".safetensors", safe(`{} {}`, 0), ReadOptions{}, ErrFormat, "unexpected data after"},
	{"header without tensors", ".safetensors", safe(`{}`, 0), ReadOptions{}, ErrMember, "holds no arrays"},
	{"null header", ".safetensors", safe(`null`, 0), ReadOptions{}, ErrFormat, "found null, want {"},
	{"tensor with another key", ".safetensors", safe(`{"a":{"type":"F32"}}`, 0), ReadOptions{}, ErrFormat,
		"want dtype, shape and two data_offsets"},
	{"tensor without a shape", ".safetensors", safe(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), ReadOptions{},
		ErrFormat, "want dtype, shape and two data_offsets"},
	{"tensor with three offsets", ".safetensors", safe(`{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,2,4]}}`, 4),
		ReadOptions{}, ErrFormat, "two data_offsets"},
	{"tensor with a key twice", ".safetensors", safe(`{"a":{"dtype":"F32","dtype":"F64"}}`, 0), ReadOptions{},
		ErrFormat, `has "dtype" twice`},
	{"tensor twice", ".safetensors",
		safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("a", "F32", "[1,1]", 4, 8)+"}", 8), ReadOptions{},
		ErrFormat, `"a" appears twice`},
	{"metadata twice", ".safetensors", safe(`{"__metadata__":{},"__metadata__":{}}`, 0), ReadOptions{}, ErrFormat,
		"appears twice"},
	{"metadata with a key twice", ".safetensors", safe(`{"__metadata__":{"a":"","a":""}}`, 0), ReadOptions{}, ErrFormat,
		"twice in the metadata"},
	{"metadata is not text", ".safetensors", safe(`{"__metadata__":{"a":5}}`, 0), ReadOptions{}, ErrFormat,
		"found 5, want a string"},
	{"negative shape", ".safetensors", safe("{"+tensorJSON("a", "F32", "[-1,1]", 0, 4)+"}", 4), ReadOptions{},
		ErrFormat, `"-1" found, want an integer`},
	{"shape is not an integer", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1.0,1]", 0, 4)+"}", 4), ReadOptions{},
		ErrFormat, `"1.0" found, want an integer`},
	{"shape is text", ".safetensors", safe("{"+tensorJSON("a", "F32", `["1",1]`, 0, 4)+"}", 4), ReadOptions{},
		ErrFormat, "want an integer"},
	{"shape of 2^63", ".safetensors", safe("{"+tensorJSON("a", "F32", "[9223372036854775808,1]", 0, 4)+"}", 4),
		ReadOptions{}, ErrFormat, "has a side of 2^63 or more"},
	{"shape whose product overflows", ".safetensors",
		safe("{"+tensorJSON("a", "F32", "[4294967296,4294967296]", 0, 4)+"}", 4), ReadOptions{}, ErrFormat,
		"has 2^63 or more bytes"},
	{"shape and bytes that differ", ".safetensors", safe("{"+tensorJSON("a", "F32", "[2,2]", 0, 4)+"}", 4),
		ReadOptions{}, ErrFormat, "takes 16 bytes, the file holds 4"},
	{"tensors that overlap", ".safetensors",
		safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("b", "F32", "[1,1]", 2, 6)+"}", 6), ReadOptions{},
		ErrFormat, `"b" has bytes 2 to 6, want them to start at 4`},
	{"tensors with a gap", ".safetensors",
		safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("b", "F32", "[1,1]", 6, 10)+"}", 10),
		ReadOptions{}, ErrFormat, `"b" has bytes 6 to 10, want them to start at 4`},
	{"tensor that ends before it starts", ".safetensors", safe("{"+tensorJSON("b", "F32", "[1,1]", 0, -1)+"}", 4),
		ReadOptions{}, ErrFormat, `"-1" found`},
	{"offsets the wrong way round", ".safetensors",
		safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("b", "F32", "[1,1]", 4, 0)+"}", 4), ReadOptions{},
		ErrFormat, `"b" has bytes 4 to 0`},
	{"offsets beyond the file", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+"}", 3), ReadOptions{},
		ErrFormat, "ends at byte 4, the file holds 3"},
	{"elements left over", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+"}", 5), ReadOptions{},
		ErrFormat, "take 4 bytes, the file holds 5"},
	{"unsupported tensor", ".safetensors", safe("{"+tensorJSON("a", "F8_E8M0", "[1,1]", 0, 1)+"}", 1), ReadOptions{},
		gemm.ErrUnsupported, `"F8_E8M0", want float64`},
	{"three dimensions", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1,1]", 0, 4)+"}", 4), ReadOptions{},
		gemm.ErrUnsupported, "3 dimensions, shape (1, 1, 1)"},
	{"one dimension", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1]", 0, 4)+"}", 4), ReadOptions{},
		gemm.ErrUnsupported, "array has shape (1,)"},

	{"no banner", ".mtx", "1 1\n5\n", ReadOptions{}, ErrFormat, `starts with "1 1"`},
	{"late banner", ".mtx", "\n%%MatrixMarket matrix array real general\n1 1\n5\n", ReadOptions{}, ErrFormat,
		"want %%MatrixMarket matrix"},
	{"vector object", ".mtx", "%%MatrixMarket vector array real general\n", ReadOptions{}, ErrFormat,
		"want %%MatrixMarket matrix"},
	{"unknown format", ".mtx", "%%MatrixMarket matrix dense real general\n", ReadOptions{}, gemm.ErrUnsupported,
		`"dense", want array or coordinate`},
	{"complex", ".mtx", "%%MatrixMarket matrix array complex general\n", ReadOptions{}, gemm.ErrUnsupported,
		`"complex", want real`},
	{"hermitian", ".mtx", "%%MatrixMarket matrix array real hermitian\n", ReadOptions{}, gemm.ErrUnsupported,
		`"hermitian", want general`},
	{"array of a pattern", ".mtx", "%%MatrixMarket matrix array pattern general\n", ReadOptions{}, ErrFormat,
		"no values"},
	{"no sizes", ".mtx", "%%MatrixMarket matrix array real general\n% none\n", ReadOptions{}, ErrFormat,
		"ends before its sizes"},
	{"too many sizes", ".mtx", "%%MatrixMarket matrix array real general\n1 1 1\n5\n", ReadOptions{}, ErrFormat,
		`line 2: "1 1 1", want sizes as "rows columns"`},
	{"too few sizes", ".mtx", "%%MatrixMarket matrix coordinate real general\n1 1\n5\n", ReadOptions{}, ErrFormat,
		`want sizes as "rows columns entries"`},
	{"negative size", ".mtx", "%%MatrixMarket matrix array real general\n-1 1\n5\n", ReadOptions{}, ErrFormat,
		"want sizes"},
	{"size of 2^63", ".mtx", "%%MatrixMarket matrix array real general\n9223372036854775808 1\n5\n", ReadOptions{},
		ErrFormat, "has a side of 2^63 or more"},
	{"sizes whose product overflows", ".mtx",
		"%%MatrixMarket matrix coordinate real general\n4294967296 4294967296 0\n", ReadOptions{}, ErrFormat,
		"has 2^63 or more bytes"},
	{"array larger than the file", ".mtx", "%%MatrixMarket matrix array real general\n100000 100000\n5\n",
		ReadOptions{}, ErrFormat, "10000000000 entries take at least 2 bytes each"},
	{"more entries than the file has room for", ".mtx",
		"%%MatrixMarket matrix coordinate real general\n9 9 1000000\n1 1 1\n", ReadOptions{}, ErrFormat,
		"1000000 entries take at least 4 bytes each"},
	{"too sparse", ".mtx", "%%MatrixMarket matrix coordinate real general\n100000 100000 1\n1 1 1\n", ReadOptions{},
		ErrExpansion, "takes 80000000000 bytes"},
	{"too sparse is out of memory", ".mtx", "%%MatrixMarket matrix coordinate real general\n100000 100000 1\n1 1 1\n",
		ReadOptions{}, sentinel.ErrOutOfMemory, "64 times the stored"},
	{"symmetric but not square", ".mtx", "%%MatrixMarket matrix array real symmetric\n1 2\n5\n", ReadOptions{},
		ErrFormat, "symmetric matrix is 1×2"},
	{"array cut off", ".mtx", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", ReadOptions{}, ErrFormat,
		"ends before its last entry"},
	{"array too long", ".mtx", "%%MatrixMarket matrix array real general\n1 2\n1\n2\n3\n", ReadOptions{}, ErrFormat,
		"line 5: want only 2 entries"},
	{"two values on a line", ".mtx", "%%MatrixMarket matrix array real general\n1 2\n1 2\n", ReadOptions{}, ErrFormat,
		`line 3: "1 2", want one number`},
	{"value that is not a number", ".mtx", "%%MatrixMarket matrix array real general\n1 1\n1_0\n", ReadOptions{},
		ErrFormat, `"1_0", want one number`},
	{"hexadecimal value", ".mtx", "%%MatrixMarket matrix array real general\n1 1\n0x1p0\n", ReadOptions{}, ErrFormat,
		"want one number"},
	{"fraction in an integer file", ".mtx", "%%MatrixMarket matrix array integer general\n1 1\n1.5\n", ReadOptions{},
		ErrFormat, "want one number"},
	{"many columns without a row", ".mtx", "%%MatrixMarket matrix array real general\n0 900000000000\n5\n",
		ReadOptions{}, ErrFormat, "line 3: want only 0 entries"},
	{"row 0", ".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 1\n", ReadOptions{}, ErrFormat,
		`line 3: row "0", want a number from 1 to 2`},
	{"column 3", ".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 3 1\n", ReadOptions{}, ErrFormat,
		`column "3", want a number from 1 to 2`},
	{"no value", ".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1\n", ReadOptions{}, ErrFormat,
		`"", want one number`},
	{"pattern with a value", ".mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1 1\n", ReadOptions{},
		ErrFormat, "want nothing"},
	{"symmetric entries on both sides of the diagonal", ".mtx",
		"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n1 2 1\n",
		ReadOptions{}, ErrFormat, "entry (1, 2): want only one triangle"},
	{"negative unsigned integer", ".mtx", "%%MatrixMarket matrix array unsigned-integer general\n1 1\n-1\n",
		ReadOptions{}, ErrFormat, "want one number"},
	{"skew-symmetric entry on the diagonal", ".mtx",
		"%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 1\n", ReadOptions{}, ErrFormat,
		"entry (1, 1)"},
	{"sum beyond the integers", ".mtx", "%%MatrixMarket matrix coordinate integer general\n1 1 2\n1 1 100\n1 1 100\n",
		ReadOptions{Type: dtype.I8}, ErrRange,
		"row 1, column 1: 200 in line 4 is out of range for int8: want an integer from -128 to 127"},
	{"long line", ".mtx", "%%MatrixMarket matrix array real general\n%" + strings.Repeat("x", maxLine) + "\n1 1\n1\n",
		ReadOptions{}, ErrFormat, "line 2: longer than"},

	{"matrix as vector", ".csv", "1,2\n3,4\n", ReadOptions{OneD: Vector}, gemm.ErrShape, "2×2 matrix, want a vector"},
	{"header line", ".csv", "a,b\n1,2\n", ReadOptions{}, ErrFormat,
		`line 1, column 1: "a" is not a number (--csv-header skips a header line)`},
	{"word", ".csv", "1,2\n3, x y\n", ReadOptions{}, ErrFormat, `line 2, column 2: "x y" is not a number`},
	{"open quote", ".csv", "\"1,2\n", ReadOptions{}, ErrFormat, "is not a number"},
	{"two quoted numbers in a field", ".csv", "\"1\"\"2\",3\n", ReadOptions{}, ErrFormat, "is not a number"},
	{"quoted thousands", ".csv", "\"1,234\",2\n", ReadOptions{}, ErrFormat, `"1,234" is not a number`},
	{"decimal comma and point", ".csv", "1.234,5;2\n", ReadOptions{}, ErrFormat, `"1.234,5" is not a number`},
	{"two decimal commas", ".csv", "1,234,5;2\n", ReadOptions{}, ErrFormat, `"1,234,5" is not a number`},
	{"another delimiter", ".csv", "1,2,3\n", ReadOptions{CSV: CSV{Delimiter: '|'}}, ErrFormat, `"1,2,3" is not a number`},
	{"delimiter of comments", ".csv", "1#2\n", ReadOptions{CSV: CSV{Delimiter: '#'}}, gemm.ErrUnsupported, "delimiter #"},
	{"missing number", ".csv", "1,NA\n", ReadOptions{}, ErrFormat, `"NA" is not a number`},
	{"missing integer", ".csv", "1,\n", ReadOptions{Type: dtype.I8, CSV: CSV{Missing: true}}, ErrRange, "nan in line 1"},
	{"number after a trailing comma", ".csv", "1,2,\n3,4,5\n", ReadOptions{}, ErrFormat,
		"line 2 goes on after column 2"},
	{"two commas at the end", ".csv", "1,2\n3,4,,\n", ReadOptions{}, ErrFormat, "line 2 goes on after column 2"},
	{"comma at the end of a column that may be missing", ".csv", "1,2\n3,4,\n",
		ReadOptions{CSV: CSV{Missing: true}}, ErrFormat, "line 2 goes on after column 2"},
	{"only comments", ".csv", "# 1\n#2\n", ReadOptions{}, ErrFormat, "no numbers"},
	{"half of a character of UTF-16", ".csv", "\xff\xfe1\x00,\x00\x32", ReadOptions{}, ErrFormat, "ends too early"},
	{"header of other columns", ".csv", "\na,b\n1,2,3\n4,5\n", ReadOptions{CSV: CSV{Header: 1}}, ErrFormat,
		"line 4 ends after column 2: want 3 columns as in the first line"},
	{"header alone", ".csv", "a,b\n", ReadOptions{CSV: CSV{Header: 1}}, ErrFormat, "no numbers"},
	{"two header lines", ".csv", "a,b\nc,d\n1,2\n", ReadOptions{CSV: CSV{Header: 1}}, ErrFormat,
		`line 2, column 1: "c" is not a number`},
	{"control characters", ".csv", "1,\x00\x1b\n", ReadOptions{}, ErrFormat, `"\x00\x1b" is not a number`},
	{"empty field", ".csv", "1,,2\n", ReadOptions{}, ErrFormat, "line 1, column 2 is empty"},
	{"short line", ".csv", "1,2\n\n3\n", ReadOptions{}, ErrFormat,
		"line 3 ends after column 1: want 2 columns as in the first line"},
	{"long line", ".csv", "1,2\n3,4,5\n", ReadOptions{}, ErrFormat,
		"line 2 goes on after column 2, the last of the first line"},
	{"only blank lines", ".csv", "\xef\xbb\xbf\n \t\r\n", ReadOptions{}, ErrFormat, "no numbers"},
	{"long field", ".csv", strings.Repeat("1", maxField+1), ReadOptions{}, ErrFormat, "longer than 4096 bytes"},
	{"one long line and many short ones", ".csv", strings.Repeat("1,", 50000) + "1\n" + strings.Repeat("1\n", 50000),
		ReadOptions{}, ErrFormat, "line 2 ends after column 1: want 50001 columns as in the first line"},
	{"fraction as an integer", ".csv", "1,2.5\n", ReadOptions{Type: dtype.I32}, ErrRange,
		"row 1, column 2: 2.5 in line 1 is out of range for int32: want an integer from -2147483648 to 2147483647"},
	{"NaN as an integer", ".csv", "nan\n", ReadOptions{Type: dtype.I32}, ErrRange,
		"nan in line 1 is out of range for int32"},
	{"integer too large", ".csv", "128\n", ReadOptions{Type: dtype.I8}, ErrRange,
		"128 in line 1 is out of range for int8"},

	{"unknown extension and content", ".bin", "\x00\x01", ReadOptions{}, gemm.ErrUnsupported,
		`starts with "\x00\x01": want .npy, .npz, .safetensors, .mtx, .csv`},
	{"member of text without an extension", "::w", "1", ReadOptions{}, ErrMember, "a .csv file holds one matrix"},
}

func manyMembers(n int) []member {
	var all []member
	for i := range n {
		all = append(all, member{name: fmt.Sprintf("m%d.npy", i)})
	}
	return all
}

// beforeStart returns an archive whose directory places its member one byte before the start of the
// file. The offset -1 is in the 64-bit extra field, which the reader uses if the 32-bit field is
// -1.
func beforeStart() string {
	a := archive(member{name: "a.npy", change: func(h *zip.FileHeader) {
		h.Extra = []byte("\x01\x00\x08\x00\xff\xff\xff\xff\xff\xff\xff\xff")
	}})
	offset := strings.LastIndex(a, "PK\x01\x02") + 42
	return a[:offset] + "\xff\xff\xff\xff" + a[offset+4:]
}

// untrueSize returns a member whose header and directory both state n bytes of elements, although
// it holds only 64 KiB.
func untrueSize(n int) member {
	content := npy(npyHeaderOf(fmt.Sprintf("(1, %d)", n/4)), 0)
	// Random bytes are incompressible, so n is less than maxDeflate times the compressed size.
	var random strings.Builder
	x := uint32(1)
	for range 64 << 10 {
		x = x*1664525 + 1013904223
		random.WriteByte(byte(x >> 24))
	}
	return member{name: "a.npy", content: content + random.String(),
		change: func(h *zip.FileHeader) { h.UncompressedSize64 = uint64(len(content) + n) }}
}

func TestBadFiles(t *testing.T) {
	folder := t.TempDir()
	for i, f := range badFiles {
		t.Run(strings.TrimPrefix(f.ext, ".")+" "+f.name, func(t *testing.T) {
			ext, rest, named := strings.Cut(f.ext, "::")
			path := filepath.Join(folder, fmt.Sprint("file", i)) + ext
			if err := os.WriteFile(path, []byte(f.content), 0o600); err != nil {
				t.Fatal(err)
			}
			spec := path
			if named {
				spec += "::" + rest
			}
			var err error
			took := testkit.Allocated(func() { _, err = Read(t.Context(), spec, f.o) })
			if strconv.IntSize < 64 && errors.Is(err, sentinel.ErrOutOfMemory) {
				// A claim that does not fit an int is refused before its other faults are found.
				checkError(t, err, sentinel.ErrOutOfMemory, path, "shape")
			} else {
				checkError(t, err, f.kind, path, f.message)
			}
			if most := uint64(2*len(f.content) + 1<<20); took > most {
				t.Errorf("reading %d bytes allocated %d bytes, want at most %d", len(f.content), took, most)
			}
		})
	}
}

// checkError checks that err is of the given kind and that its message is one line with name and
// message.
func checkError(t *testing.T, err, kind error, name, message string) {
	t.Helper()
	switch {
	case err == nil:
		t.Fatalf("got no error, want %v", kind)
	case !errors.Is(err, kind):
		t.Errorf("got error %v, want %v", err, kind)
	case !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), message):
		t.Errorf("got error %q, want one containing %q and %q", err, name, message)
	case strings.ContainsAny(err.Error(), "\n\r\x00\x1b"):
		t.Errorf("got error %q, want one line", err)
	}
}

// TestNoRoom checks that Room is called before memory is allocated for a matrix that is much larger
// than its file, and that its error ends the read.
func TestNoRoom(t *testing.T) {
	folder := t.TempDir()
	bomb := npy(npyHeaderOf("(2000, 2000)"), 0) + strings.Repeat("\x00", 16e6)
	for name, content := range map[string]string{
		"bomb.npz":   archive(member{name: "a.npy", content: bomb}),
		"sparse.mtx": "%%MatrixMarket matrix coordinate real general\n2000 2000 1\n1 1 1\n",
		"bytes.npy":  npy("{'descr': '|i1', 'fortran_order': False, 'shape': (2000, 2000)}", 4e6),
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		asked := 0
		full := fmt.Errorf("%w: no room", sentinel.ErrOutOfMemory)
		took := testkit.Allocated(func() {
			_, err := Read(t.Context(), path, ReadOptions{Type: dtype.F32, Room: func(bytes int, what string) error {
				if asked++; bytes < 16e6 || !strings.Contains(what, "2000×2000") || !strings.Contains(what, path) {
					t.Errorf("%s: Room was called with %d bytes for %s", name, bytes, what)
				}
				return full
			}})
			if !errors.Is(err, full) || asked != 1 {
				t.Errorf("%s: got error %v after %d calls of Room", name, err, asked)
			}
		})
		if most := uint64(2*len(content) + 1<<20); took > most {
			t.Errorf("%s: reading %d bytes allocated %d bytes, want at most %d", name, len(content), took, most)
		}
	}
}

func TestNumpyFilesWithoutMatrix(t *testing.T) {
	for name, message := range map[string]string{
		"scalar.npy":             "0 dimensions, shape ()",
		"vector.npy":             "array has shape (5,)",
		"cube.npy":               "3 dimensions, shape (2, 2, 2)",
		"complex.npy":            `"<c16" (complex numbers), want float64, float32, float16, int8, uint8, int32`,
		"text.npy":               `"<U1" (text)`,
		"object.npy":             `"|O" (Python objects)`,
		"struct.npy":             "structured type",
		"bias.npz::names":        "(text)",
		"bias.npz::bias":         "want 2 dimensions",
		"coordinate-complex.mtx": `field "complex"`,
	} {
		_, err := Read(t.Context(), "testdata/"+name, ReadOptions{})
		checkError(t, err, gemm.ErrUnsupported, "testdata/"+name, message)
	}
}

func TestNoFile(t *testing.T) {
	folder := t.TempDir()
	_, err := Read(t.Context(), filepath.Join(folder, "none.npy"), ReadOptions{})
	checkError(t, err, fs.ErrNotExist, "none.npy", "")
	if err := os.Mkdir(filepath.Join(folder, "folder.npy"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = Read(t.Context(), filepath.Join(folder, "folder.npy"), ReadOptions{})
	if !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), "folder.npy: is a directory") {
		t.Errorf("reading a folder: got error %v", err)
	}
	_, err = Read(t.Context(), folder, ReadOptions{})
	checkError(t, err, syscall.EISDIR, filepath.Base(folder), "is a directory")
	// A name with a newline is quoted.
	_, err = Read(t.Context(), "new\nline.txt", ReadOptions{})
	checkError(t, err, fs.ErrNotExist, `"new\nline.txt"`, "")
}

func TestSpecs(t *testing.T) {
	for _, c := range []struct{ spec, path, member string }{
		{"a.npy", "a.npy", ""},
		{"a.NPZ::x", "a.NPZ", "x"},
		{"a.npz::x::y.npz::z", "a.npz", "x::y.npz::z"},
		{"dir::v2/a.npz::x", "dir::v2/a.npz", "x"},
		{"dir:::/a.safetensors:::x", "dir:::/a.safetensors", ":x"},
		{"a.npz:x.npz", "a.npz:x.npz", ""},
	} {
		p, err := parseSpec(c.spec)
		if err != nil || p.path != c.path || p.member != c.member {
			t.Errorf("parseSpec(%q) = path %q, member %q, error %v; want %q and %q", c.spec, p.path, p.member, err,
				c.path, c.member)
		}
	}
}
