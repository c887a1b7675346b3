package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// writeCSV prints the JSON fields of rows, with a line of their names first. A field of an inner
// object has the names of both, such as gain_speed.
func writeCSV[T any](w io.Writer, rows []T) error {
	var titles []string
	cells := make([]map[string]string, len(rows))
	for i, row := range rows {
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		fields, err := csvFields("", text)
		if err != nil {
			return err
		}
		cells[i] = map[string]string{}
		next := 0 // a field that earlier rows omit follows the one before it
		for _, f := range fields {
			if at := slices.Index(titles, f.name); at >= 0 {
				next = at
			} else {
				titles = slices.Insert(titles, next, f.name)
			}
			next++
			cells[i][f.name] = f.text
		}
	}
	out := csv.NewWriter(w)
	if len(titles) > 0 {
		out.Write(titles)
	}
	for _, c := range cells {
		line := make([]string, len(titles))
		for i, name := range titles {
			line[i] = c[name]
		}
		out.Write(line)
	}
	out.Flush()
	return out.Error()
}

// csvField is a field of a row in CSV.
type csvField struct{ name, text string }

// csvFields returns the fields of a JSON value with a name, in their order: those of an object, or
// else the value itself. Elements of a list are separated by spaces if they are neither lists nor
// objects, and are JSON otherwise.
func csvFields(name string, value json.RawMessage) (fields []csvField, err error) {
	switch value[0] {
	case '{':
		d := json.NewDecoder(bytes.NewReader(value))
		if _, err := d.Token(); err != nil { // the brace
			return nil, err
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			var inner json.RawMessage
			if err := d.Decode(&inner); err != nil {
				return nil, err
			}
			more, err := csvFields(strings.TrimPrefix(name+"_"+key.(string), "_"), inner)
			if err != nil {
				return nil, err
			}
			fields = append(fields, more...)
		}
		return fields, nil
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, err
		}
		var words []string
		for _, x := range list {
			if x[0] == '{' || x[0] == '[' {
				return []csvField{{name, string(value)}}, nil
			}
			words = append(words, csvText(x))
		}
		return []csvField{{name, strings.Join(words, " ")}}, nil
	}
	return []csvField{{name, csvText(value)}}, nil
}

// csvText returns the text of a JSON string, number or literal. That of null is empty.
func csvText(value json.RawMessage) string {
	var s *string
	if json.Unmarshal(value, &s) != nil {
		return string(value)
	}
	if s == nil {
		return ""
	}
	return *s
}
