package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"tilework/internal/bench"
	"tilework/internal/matio"
	"tilework/internal/regular"
)

// recordFile is the file that records are written to as they are measured. Writing to nil does
// nothing.
type recordFile struct {
	path    string
	file    *os.File
	text    bytes.Buffer  // of the records of one write
	records *bench.Writer // writes to text
	size    int64         // bytes of the complete lines in it
	created bool          // newRecordFile created it
	stale   bool          // the first records replace its old content
}

// newRecordFile opens the file of -o. It refuses a file that exists unless force is set; the old
// content then stays until the first records are written.
func newRecordFile(path string, force bool) (*recordFile, error) {
	r := &recordFile{path: path}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.created = true
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		if err := matio.CheckReplace(path, force); err != nil {
			return nil, fmt.Errorf("%w, or continue it with --resume %s", err, path)
		}
		r.stale = true
	}
	if r.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|regular.NoWait, 0o666); err != nil {
		return nil, err
	}
	r.records = bench.NewWriter(&r.text, nil)
	return r, nil
}

// resumedFile is a file of records that --resume continues.
type resumedFile struct {
	path    string
	records []bench.Record
	size    int64  // bytes of the complete records
	newline string // the line end that the last complete record lacks
	cut     bool   // an incomplete record follows them
}

// readResumed reads the file without changing it.
func readResumed(path string) (*resumedFile, error) {
	file, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", matio.FileError(err))
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	if start := bytes.TrimSpace(text); len(start) > 0 {
		if kind := map[byte]string{'[': "one JSON array", '#': "a table"}[start[0]]; kind != "" {
			return nil, fmt.Errorf("--resume: %s is %s: want one record per line, as -o writes them", path, kind)
		}
	}
	whole, newline := bench.TrimPartial(text)
	records, err := bench.ReadRecords(bytes.NewReader(whole))
	if err != nil {
		return nil, fmt.Errorf("--resume: %s: not a file of records: %w", path, err)
	}
	return &resumedFile{path, records, int64(len(whole)), newline, len(whole) < len(text)}, nil
}

// open opens the file to append records. It removes an incomplete record at the end, with a
// message on stderr.
func (r *resumedFile) open(stderr io.Writer) (*recordFile, error) {
	if r.cut {
		fmt.Fprintf(stderr, "%s: removed the incomplete record after record %d, which will be measured again\n",
			r.path, len(r.records))
	}
	file, err := os.OpenFile(r.path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	err = file.Truncate(r.size)
	if err == nil {
		_, err = file.WriteAt([]byte(r.newline), r.size)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume: %w", err), file.Close())
	}
	out := &recordFile{path: r.path, file: file, size: r.size + int64(len(r.newline))}
	out.records = bench.NewWriter(&out.text, r.records)
	return out, nil
}

// write appends records. If there is no room for all of them, the file holds none of them. Only if
// the process is killed during the call can the file end with an incomplete record.
func (r *recordFile) write(records []bench.Record) error {
	if r == nil || len(records) == 0 {
		return nil
	}
	r.text.Reset()
	if err := r.records.Write(records); err != nil {
		return err
	}
	if r.stale {
		if err := r.file.Truncate(0); err != nil {
			return err
		}
		r.stale = false
	}
	if _, err := r.file.Write(r.text.Bytes()); err != nil {
		r.records = bench.NewWriter(&r.text, nil) // the file may lack the environment
		return errors.Join(err, r.undo())
	}
	r.size += int64(r.text.Len())
	return nil
}

// undo removes records that were written in part. It does nothing if the file is a device or a
// pipe.
func (r *recordFile) undo() error {
	if info, err := r.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return r.file.Truncate(r.size)
}

// close closes the file, and removes it if newRecordFile created it and no record was written.
func (r *recordFile) close() error {
	if r == nil {
		return nil
	}
	err := r.file.Close()
	if r.created && r.size == 0 {
		err = errors.Join(err, os.Remove(r.path))
	}
	return err
}
