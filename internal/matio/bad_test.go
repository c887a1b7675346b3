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
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// npy is an array file with the given header and so many bytes of elements.
func npy(header string, elements int) string {
	b := append([]byte(npyMagic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	return string(b) + header + strings.Repeat("\x01", elements)
}

func npyHeaderOf(shape string) string {
	return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n"
}

// safe is a safetensors file with the given header and so many bytes of elements.
func safe(header string, elements int) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("\x01", elements)
}

func tensorJSON(name, dtype, shape string, start, end int) string {
	return fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, start, end)
}

// member is one file of an archive.
type member struct {
	name, content string
	change        func(*zip.FileHeader) // what the directory says instead of the truth
	packed        []byte                // instead of the content
}

// archive is a zip file of deflated members.
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

// badFiles are files that are refused, with the error's kind and parts of its
// message.
var badFiles = []struct {
	name    string
	ext     string // and what follows it in the spec
	content string
	o       ReadOptions
	kind    error
	message string
}{
	{"empty", ".npy", "", ReadOptions{}, ErrFormat, "empty"},
	{"no magic", ".npy", "not an array file", ReadOptions{}, ErrFormat, `starts with "not an"`},
	{"short magic", ".npy", "\x93NUM", ReadOptions{}, ErrFormat, "starts with"},
	{"only magic", ".npy", "\x93NUMPY\x01\x00", ReadOptions{}, ErrFormat, "header of 10 bytes, the file holds 8"},
	{"version 4", ".npy", "\x93NUMPY\x04\x00\x00\x00\x00\x00", ReadOptions{}, gemm.ErrUnsupported, "version 4.0, want 1 to 3"},
	{"header longer than the file", ".npy", "\x93NUMPY\x01\x00\xff\xff{}", ReadOptions{}, ErrFormat, "header of 65545 bytes, the file holds 12"},
	{"header too long", ".npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff{}", ReadOptions{}, ErrFormat, "header of 4294967295 bytes, want at most 65536"},
	{"header with a structured type", ".npy", npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{}, gemm.ErrUnsupported, "structured"},
	{"header with an unknown key", ".npy", npy("{'descr': '<f4', 'order': False}", 4), ReadOptions{}, ErrFormat, `unknown header key "order"`},
	{"header with a key twice", ".npy", npy("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{}, ErrFormat, `"descr" appears twice`},
	{"header without a key", ".npy", npy("{'descr': '<f4', 'shape': (1, 1)}", 4), ReadOptions{}, ErrFormat, `lacks the key "fortran_order"`},
	{"header with an expression", ".npy", npy(npyHeaderOf("(1, __import__('os'))"), 4), ReadOptions{}, ErrFormat, "want a shape"},
	{"header with an end inside", ".npy", npy("{'descr': '<f4', 'fortran_order'", 4), ReadOptions{}, ErrFormat, "the header ends where : is wanted"},
	{"header with an open string", ".npy", npy("{'descr': '<f4", 4), ReadOptions{}, ErrFormat, "want a type"},
	{"header with something after it", ".npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)} 5", 4), ReadOptions{}, ErrFormat, "want the end"},
	{"header without commas", ".npy", npy("{'descr': '<f4' 'fortran_order': False}", 4), ReadOptions{}, ErrFormat, "want , or }"},
	{"header with an escape", ".npy", npy(`{'descr': '\x3cf4'}`, 4), ReadOptions{}, ErrFormat, "want a type"},
	{"header of zeros", ".npy", npy("\x00\x00\x00", 4), ReadOptions{}, ErrFormat, "want a dictionary"},
	{"shape that is a number", ".npy", npy(npyHeaderOf("(4)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"shape without commas", ".npy", npy(npyHeaderOf("(2 2)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"negative shape", ".npy", npy(npyHeaderOf("(-1, 4)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"shape beyond 64 bits", ".npy", npy(npyHeaderOf("(1, 99999999999999999999)"), 16), ReadOptions{}, ErrFormat, "want a shape"},
	{"shape of 2^63", ".npy", npy(npyHeaderOf("(9223372036854775808, 1)"), 16), ReadOptions{}, ErrFormat, "beyond this machine's integers"},
	{"shape whose product overflows", ".npy", npy(npyHeaderOf("(4294967296, 4294967296)"), 16), ReadOptions{}, ErrFormat, "more bytes than 63 bits count"},
	{"shape whose product wraps to the truth", ".npy", npy(npyHeaderOf("(4611686018427387905, 4)"), 16), ReadOptions{}, ErrFormat, "more bytes than 63 bits count"},
	{"shape larger than the file", ".npy", npy(npyHeaderOf("(100000, 100000)"), 16), ReadOptions{}, ErrFormat, "takes 40000000000 bytes, the file holds 16"},
	{"elements cut off", ".npy", npy(npyHeaderOf("(2, 2)"), 15), ReadOptions{}, ErrFormat, "takes 16 bytes, the file holds 15"},
	{"elements left over", ".npy", npy(npyHeaderOf("(2, 2)"), 17), ReadOptions{}, ErrFormat, "takes 16 bytes, the file holds 17"},
	{"no byte order", ".npy", npy("{'descr': '|f4', 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{}, ErrFormat, "byte order"},
	{"no type", ".npy", npy("{'descr': '', 'fortran_order': False, 'shape': (1, 1)}", 4), ReadOptions{}, gemm.ErrUnsupported, `type ""`},
	{"matrix as vector", ".npy", npy(npyHeaderOf("(2, 2)"), 16), ReadOptions{Vector: true}, gemm.ErrShape, "2×2 matrix, want a vector"},
	{"inexact integer", ".npy", npy(npyHeaderOf("(1, 1)"), 4), ReadOptions{Type: dtype.I8}, ErrRange, "row 1, column 1: 2.3694278276172396e-38, and int8 takes whole numbers of -128 to 127"},
	{"member of an npy file", ".npy::x", npy(npyHeaderOf("(1, 1)"), 4), ReadOptions{}, ErrMember, "holds one matrix"},

	{"no archive", ".npz", "PK but no archive", ReadOptions{}, ErrFormat, "not a valid zip file"},
	{"empty member name", ".npz::", archive(), ReadOptions{}, ErrMember, "no name after ::"},
	{"no such member", ".npz::c", archive(member{name: "a.npy"}, member{name: "b.npy"}, member{name: "c.txt"}), ReadOptions{}, ErrMember, `holds "a", "b"`},
	{"no members", ".npz", archive(), ReadOptions{}, ErrMember, "holds no arrays"},
	{"two matrices", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(1, 1)"), 4)}, member{name: "b.npy", content: npy(npyHeaderOf("(1, 1)"), 4)}), ReadOptions{}, ErrMember, `holds "a", "b": want`},
	{"many members", ".npz", archive(manyMembers(14)...), ReadOptions{}, ErrMember, `"m9" and 4 more`},
	{"a member twice", ".npz", archive(member{name: "a.npy"}, member{name: "a.npy"}), ReadOptions{}, ErrFormat, `"a" appears twice`},
	{"member with elements cut off", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 15)}), ReadOptions{}, ErrFormat, "::a: malformed: 2×2 float32 takes 16 bytes, the file holds 15"},
	{"member with an encrypted content", ".npz", archive(member{name: "a.npy", change: func(h *zip.FileHeader) { h.Flags |= 1 }}), ReadOptions{}, gemm.ErrUnsupported, "encrypted"},
	{"member packed as LZMA", ".npz", archive(member{name: "a.npy", change: func(h *zip.FileHeader) { h.Method = 14 }}), ReadOptions{}, gemm.ErrUnsupported, "compression method 14"},
	{"member with a wrong checksum", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 16), change: func(h *zip.FileHeader) { h.CRC32++ }}), ReadOptions{}, ErrFormat, "checksum"},
	{"member of garbage", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 16), packed: bytes.Repeat([]byte{0xff}, 100)}), ReadOptions{}, ErrFormat, "flate"},
	{"stored member of two sizes", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 16), change: func(h *zip.FileHeader) { h.Method = zip.Store; h.UncompressedSize64 = 1 << 40 }}), ReadOptions{}, ErrFormat, "1099511627776 bytes, which"},
	{"member of an impossible size", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(100000, 100000)"), 0), change: func(h *zip.FileHeader) { h.UncompressedSize64 += 4e10 }}), ReadOptions{}, ErrFormat, "packed bytes cannot be"},
	{"member of a possible but untrue size", ".npz", archive(untrueSize(1 << 22)), ReadOptions{}, ErrFormat, "the member ends after 65"},
	{"member that goes on", ".npz", archive(member{name: "a.npy", content: npy(npyHeaderOf("(2, 2)"), 1000), change: func(h *zip.FileHeader) { h.UncompressedSize64 -= 984 }}), ReadOptions{}, ErrFormat, "not a valid zip file"},
	{"member before the file", ".npz", beforeStart(), ReadOptions{}, ErrFormat, "ends too early"},

	{"no header", ".safetensors", "\x01\x00", ReadOptions{}, ErrFormat, "ends too early"},
	{"header too long", ".safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", ReadOptions{}, ErrFormat, "header of 18446744073709551615 bytes, want at most 100000000"},
	{"header longer than the file", ".safetensors", "\xff\x00\x00\x00\x00\x00\x00\x00{}", ReadOptions{}, ErrFormat, "header of 255 bytes, the file holds 2"},
	{"header that is no object", ".safetensors", safe(`[]`, 0), ReadOptions{}, ErrFormat, "[ where { is wanted"},
	{"header that is a string with lines", ".safetensors", safe(`"\f\n\r"`, 0), ReadOptions{}, ErrFormat, `"\f\n\r" where { is wanted`},
	{"header cut off", ".safetensors", safe(`{"a":{"dtype":"F32"`, 0), ReadOptions{}, ErrFormat, "JSON ends too early"},
	{"header with broken JSON", ".safetensors", safe(`{"a" 5}`, 0), ReadOptions{}, ErrFormat, "invalid character"},
	{"header with something after it", ".safetensors", safe(`{} {}`, 0), ReadOptions{}, ErrFormat, "something follows"},
	{"header without tensors", ".safetensors", safe(`{}`, 0), ReadOptions{}, ErrMember, "holds no arrays"},
	{"header of nothing", ".safetensors", safe(`null`, 0), ReadOptions{}, ErrFormat, "null where { is wanted"},
	{"tensor with an unknown key", ".safetensors", safe(`{"a":{"type":"F32"}}`, 0), ReadOptions{}, ErrFormat, `unknown key "type"`},
	{"tensor without a shape", ".safetensors", safe(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), ReadOptions{}, ErrFormat, "wants dtype, shape and two data_offsets"},
	{"tensor with three offsets", ".safetensors", safe(`{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,2,4]}}`, 4), ReadOptions{}, ErrFormat, "two data_offsets"},
	{"tensor with a key twice", ".safetensors", safe(`{"a":{"dtype":"F32","dtype":"F64"}}`, 0), ReadOptions{}, ErrFormat, `has "dtype" twice`},
	{"tensor twice", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("a", "F32", "[1,1]", 4, 8)+"}", 8), ReadOptions{}, ErrFormat, `"a" appears twice`},
	{"metadata twice", ".safetensors", safe(`{"__metadata__":{},"__metadata__":{}}`, 0), ReadOptions{}, ErrFormat, "appears twice"},
	{"metadata with a key twice", ".safetensors", safe(`{"__metadata__":{"a":"","a":""}}`, 0), ReadOptions{}, ErrFormat, "twice in the metadata"},
	{"metadata that is no text", ".safetensors", safe(`{"__metadata__":{"a":5}}`, 0), ReadOptions{}, ErrFormat, "5 where a string is wanted"},
	{"negative shape", ".safetensors", safe("{"+tensorJSON("a", "F32", "[-1,1]", 0, 4)+"}", 4), ReadOptions{}, ErrFormat, `"-1" among integers`},
	{"shape that is no integer", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1.0,1]", 0, 4)+"}", 4), ReadOptions{}, ErrFormat, `"1.0" among integers`},
	{"shape that is text", ".safetensors", safe("{"+tensorJSON("a", "F32", `["1",1]`, 0, 4)+"}", 4), ReadOptions{}, ErrFormat, "among integers"},
	{"shape of 2^63", ".safetensors", safe("{"+tensorJSON("a", "F32", "[9223372036854775808,1]", 0, 4)+"}", 4), ReadOptions{}, ErrFormat, "beyond this machine's integers"},
	{"shape whose product overflows", ".safetensors", safe("{"+tensorJSON("a", "F32", "[4294967296,4294967296]", 0, 4)+"}", 4), ReadOptions{}, ErrFormat, "more bytes than 63 bits count"},
	{"shape and bytes that differ", ".safetensors", safe("{"+tensorJSON("a", "F32", "[2,2]", 0, 4)+"}", 4), ReadOptions{}, ErrFormat, "takes 16 bytes, the file holds 4"},
	{"tensors that overlap", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("b", "F32", "[1,1]", 2, 6)+"}", 6), ReadOptions{}, ErrFormat, `"b" has bytes 2 to 6, want them to start at 4`},
	{"tensors with a gap", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("b", "F32", "[1,1]", 6, 10)+"}", 10), ReadOptions{}, ErrFormat, `"b" has bytes 6 to 10, want them to start at 4`},
	{"tensor that ends before it starts", ".safetensors", safe("{"+tensorJSON("b", "F32", "[1,1]", 0, -1)+"}", 4), ReadOptions{}, ErrFormat, `"-1" among`},
	{"offsets the wrong way round", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+","+tensorJSON("b", "F32", "[1,1]", 4, 0)+"}", 4), ReadOptions{}, ErrFormat, `"b" has bytes 4 to 0`},
	{"offsets beyond the file", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+"}", 3), ReadOptions{}, ErrFormat, "ends at byte 4, the file holds 3"},
	{"elements left over", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1]", 0, 4)+"}", 5), ReadOptions{}, ErrFormat, "take 4 bytes, the file holds 5"},
	{"unsupported tensor", ".safetensors", safe("{"+tensorJSON("a", "F8_E8M0", "[1,1]", 0, 1)+"}", 1), ReadOptions{}, gemm.ErrUnsupported, `"F8_E8M0", want float64`},
	{"three dimensions", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1,1,1]", 0, 4)+"}", 4), ReadOptions{}, gemm.ErrUnsupported, "3 dimensions, shape (1, 1, 1)"},
	{"one dimension", ".safetensors", safe("{"+tensorJSON("a", "F32", "[1]", 0, 4)+"}", 4), ReadOptions{}, gemm.ErrUnsupported, "1 dimensions, shape (1,)"},

	{"no banner", ".mtx", "1 1\n5\n", ReadOptions{}, ErrFormat, `starts with "1 1"`},
	{"late banner", ".mtx", "\n%%MatrixMarket matrix array real general\n1 1\n5\n", ReadOptions{}, ErrFormat, "want %%MatrixMarket matrix"},
	{"vector object", ".mtx", "%%MatrixMarket vector array real general\n", ReadOptions{}, ErrFormat, "want %%MatrixMarket matrix"},
	{"unknown format", ".mtx", "%%MatrixMarket matrix dense real general\n", ReadOptions{}, gemm.ErrUnsupported, `"dense", want array or coordinate`},
	{"complex", ".mtx", "%%MatrixMarket matrix array complex general\n", ReadOptions{}, gemm.ErrUnsupported, `"complex", want real`},
	{"hermitian", ".mtx", "%%MatrixMarket matrix array real hermitian\n", ReadOptions{}, gemm.ErrUnsupported, `"hermitian", want general`},
	{"array of a pattern", ".mtx", "%%MatrixMarket matrix array pattern general\n", ReadOptions{}, ErrFormat, "no values"},
	{"no sizes", ".mtx", "%%MatrixMarket matrix array real general\n% none\n", ReadOptions{}, ErrFormat, "ends before its sizes"},
	{"too many sizes", ".mtx", "%%MatrixMarket matrix array real general\n1 1 1\n5\n", ReadOptions{}, ErrFormat, `line 2: "1 1 1", want sizes as "rows columns"`},
	{"too few sizes", ".mtx", "%%MatrixMarket matrix coordinate real general\n1 1\n5\n", ReadOptions{}, ErrFormat, `want sizes as "rows columns entries"`},
	{"negative size", ".mtx", "%%MatrixMarket matrix array real general\n-1 1\n5\n", ReadOptions{}, ErrFormat, "want sizes"},
	{"size of 2^63", ".mtx", "%%MatrixMarket matrix array real general\n9223372036854775808 1\n5\n", ReadOptions{}, ErrFormat, "beyond this machine's integers"},
	{"sizes whose product overflows", ".mtx", "%%MatrixMarket matrix coordinate real general\n4294967296 4294967296 0\n", ReadOptions{}, ErrFormat, "more bytes than 63 bits count"},
	{"array larger than the file", ".mtx", "%%MatrixMarket matrix array real general\n100000 100000\n5\n", ReadOptions{}, ErrFormat, "10000000000 entries, which take at least 2 bytes each"},
	{"more entries than the file has room for", ".mtx", "%%MatrixMarket matrix coordinate real general\n9 9 1000000\n1 1 1\n", ReadOptions{}, ErrFormat, "1000000 entries, which take at least 4 bytes each"},
	{"too sparse", ".mtx", "%%MatrixMarket matrix coordinate real general\n100000 100000 1\n1 1 1\n", ReadOptions{}, ErrTooSparse, "takes 80000000000 bytes"},
	{"too sparse is out of memory", ".mtx", "%%MatrixMarket matrix coordinate real general\n100000 100000 1\n1 1 1\n", ReadOptions{}, gemm.ErrOutOfMemory, "64 times the file"},
	{"symmetric but not square", ".mtx", "%%MatrixMarket matrix array real symmetric\n1 2\n5\n", ReadOptions{}, ErrFormat, "1×2 and symmetric"},
	{"array cut off", ".mtx", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", ReadOptions{}, ErrFormat, "ends before its last entry"},
	{"array too long", ".mtx", "%%MatrixMarket matrix array real general\n1 2\n1\n2\n3\n", ReadOptions{}, ErrFormat, "line 5: more than the 2 entries"},
	{"two values on a line", ".mtx", "%%MatrixMarket matrix array real general\n1 2\n1 2\n", ReadOptions{}, ErrFormat, `line 3: "1 2", want one number`},
	{"value that is no number", ".mtx", "%%MatrixMarket matrix array real general\n1 1\n1_0\n", ReadOptions{}, ErrFormat, `"1_0", want one number`},
	{"hexadecimal value", ".mtx", "%%MatrixMarket matrix array real general\n1 1\n0x1p0\n", ReadOptions{}, ErrFormat, "want one number"},
	{"integer that is none", ".mtx", "%%MatrixMarket matrix array integer general\n1 1\n1.5\n", ReadOptions{}, ErrFormat, "want one number"},
	{"many columns without a row", ".mtx", "%%MatrixMarket matrix array real general\n0 900000000000\n5\n", ReadOptions{}, ErrFormat, "line 3: more than the 0 entries"},
	{"row 0", ".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 1\n", ReadOptions{}, ErrFormat, `line 3: row "0", want a number of 1 to 2`},
	{"column 3", ".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 3 1\n", ReadOptions{}, ErrFormat, `column "3", want a number of 1 to 2`},
	{"no value", ".mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1\n", ReadOptions{}, ErrFormat, `"", want one number`},
	{"pattern with a value", ".mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1 1\n", ReadOptions{}, ErrFormat, "want nothing"},
	{"symmetric entry above the diagonal", ".mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n", ReadOptions{}, ErrFormat, "entry (1, 2)"},
	{"skew-symmetric entry on the diagonal", ".mtx", "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 1\n", ReadOptions{}, ErrFormat, "entry (1, 1)"},
	{"sum beyond the integers", ".mtx", "%%MatrixMarket matrix coordinate integer general\n1 1 2\n1 1 100\n1 1 100\n", ReadOptions{Type: dtype.I8}, ErrRange, "row 1, column 1: 200 in line 4, and int8 takes whole numbers of -128 to 127"},
	{"long line", ".mtx", "%%MatrixMarket matrix array real general\n%" + strings.Repeat("x", maxLine) + "\n1 1\n1\n", ReadOptions{}, ErrFormat, "line 2: longer than"},

	{"matrix as vector", ".csv", "1,2\n3,4\n", ReadOptions{Vector: true}, gemm.ErrShape, "2×2 matrix, want a vector"},
	{"header line", ".csv", "a,b\n1,2\n", ReadOptions{}, ErrFormat, `line 1, column 1: "a" is no number (--csv-header skips a header line)`},
	{"word", ".csv", "1,2\n3, x y\n", ReadOptions{}, ErrFormat, `line 2, column 2: "x y" is no number`},
	{"quoted number", ".csv", "\"1\",2\n", ReadOptions{}, ErrFormat, "is no number"},
	{"decimal commas", ".csv", "1,5;2\n", ReadOptions{}, ErrFormat, `"1,5" is no number`},
	{"another delimiter", ".csv", "1,2\n", ReadOptions{CSV: CSV{Delimiter: '|'}}, ErrFormat, `"1,2" is no number`},
	{"header of other columns", ".csv", "\na,b\n1,2,3\n4,5\n", ReadOptions{CSV: CSV{Header: true}}, ErrFormat, "line 4: the number of columns is 2, in the first line 3"},
	{"header alone", ".csv", "a,b\n", ReadOptions{CSV: CSV{Header: true}}, ErrFormat, "no numbers"},
	{"two header lines", ".csv", "a,b\nc,d\n1,2\n", ReadOptions{CSV: CSV{Header: true}}, ErrFormat, `line 2, column 1: "c" is no number`},
	{"control characters", ".csv", "1,\x00\x1b\n", ReadOptions{}, ErrFormat, `"\x00\x1b" is no number`},
	{"empty field", ".csv", "1,,2\n", ReadOptions{}, ErrFormat, "line 1, column 2 is empty"},
	{"comma at the end", ".csv", "1,2,\n", ReadOptions{}, ErrFormat, "column 3 is empty"},
	{"short line", ".csv", "1,2\n\n3\n", ReadOptions{}, ErrFormat, "line 3: the number of columns is 1, in the first line 2"},
	{"long line", ".csv", "1,2\n3,4,5\n", ReadOptions{}, ErrFormat, "line 2 has more than the 2 columns"},
	{"only blank lines", ".csv", "\xef\xbb\xbf\n \t\r\n", ReadOptions{}, ErrFormat, "no numbers"},
	{"long field", ".csv", strings.Repeat("1", maxField+1), ReadOptions{}, ErrFormat, "longer than 4096 bytes"},
	{"one long line and many short ones", ".csv", strings.Repeat("1,", 50000) + "1\n" + strings.Repeat("1\n", 50000), ReadOptions{}, ErrFormat, "line 2: the number of columns is 1, in the first line 50001"},
	{"fraction as an integer", ".csv", "1,2.5\n", ReadOptions{Type: dtype.I32}, ErrRange, "row 1, column 2: 2.5 in line 1, and int32 takes whole numbers of -2147483648 to 2147483647"},
	{"NaN as an integer", ".csv", "nan\n", ReadOptions{Type: dtype.I32}, ErrRange, "nan in line 1, and int32 takes"},
	{"integer too large", ".csv", "128\n", ReadOptions{Type: dtype.I8}, ErrRange, "128 in line 1, and int8 takes"},

	{"unknown extension", ".txt", "1", ReadOptions{}, gemm.ErrUnsupported, `extension ".txt", want one of .npy, .npz, .safetensors, .mtx, .csv`},
	{"no extension", "", "1", ReadOptions{}, gemm.ErrUnsupported, `extension "", want one of`},
}

func manyMembers(n int) []member {
	var all []member
	for i := range n {
		all = append(all, member{name: fmt.Sprintf("m%d.npy", i)})
	}
	return all
}

// beforeStart is an archive whose directory says that its member starts one byte
// before the file: in an extra field of 64 bits, where -1 of 32 bits sends the reader.
func beforeStart() string {
	a := archive(member{name: "a.npy", change: func(h *zip.FileHeader) {
		h.Extra = []byte("\x01\x00\x08\x00\xff\xff\xff\xff\xff\xff\xff\xff")
	}})
	offset := strings.LastIndex(a, "PK\x01\x02") + 42
	return a[:offset] + "\xff\xff\xff\xff" + a[offset+4:]
}

// untrueSize is a member whose header and directory agree on n bytes of elements,
// of which it holds 64 KiB.
func untrueSize(n int) member {
	content := npy(npyHeaderOf(fmt.Sprintf("(1, %d)", n/4)), 0)
	// Random bytes do not shrink, so that n is less than maxDeflate times them.
	var random strings.Builder
	x := uint32(1)
	for range 64 << 10 {
		x = x*1664525 + 1013904223
		random.WriteByte(byte(x >> 24))
	}
	return member{name: "a.npy", content: content + random.String(), change: func(h *zip.FileHeader) { h.UncompressedSize64 = uint64(len(content) + n) }}
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
			checkError(t, err, f.kind, path, f.message)
			if most := uint64(2*len(f.content) + 1<<20); took > most {
				t.Errorf("a file of %d bytes took %d bytes of memory, want at most %d", len(f.content), took, most)
			}
		})
	}
}

// checkError wants an error of one line, of the given kind, that names the file.
func checkError(t *testing.T, err, kind error, name, message string) {
	t.Helper()
	switch {
	case err == nil:
		t.Fatal("no error")
	case !errors.Is(err, kind):
		t.Errorf("%v: of another kind than %v", err, kind)
	case !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), message):
		t.Errorf("%q does not tell %q and %q", err, name, message)
	case strings.ContainsAny(err.Error(), "\n\r\x00\x1b"):
		t.Errorf("%q is more than a line", err)
	}
}

// TestNoRoom: what a small file would make large is asked for before it is made, and a
// refusal ends the reading.
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
		full := fmt.Errorf("%w: of room", gemm.ErrOutOfMemory)
		took := testkit.Allocated(func() {
			_, err := Read(t.Context(), path, ReadOptions{Type: dtype.F32, Room: func(bytes int, what string) error {
				if asked++; bytes < 16e6 || !strings.Contains(what, "2000×2000") || !strings.Contains(what, path) {
					t.Errorf("%s: asked for %d bytes for %s", name, bytes, what)
				}
				return full
			}})
			if !errors.Is(err, full) || asked != 1 {
				t.Errorf("%s: error %v after %d questions", name, err, asked)
			}
		})
		if most := uint64(2*len(content) + 1<<20); took > most {
			t.Errorf("%s: a file of %d bytes took %d bytes of memory, want at most %d", name, len(content), took, most)
		}
	}
}

func TestNumpyFilesOfOtherThings(t *testing.T) {
	for name, message := range map[string]string{
		"scalar.npy":             "0 dimensions, shape ()",
		"vector.npy":             "1 dimensions, shape (5,)",
		"cube.npy":               "3 dimensions, shape (2, 2, 2)",
		"complex.npy":            `"<c16" (complex numbers), want float64, float32, float16, int8, int32`,
		"text.npy":               `"<U1" (text)`,
		"object.npy":             `"|O" (Python objects)`,
		"struct.npy":             "structured type",
		"bias.npz::names":        "(text)",
		"bias.npz::bias":         "1 dimensions",
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
	var path *fs.PathError
	if !errors.As(err, &path) || !strings.Contains(err.Error(), "folder.npy: is a directory") {
		t.Errorf("reading a folder: %v", err)
	}
	// A name that would break the line is quoted.
	_, err = Read(t.Context(), "new\nline.txt", ReadOptions{})
	checkError(t, err, gemm.ErrUnsupported, `"new\nline.txt"`, "")
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
			t.Errorf("%q is %q and %q (%v), want %q and %q", c.spec, p.path, p.member, err, c.path, c.member)
		}
	}
}
