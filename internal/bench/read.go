package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReadRecords reads records as the formats jsonl and json write them: one JSON
// object after the other, or an array of them. It is strict: an unknown field,
// another schema, or numbers that contradict each other are errors, which name
// the record by its number, from 1 on. The records before it are returned too.
// Records of earlier versions get the figures that those did not write.
func ReadRecords(r io.Reader) ([]Record, error) {
	in := bufio.NewReader(r)
	array, err := startsArray(in)
	if err != nil {
		return nil, err
	}
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
		rec.upgrade()
		records = append(records, rec)
	}
	if _, err := d.Token(); err != nil {
		return records, fmt.Errorf("after record %d: %w", len(records), unexpected(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return records, fmt.Errorf("after record %d: there is more behind the array's end", len(records))
	}
	return records, nil
}

// Mend is for a file of records, one a line, whose writer may have been stopped in the
// midst of one: it returns what is whole, and what that lacks to end with a line.
func Mend(text []byte) (whole []byte, lacks string) {
	end := bytes.LastIndexByte(text, '\n') + 1
	if json.Valid(text[end:]) {
		return text, "\n"
	}
	return text[:end], ""
}

// startsArray looks at the first byte that is no white space.
func startsArray(in *bufio.Reader) (bool, error) {
	for {
		b, err := in.ReadByte()
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b == '[', in.UnreadByte()
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
