package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReadRecords reads records in the formats jsonl, json and tsv. It is strict: an unknown field,
// another schema, or contradictory numbers are errors that state the number of the record or of the
// line, counted from 1. The records before the error are returned too. Records of earlier versions
// are upgraded.
func ReadRecords(r io.Reader) ([]Record, error) {
	in := bufio.NewReader(r)
	first, err := firstByte(in)
	if err != nil {
		return nil, err
	}
	if first == '#' {
		return readCompact(in)
	}
	array := first == '['
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if array {
		if _, err := d.Token(); err != nil {
			return nil, err
		}
	}
	var records []Record
	for !array || d.More() {
		var rec Record
		err := d.Decode(&rec)
		if err == io.EOF && !array {
			return records, nil
		}
		if err == nil {
			err = rec.check()
		}
		if err != nil {
			return records, fmt.Errorf("record %d: %w", len(records)+1, unexpected(err))
		}
		if rec.Schema > 1 && len(records) > 0 && rec.Environment.isZero() {
			rec.Environment = records[len(records)-1].Environment
		}
		rec.upgrade()
		records = append(records, rec)
	}
	if _, err := d.Token(); err != nil {
		return records, fmt.Errorf("after record %d: %w", len(records), unexpected(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return records, fmt.Errorf("after record %d: found more data after the end of the array", len(records))
	}
	return records, nil
}

// TrimPartial returns the complete records of a jsonl file whose writer may have been stopped in
// the middle of one. missing is the line end that the last record lacks, if any.
func TrimPartial(text []byte) (complete []byte, missing string) {
	end := bytes.LastIndexByte(text, '\n') + 1
	if json.Valid(text[end:]) {
		return text, "\n"
	}
	return text[:end], ""
}

// firstByte returns the first byte that is not white space, which stays unread, or 0 if there is
// none.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err == io.EOF {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b, in.UnreadByte()
		}
	}
}

// unexpected returns the error for an error of the JSON decoder.
func unexpected(err error) error {
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case isType && wrong.Field == "":
		return fmt.Errorf("found a JSON %s, want an object", wrong.Value)
	case isType:
		return fmt.Errorf("field %s is a JSON %s, want the Go type %v", wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}
