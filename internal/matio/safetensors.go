package matio

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// safetensorsTypes maps types to their spellings in a safetensors header. See
// https://huggingface.co/docs/safetensors for the format.
var safetensorsTypes = map[dtype.Type]string{
	dtype.F64: "F64", dtype.F32: "F32", dtype.F16: "F16", dtype.BF16: "BF16", dtype.I8: "I8", dtype.I32: "I32",
	dtype.F8E4M3: "F8_E4M3", dtype.F8E5M2: "F8_E5M2", dtype.U8: "U8",
}

const (
	safetensorsMaxHeader = 100_000_000
	safetensorsMetadata  = "__metadata__" // the only key that is not the name of a tensor
)

// tensor is one entry of the header. Its data are the bytes [start, end) after the header.
type tensor struct {
	name, dtype string
	shape       []uint64
	start, end  uint64
}

// tensors reads the header. It returns the tensors in the order of their data, and the file offset
// of the data.
func (s *source) tensors() ([]tensor, int64, error) {
	var start [8]byte
	if _, err := io.ReadFull(s.section(0, s.size), start[:]); err != nil {
		return nil, 0, s.readError(err)
	}
	length := binary.LittleEndian.Uint64(start[:])
	switch {
	case length > safetensorsMaxHeader:
		return nil, 0, s.fail(ErrFormat, "header has %d bytes: want at most %d", length, safetensorsMaxHeader)
	case int64(length) > s.size-8:
		return nil, 0, s.fail(ErrFormat, "header has %d bytes, the file only %d", length, s.size-8)
	}
	off := 8 + int64(length)
	tensors, err := parseTensors(s.section(8, int64(length)))
	if err == nil {
		err = checkTensors(tensors, uint64(s.size-off))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", oneLine(s.spec), err)
	}
	return tensors, off, nil
}

// listSafetensors lists the tensors of the file.
func listSafetensors(s *source) ([]Entry, error) {
	tensors, _, err := s.tensors()
	var entries []Entry
	for _, t := range tensors {
		e, _ := s.format.element(t.dtype)
		entries = append(entries, Entry{Member: t.name, Type: t.dtype, Shape: t.shape, Native: e.native})
	}
	return entries, err
}

// readSafetensors reads a tensor of the file.
func readSafetensors(s *source) (*Matrix, error) {
	tensors, off, err := s.tensors()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(tensors))
	for i := range tensors {
		names[i] = tensors[i].name
	}
	i, err := s.pick(names, func(i int) int {
		e, ok := s.format.element(tensors[i].dtype)
		if !ok {
			return 0
		}
		return s.rank(e, tensors[i].shape)
	})
	if err != nil {
		return nil, err
	}
	t := &tensors[i]
	e, ok := s.format.element(t.dtype)
	if !ok {
		return nil, s.fail(gemm.ErrUnsupported, "elements of type %.40q, want %s", t.dtype, s.format.elementNames())
	}
	l, err := s.layout(e, t.shape, false)
	if err != nil {
		return nil, err
	}
	length := int64(t.end - t.start)
	if err := s.checkSize(l, e, length); err != nil {
		return nil, err
	}
	return s.loadOrMap(off+int64(t.start), length, l, e, false)
}

// checkTensors returns an error unless the tensors have different names and cover the data without
// gaps or overlaps. It sorts them by offset.
func checkTensors(tensors []tensor, size uint64) error {
	slices.SortFunc(tensors, func(a, b tensor) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(tensors); i++ {
		if tensors[i].name == tensors[i-1].name {
			return fmt.Errorf("%w: tensor %.60q appears twice", ErrFormat, tensors[i].name)
		}
	}
	slices.SortStableFunc(tensors, func(a, b tensor) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	var at uint64
	for i := range tensors {
		switch t := &tensors[i]; {
		case t.start != at || t.end < t.start:
			return fmt.Errorf("%w: tensor %.60q has bytes %d to %d, want them to start at %d, after the previous tensor",
				ErrFormat, t.name, t.start, t.end, at)
		case t.end > size:
			return fmt.Errorf("%w: tensor %.60q ends at byte %d, the file holds %d", ErrFormat, t.name, t.end, size)
		default:
			at = t.end
		}
	}
	if at != size {
		return fmt.Errorf("%w: the tensors take %d bytes, the file holds %d", ErrFormat, at, size)
	}
	return nil
}

// headerReader parses the JSON of the header token by token. Unlike decoding into structs, this
// detects duplicate keys. It keeps the first error, after which its methods do nothing.
type headerReader struct {
	dec *json.Decoder
	err error
}

// parseTensors parses the header.
func parseTensors(r io.Reader) ([]tensor, error) {
	h := headerReader{dec: json.NewDecoder(r)}
	h.dec.UseNumber()
	var tensors []tensor
	metadata := false
	h.object(func(name string) {
		switch {
		case name != safetensorsMetadata:
			tensors = append(tensors, h.tensor(name))
		case metadata:
			h.fail("%q appears twice", name)
		default:
			metadata = true
			seen := map[string]bool{}
			h.object(func(key string) {
				if seen[key] {
					h.fail("%.60q appears twice in the metadata", key)
				}
				seen[key] = true
				h.str()
			})
		}
	})
	if h.err == nil {
		if _, err := h.dec.Token(); err != io.EOF {
			h.fail("unexpected data after the header's object")
		}
	}
	return tensors, h.err
}

// tensor parses the entry of a tensor.
func (h *headerReader) tensor(name string) tensor {
	t := tensor{name: name}
	var offsets []uint64
	seen := map[string]bool{}
	h.object(func(key string) {
		if seen[key] {
			h.fail("tensor %.60q has %.60q twice", name, key)
		}
		switch key {
		case "dtype":
			t.dtype = h.str()
		case "shape":
			t.shape = h.integers()
		case "data_offsets":
			offsets = h.integers()
		default: // ignored, as by the reference
			h.skip()
			return
		}
		seen[key] = true
	})
	if h.err == nil && (len(seen) != 3 || len(offsets) != 2) {
		h.fail("tensor %.60q: want dtype, shape and two data_offsets", name)
		return t
	}
	if h.err == nil {
		t.start, t.end = offsets[0], offsets[1]
	}
	return t
}

// skip parses a value of any kind.
func (h *headerReader) skip() {
	for depth := 0; h.err == nil; {
		switch h.token() {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return
		}
	}
}

// object parses {"key": value, …} and calls value to parse each value.
func (h *headerReader) object(value func(key string)) {
	h.delim('{')
	for h.err == nil && h.dec.More() {
		value(h.str())
	}
	h.delim('}')
}

// integers parses a list of non-negative integers.
func (h *headerReader) integers() []uint64 {
	var all []uint64
	h.delim('[')
	for h.err == nil && h.dec.More() {
		number, _ := h.token().(json.Number)
		n, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			h.fail("%.40q found, want an integer from 0 to 2^64-1", number)
		}
		all = append(all, n)
	}
	h.delim(']')
	return all
}

// str parses a string.
func (h *headerReader) str() string {
	token := h.token()
	text, ok := token.(string)
	if !ok {
		h.fail("found %s, want a string", shown(token))
	}
	return text
}

// delim parses a delimiter.
func (h *headerReader) delim(want json.Delim) {
	if token := h.token(); token != want {
		h.fail("found %s, want %v", shown(token), want)
	}
}

// shown formats a token for a message. Strings are quoted and shortened.
func shown(token json.Token) string {
	switch token := token.(type) {
	case string:
		return shorten([]byte(token))
	case nil:
		return "null"
	}
	return fmt.Sprintf("%.40v", token)
}

// token returns the next token, or nil after an error.
func (h *headerReader) token() json.Token {
	if h.err != nil {
		return nil
	}
	token, err := h.dec.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return token
	case isEOF(err):
		h.fail("JSON ends too early")
	case errors.As(err, &syntax):
		h.fail("%v", err)
	default:
		h.err = err
	}
	return nil
}

// fail records an error unless there is one.
func (h *headerReader) fail(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf("%w: header at byte %d: %s", ErrFormat, h.dec.InputOffset(), fmt.Sprintf(format, args...))
	}
}

// startSafetensors returns the start of a file with one tensor, up to the elements.
func startSafetensors(member string, l gemm.Layout) ([]byte, error) {
	header := &bytes.Buffer{}
	header.Write(make([]byte, 8)) // the length of the header, set below
	encoder := json.NewEncoder(header)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{member: struct {
		Type    string   `json:"dtype"`
		Shape   [2]int   `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}{
		safetensorsTypes[l.Type], [2]int{l.OpRows(), l.OpCols()},
		[2]int64{0, elementBytes(l)},
	}})
	if err != nil {
		return nil, err
	}
	header.Truncate(header.Len() - 1) // the encoder's newline
	// Align the elements to 8 bytes, for readers that map the file.
	header.WriteString(strings.Repeat(" ", (8-header.Len()%8)%8))
	binary.LittleEndian.PutUint64(header.Bytes(), uint64(header.Len()-8))
	return header.Bytes(), nil
}

// writeSafetensors writes a file with one tensor.
func writeSafetensors(w io.Writer, member string, l gemm.Layout, data []byte) error {
	start, err := startSafetensors(member, l)
	if err != nil {
		return err
	}
	if _, err := w.Write(start); err != nil {
		return err
	}
	return writeRows(w, l, data, false)
}
