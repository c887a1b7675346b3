package bench

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tilework/internal/testkit"
)

// A query selects records and arranges figures of them in a table:
//
//	records: one thread = cpu-zen4-one-f32.tsv cpu-zen4-one-f64.tsv
//	records: two threads = cpu-zen4-two-f32.tsv cpu-zen4-two-f64.tsv
//	where: M×N×K = 1024³; 2048³
//	rows: records, M×N×K
//	columns: type
//	cells: GFLOP/s + of the peak, × best
//
// Files without a name are each named after themselves. A cell shows figures of all records that
// have the texts of its row and its column. The field cell makes rows of the figures, which are
// columns otherwise. A plus sign joins figures in a cell. Rows and columns have the order of the
// values in where, separated by semicolons, or else that of the records.
//
// A query without rows shows columns of a file that is no record of bench, but a table.
type query struct {
	sets    []recordSet
	filters []filter
	rows    []string
	columns []string
	cells   []string
	links   string // the path from the page to the folder of the records
}

// recordSet is the records of files, with the text of their field records.
type recordSet struct {
	name  string
	files []string
}

// filter keeps the records whose field has one of the values.
type filter struct {
	field  string
	values []string
}

// entry is a record with the name of its set, and the figures that a cell shows of it.
type entry struct {
	*Record
	set, cell string
}

// parseQuery parses a query.
func parseQuery(text string) (q query, err error) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		list := strings.Split(value, ", ")
		switch name {
		case "records":
			set := recordSet{files: strings.Fields(value)}
			if i := strings.LastIndex(value, " = "); i >= 0 {
				set = recordSet{value[:i], strings.Fields(value[i+len(" = "):])}
			}
			q.sets = append(q.sets, set)
		case "where":
			field, values, _ := strings.Cut(value, " = ")
			q.filters = append(q.filters, filter{field, strings.Split(values, "; ")})
		case "rows":
			q.rows = list
		case "columns":
			q.columns = list
		case "cells":
			q.cells = list
		default:
			return q, fmt.Errorf("found %q, want records, where, rows, columns or cells", name)
		}
	}
	if len(q.sets) == 0 || len(q.cells) == 0 {
		return q, fmt.Errorf("want records and cells")
	}
	if !slices.Contains(q.rows, "cell") {
		q.columns = append(q.columns, "cell")
	}
	used := slices.Concat(q.rows, q.columns)
	for _, f := range q.filters {
		used = append(used, f.field)
	}
	if i := slices.IndexFunc(used, func(name string) bool { return fields[name] == nil }); i >= 0 {
		return q, fmt.Errorf("%q is no field", used[i])
	}
	return q, nil
}

// read returns the selected records with times, once for each cell. Those of peers are left out
// unless a field tells them apart.
func (q *query) read() (entries []entry, err error) {
	peers := slices.ContainsFunc(slices.Concat(q.rows, q.columns), func(name string) bool {
		return name == "kernel" || name == "split"
	})
	for _, set := range q.sets {
		for _, file := range set.files {
			f, err := os.Open(filepath.Join(results, file))
			if err != nil {
				return nil, err
			}
			records, err := ReadRecords(f)
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			name := set.name
			if name == "" {
				name = fmt.Sprintf("[%s](%s)", file, path.Join(q.links, file))
			}
			for i := range records {
				e := entry{Record: &records[i], set: name}
				if !e.Timed() || e.Peer && !peers || slices.ContainsFunc(q.filters, e.lacks) {
					continue
				}
				for _, e.cell = range q.cells {
					entries = append(entries, e)
				}
			}
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the query selects no record")
	}
	return entries, nil
}

func (e entry) lacks(f filter) bool { return !slices.Contains(f.values, fields[f.field](e)) }

// separator separates the texts of a key.
const separator = "\x00"

// key returns the texts of fields.
func (e entry) key(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fields[name](e)
	}
	return strings.Join(texts, separator)
}

// table returns the table in Markdown.
func (q *query) table() (string, error) {
	read := q.pivot
	if len(q.rows) == 0 {
		read = q.plain
	}
	lines, err := read()
	return testkit.Table(lines...), err
}

// plain returns the columns of a file with a line of titles.
func (q *query) plain() (lines [][]string, err error) {
	text, err := os.ReadFile(filepath.Join(results, q.sets[0].files[0]))
	if err != nil {
		return nil, err
	}
	titles, _, _ := strings.Cut(string(text), "\n")
	for line := range strings.Lines(string(text)) {
		all := strings.Split(strings.TrimSpace(line), "\t")
		var cells []string
		for _, name := range q.cells {
			i := slices.Index(strings.Split(titles, "\t"), name)
			if i < 0 || i >= len(all) {
				return nil, fmt.Errorf("the line %q has no column %q", line, name)
			}
			cells = append(cells, all[i])
		}
		lines = append(lines, cells)
	}
	return lines, nil
}

// pivot returns the titles and the rows of the figures of records.
func (q *query) pivot() (lines [][]string, err error) {
	entries, err := q.read()
	if err != nil {
		return nil, err
	}
	cells := map[[2]string][]entry{}
	for _, e := range entries {
		at := [2]string{e.key(q.rows), e.key(q.columns)}
		cells[at] = append(cells[at], e)
	}
	rows, columns := q.keys(entries, q.rows), q.keys(entries, q.columns)
	var titles []string
	for _, name := range q.rows {
		titles = append(titles, q.rowTitle(name))
	}
	for _, column := range columns {
		titles = append(titles, q.columnTitle(column))
	}
	lines = append(lines, titles)
	var above []string
	for _, row := range rows {
		texts := strings.Split(row, separator)
		line := slices.Clone(texts)
		for i := range line {
			if q.rows[i] == "cell" {
				line[i] = cellTitle(line[i])
			} else if above != nil && slices.Equal(above[:i+1], texts[:i+1]) {
				line[i] = ""
			}
		}
		above = texts
		for _, column := range columns {
			text, err := cellText(cells[[2]string{row, column}])
			if err != nil {
				return nil, fmt.Errorf("row %q, column %q: %w", row, column, err)
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// keys returns the different keys of fields.
func (q *query) keys(entries []entry, names []string) (keys []string) {
	orders := make([][]string, len(names)) // the values of each field
	for i, name := range names {
		if j := slices.IndexFunc(q.filters, func(f filter) bool { return f.field == name }); j >= 0 {
			orders[i] = q.filters[j].values
		}
	}
	seen := map[string]bool{}
	for _, e := range entries {
		for i, name := range names {
			if text := fields[name](e); !slices.Contains(orders[i], text) {
				orders[i] = append(orders[i], text)
			}
		}
		if k := e.key(names); !seen[k] {
			seen[k], keys = true, append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		as, bs := strings.Split(a, separator), strings.Split(b, separator)
		for i, order := range orders {
			if as[i] != bs[i] {
				return slices.Index(order, as[i]) - slices.Index(order, bs[i])
			}
		}
		return 0
	})
	return keys
}

// rowTitle returns the title of the column with a field of the rows.
func (q *query) rowTitle(name string) string {
	switch {
	case name == "cell" || name == "records" && q.sets[0].name != "":
		return ""
	case name == "records":
		return "record"
	}
	return name
}

// columnTitle returns the title of a column. The only figure has no title beside other fields.
func (q *query) columnTitle(column string) string {
	texts := strings.Split(column, separator)
	if last := len(texts) - 1; q.columns[last] == "cell" {
		texts[last] = cellTitle(texts[last])
		if len(q.cells) == 1 && last > 0 {
			texts = texts[:last]
		}
	}
	return strings.Join(texts, ", ")
}

// joined separates the figures of a cell in a query.
const joined = " + "

// cellTitle returns the title of the figures of a cell.
func cellTitle(cell string) string {
	names := strings.Split(cell, joined)
	for i, name := range names {
		if peer, isRatio := strings.CutPrefix(name, ratioMark); isRatio {
			names[i] = ratioMark + subjectTitle(peer)
		}
	}
	return strings.Join(names, ", ")
}

// cellText returns the figures of a cell. A cell without records is empty.
func cellText(entries []entry) (string, error) {
	if len(entries) == 0 {
		return "", nil
	}
	var texts []string
	for name := range strings.SplitSeq(entries[0].cell, joined) {
		peer, isRatio := strings.CutPrefix(name, ratioMark)
		figure := figures[name]
		if isRatio {
			figure = (*sample).mean
		} else {
			peer = best
		}
		if figure == nil {
			return "", fmt.Errorf("%q is no figure", name)
		}
		if name == "µs" || name == "ms" {
			product := productTitle(entries[0].Record)
			if slices.ContainsFunc(entries, func(e entry) bool { return productTitle(e.Record) != product }) {
				return "", fmt.Errorf("%s of several products: want rows or columns of each", name)
			}
		}
		s := sampleOf(entries, peer)
		texts = append(texts, figure(&s))
	}
	for len(texts) > 1 && texts[len(texts)-1] == missing {
		texts = texts[:len(texts)-1]
	}
	return strings.Join(texts, ", "), nil
}
