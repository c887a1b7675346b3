package matio

import (
	"archive/zip"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"tilework/internal/gemm"
)

// maxDeflate is the maximum compression ratio of deflate: two bits can encode a copy of 258 bytes
// (RFC 1951, section 3.2.5).
const maxDeflate = 1032

// openNpz opens the archive.
func (s *source) openNpz() (*zip.Reader, error) {
	// A section reader handles negative offsets in the directory: it returns an error.
	archive, err := zip.NewReader(s.section(0, s.size), s.size)
	if err != nil {
		return nil, s.readError(err)
	}
	return archive, nil
}

// npzArrays returns the array files of the archive and their names.
func (s *source) npzArrays() (files []*zip.File, names []string, err error) {
	archive, err := s.openNpz()
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	rest := uint64(s.size)
	for _, f := range archive.File {
		// Members that share bytes would make a small file long to read.
		if f.CompressedSize64 > rest {
			return nil, nil, s.fail(ErrFormat, "the compressed members take more bytes than the %d of the file", s.size)
		}
		rest -= f.CompressedSize64
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			continue
		}
		if seen[name] {
			return nil, nil, s.fail(ErrFormat, "member %q appears twice", name)
		}
		seen[name] = true
		files, names = append(files, f), append(names, name)
	}
	return files, names, nil
}

// listNpz lists the arrays of the archive.
func listNpz(s *source) ([]Entry, error) {
	files, names, err := s.npzArrays()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(files))
	for i, f := range files {
		if entries[i], err = s.memberEntry(f); err != nil {
			entries[i].Err = err
		}
		entries[i].Member = names[i]
	}
	return entries, nil
}

// memberEntry describes the array of a member.
func (s *source) memberEntry(f *zip.File) (Entry, error) {
	r, err := s.openMember(f)
	if err != nil {
		return Entry{}, err
	}
	defer r.Close()
	return s.npyEntry(r, int64(f.UncompressedSize64))
}

// readNpz reads an array of the archive.
func readNpz(s *source) (*Matrix, error) {
	files, names, err := s.npzArrays()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, s.member) { // the spec may have the name of the file in the archive
		s.member = strings.TrimSuffix(s.member, ".npy")
	}
	i, err := s.pick(names, func(i int) int {
		r, err := s.openMember(files[i])
		if err != nil {
			return 0
		}
		defer r.Close()
		h, err := s.npyHeader(r, int64(files[i].UncompressedSize64))
		if err != nil {
			return 0
		}
		return s.rank(h.element, h.shape)
	})
	if err != nil {
		return nil, err
	}
	return s.readMember(files[i])
}

// openMember opens a member after checking the sizes in the directory.
func (s *source) openMember(f *zip.File) (io.ReadCloser, error) {
	packed, size := f.CompressedSize64, f.UncompressedSize64
	switch {
	case f.Flags&1 != 0:
		return nil, s.fail(gemm.ErrUnsupported, "member is encrypted: want an unencrypted one")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return nil, s.fail(gemm.ErrUnsupported, "compression method %d, want stored (0) or deflated (8)", f.Method)
	case packed > uint64(s.size):
		return nil, s.fail(ErrFormat, "member has %d compressed bytes, the file has only %d", packed, s.size)
	case size > math.MaxInt64,
		f.Method == zip.Store && size != packed,
		f.Method == zip.Deflate && size/maxDeflate > packed:
		return nil, s.fail(ErrFormat, "member has %d bytes: impossible for %d compressed bytes", size, packed)
	}
	r, err := f.Open()
	if err != nil {
		return nil, s.readError(err)
	}
	return r, nil
}

// readMember reads a member. Its header and the directory must agree on its size.
func (s *source) readMember(f *zip.File) (*Matrix, error) {
	r, err := s.openMember(f)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	size := int64(f.UncompressedSize64)
	h, err := s.npyHeader(r, size)
	if err != nil {
		return nil, err
	}
	l, err := s.npyLayout(h, size)
	if err != nil {
		return nil, err
	}
	packed := 0
	if f.Method != zip.Store {
		if err := s.checkExpansion(l, int64(f.CompressedSize64)); err != nil {
			return nil, err
		}
		packed = int(min(max(f.CompressedSize64, 1), math.MaxInt))
	}
	m, err := s.load(r, l, h.element, h.big, packed)
	if err != nil {
		return nil, err
	}
	// The checksum is verified at the end of the member.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, s.readError(err)
	}
	return m, nil
}

// writeNpz writes an archive with one stored member, like numpy.savez. The date is the earliest
// that zip can represent, so that the same matrix gives the same bytes.
func writeNpz(w io.Writer, member string, l gemm.Layout, data []byte) error {
	archive := zip.NewWriter(w)
	f, err := archive.CreateHeader(&zip.FileHeader{
		Name:     member + ".npy",
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
