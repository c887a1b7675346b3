package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"tilework/internal/bench"
	"tilework/internal/matio"
)

// recordFile is where records go as they are made; the nil file takes none.
type recordFile struct {
	path    string
	file    *os.File
	size    int64 // of the whole lines in it
	created bool
	old     bool // what is in it is to be replaced by the first records
}

// newRecordFile opens the file of -o. A file that exists is refused, or with force replaced when
// there are records to write.
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
			return nil, fmt.Errorf("%w, or go on with --resume %s", err, path)
		}
		r.old = true
	}
	if r.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666); err != nil {
		return nil, err
	}
	return r, nil
}

// resumed is a file of records to go on with.
type resumed struct {
	path    string
	records []bench.Record
	size    int64  // of the whole lines that are there …
	lacks   string // … and what the last one lacks of a line's end
	cut     bool   // a line behind them was not ended
}

// readResumed reads the file and changes nothing in it.
func readResumed(path string) (*resumed, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	if start := bytes.TrimSpace(text); len(start) > 0 && start[0] == '[' {
		return nil, fmt.Errorf("--resume: %s is an array of records: want one record a line, as -o writes them", path)
	}
	whole, lacks := bench.TrimPartial(text)
	records, err := bench.ReadRecords(bytes.NewReader(whole))
	if err != nil {
		return nil, fmt.Errorf("--resume: %s: no file of records: %w", path, err)
	}
	return &resumed{path, records, int64(len(whole)), lacks, len(whole) < len(text)}, nil
}

// open opens the file for more records, behind its whole lines; that a line was cut off
// is said.
func (r *resumed) open(stderr io.Writer) (*recordFile, error) {
	if r.cut {
		fmt.Fprintf(stderr, "%s: the line after record %d was cut off: it is removed, and measured again\n", r.path, len(r.records))
	}
	file, err := os.OpenFile(r.path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	err = file.Truncate(r.size)
	if err == nil {
		_, err = file.WriteAt([]byte(r.lacks), r.size)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume: %w", err), file.Close())
	}
	return &recordFile{path: r.path, file: file, size: r.size + int64(len(r.lacks))}, nil
}

// write adds records, of which the file then holds all, or none where there is no room for
// them; only where the process ends just now, a beginning.
func (r *recordFile) write(records []bench.Record) error {
	if r == nil || len(records) == 0 {
		return nil
	}
	jsonl, err := bench.FindFormat("jsonl")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := jsonl.Write(&b, records, 0); err != nil {
		return err
	}
	if r.old {
		if err := r.file.Truncate(0); err != nil {
			return err
		}
		r.old = false
	}
	if _, err := r.file.Write(b.Bytes()); err != nil {
		return errors.Join(err, r.undo())
	}
	r.size += int64(b.Len())
	return nil
}

// undo removes the beginning of a record that could not be written whole. A device or a
// pipe has nothing to remove.
func (r *recordFile) undo() error {
	if info, err := r.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return r.file.Truncate(r.size)
}

// close leaves no empty file behind.
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
