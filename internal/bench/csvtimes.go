package bench

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
)

// writeCSVTimes writes a row for each shape with the median time in seconds of each series: a
// subject with the settings that differ among the records. The first column is N if all products
// are square. A later record replaces an earlier one of the same series and shape.
func writeCSVTimes(w io.Writer, records []Record, _ int) error {
	timed := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !r.Timed() })
	parts := differing(timed)
	shapeOf, titles := func(r *Record) string { return Shape{r.M, r.N, r.K}.String() }, []string{"MxNxK"}
	if !slices.ContainsFunc(timed, func(r Record) bool { return r.M != r.N || r.N != r.K }) {
		shapeOf, titles[0] = func(r *Record) string { return strconv.Itoa(r.N) }, "N"
	}
	var shapes []string
	times := map[[2]string]string{} // by shape and title
	for i := range timed {
		r := &timed[i]
		words := []string{r.Subject}
		for _, p := range parts {
			if value := p.value(r); value != p.usual {
				words = append(words, p.prefix()+value)
			}
		}
		shape, title := shapeOf(r), strings.Join(words, "_")+"_seconds"
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		if !slices.Contains(shapes, shape) {
			shapes = append(shapes, shape)
		}
		times[[2]string{shape, title}] = plain(r.Seconds.Median)
	}
	out := csv.NewWriter(w)
	if err := out.Write(titles); err != nil {
		return err
	}
	for _, shape := range shapes {
		row := []string{shape}
		for _, title := range titles[1:] {
			row = append(row, times[[2]string{shape, title}])
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// differing returns the settings that differ among records.
func differing(records []Record) (parts []benchPart) {
	for _, p := range slices.Concat(mainParts, benchParts) {
		if slices.ContainsFunc(records, func(r Record) bool { return p.value(&r) != p.value(&records[0]) }) {
			parts = append(parts, p)
		}
	}
	return parts
}

// mainParts lists the settings that a benchmark's name always has, besides the shape, or that its
// configuration lines have.
var mainParts = []benchPart{
	{"", "", func(r *Record) string { return r.Device }},
	{"", "", (*Record).Types},
	{"", "", (*Record).Transposes},
	{"threads", "", func(r *Record) string {
		if r.Threads == 0 {
			return "all"
		}
		return strconv.Itoa(r.Threads)
	}},
}

// prefix returns the text before the setting's value in a title.
func (p benchPart) prefix() string {
	if p.name == "" {
		return ""
	}
	return p.name + "="
}
