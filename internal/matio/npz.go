package matio

import (
	"archive/zip"
	"io"
	"math"
	"strings"
	"time"

	"tilework/internal/gemm"
)

// maxDeflate is how many bytes one byte of a deflate stream can become: two bits
// can stand for a copy of 258 bytes (RFC 1951, §3.2.5).
const maxDeflate = 1032

// openNpz opens the archive. The member asked for may be named with its file's ".npy".
func (s *source) openNpz() (*zip.Reader, error) {
	s.member = strings.TrimSuffix(s.member, ".npy")
	// A section answers a negative offset of the directory with an early end.
	archive, err := zip.NewReader(s.section(0, s.size), s.size)
	if err != nil {
		return nil, s.readError(err)
	}
	return archive, nil
}

// npzMembers are the names of the arrays, and of what else there is.
func npzMembers(s *source) ([]string, error) {
	archive, err := s.openNpz()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range archive.File {
		names = append(names, strings.TrimSuffix(f.Name, ".npy"))
	}
	return names, nil
}

func readNpz(s *source) (*Matrix, error) {
	archive, err := s.openNpz()
	if err != nil {
		return nil, err
	}
	var files []*zip.File
	var members []string
	seen := map[string]bool{}
	for _, f := range archive.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			continue
		}
		if seen[name] {
			return nil, s.fail(ErrFormat, "member %q appears twice", name)
		}
		seen[name] = true
		files = append(files, f)
		members = append(members, name)
	}
	i, err := s.pick(members, func(i int) bool {
		r, _, err := s.openMember(files[i])
		if err == nil {
			r.Close()
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	r, h, err := s.openMember(files[i])
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return s.inflate(r, h, files[i])
}

// openMember opens a member and reads its header. What the directory says of its
// size must be possible, and what the header says must be that.
func (s *source) openMember(f *zip.File) (io.ReadCloser, npyHeader, error) {
	var h npyHeader
	packed, size := f.CompressedSize64, f.UncompressedSize64
	switch {
	case f.Flags&1 != 0:
		return nil, h, s.fail(gemm.ErrUnsupported, "the member is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return nil, h, s.fail(gemm.ErrUnsupported, "compression method %d, want stored (0) or deflated (8)", f.Method)
	case packed > uint64(s.size):
		return nil, h, s.fail(ErrFormat, "a member of %d packed bytes, the file holds %d", packed, s.size)
	case size > math.MaxInt64,
		f.Method == zip.Store && size != packed,
		f.Method == zip.Deflate && size/maxDeflate > packed:
		return nil, h, s.fail(ErrFormat, "a member of %d bytes, which %d packed bytes cannot be", size, packed)
	}
	r, err := f.Open()
	if err != nil {
		return nil, h, s.readError(err)
	}
	h, err = s.npyHeader(r, int64(size))
	if err == nil {
		err = s.checkSize(h.layout, int64(size)-h.length)
	}
	if err != nil {
		r.Close()
		return nil, h, err
	}
	return r, h, nil
}

// inflate reads the elements. Memory is taken as they come, at most twice what
// has come so far, because the size that header and directory agree on can
// still be a lie.
func (s *source) inflate(r io.Reader, h npyHeader, f *zip.File) (*Matrix, error) {
	if err := s.room(h.layout); err != nil {
		return nil, err
	}
	want := h.layout.Bytes()
	first := want
	if f.Method != zip.Store { // whose size is the file's own
		first = min(want, max(64<<10, 4*int(f.CompressedSize64)))
	}
	data := alloc(first)
	for n := 0; ; {
		k, err := io.ReadFull(r, data[n:])
		n += k
		if isEOF(err) {
			return nil, s.fail(ErrFormat, "the elements take %d bytes, the member ends after %d", want, n)
		}
		if err != nil {
			return nil, s.readError(err)
		}
		if n == want {
			break
		}
		more := alloc(min(want, 2*n))
		copy(more, data)
		data = more
	}
	// At the end, the archive checks the sum of what it gave.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, s.readError(err)
	}
	if h.big != bigEndian {
		swapBytes(data, h.layout.Type.Size())
	}
	return &Matrix{Layout: h.layout, Data: data}, nil
}

// writeNpz writes an archive of one stored member, as numpy.savez does. Its date
// is the first that zip knows: the same matrix gives the same bytes.
func writeNpz(w io.Writer, member string, l gemm.Layout, data []byte) error {
	archive := zip.NewWriter(w)
	f, err := archive.CreateHeader(&zip.FileHeader{
		Name:     strings.TrimSuffix(member, ".npy") + ".npy",
		Method:   zip.Store,
		Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	if err != nil {
		return err
	}
	if err := writeNpy(f, "", l, data); err != nil {
		return err
	}
	return archive.Close()
}
