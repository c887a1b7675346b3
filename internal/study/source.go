package study

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Listing shows a kernel's Go source beside its PTX.
type Listing struct {
	Go  []Chunk   `json:"go"`
	PTX []PTXLine `json:"ptx"`
}

// Chunk is a Go function that wrote PTX.
type Chunk struct {
	File  string   `json:"file"`
	First int      `json:"first"` // number of the first line
	Lines []string `json:"lines"`
}

// PTXLine is a line of PTX with the line of Go that wrote it. Line is 0 if no line of a Chunk did.
type PTXLine struct {
	Text string `json:"text"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// lines maps the lines of the full PTX to those of a Listing, which has no .file and .loc
// directives. Both count from 1.
type lines []int

// of returns the line of the Listing for a line of the full PTX, or 0 if there is none.
func (l lines) of(line int) int {
	if line < 1 || line > len(l) {
		return 0
	}
	return l[line-1]
}

// fileDirective parses a line such as .file 1 "tiled.go".
func fileDirective(line string) (number, name string, ok bool) {
	number, name, ok = strings.Cut(strings.TrimPrefix(line, ".file "), " ")
	return number, path.Base(strings.Trim(name, `"`)), ok && strings.HasPrefix(line, ".file ")
}

// locDirective parses a line such as .loc 1 12 3.
func locDirective(line string) (file string, number int, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimLeft(line, "\t "), ".loc ")
	if !ok {
		return "", 0, false
	}
	file, rest, _ = strings.Cut(rest, " ")
	text, _, _ := strings.Cut(rest, " ")
	number, err := strconv.Atoi(text)
	return file, number, err == nil
}

// list returns the listing of PTX with .loc directives, and the numbers of its lines. The Go part
// consists of the functions of the named files that wrote PTX.
func list(text string, files []string) (*Listing, lines, error) {
	text, _, _ = strings.Cut(text, "\n\t.section\t.debug_") // at the end, and longer than the kernels
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	names := map[string]string{}
	for _, line := range all {
		if number, name, ok := fileDirective(line); ok {
			names[number] = name
		}
	}
	x := &Listing{Go: []Chunk{}}
	numbers := make(lines, len(all))
	var at PTXLine
	written := map[string]map[int]bool{}
	for i, line := range all {
		number, from, isLoc := locDirective(line)
		_, _, isFile := fileDirective(line)
		switch {
		case isLoc && slices.Contains(files, names[number]):
			at = PTXLine{File: names[number], Line: from}
		case isLoc:
			at = PTXLine{}
		case isFile, line == "" && (len(x.PTX) == 0 || x.PTX[len(x.PTX)-1].Text == "" && all[i-1] != ""):
			// Of the empty lines around directives, one is enough.
		default:
			shown := PTXLine{Text: line}
			if strings.HasSuffix(line, ";") && !strings.HasPrefix(line, "\t.") {
				shown.File, shown.Line = at.File, at.Line
				if written[at.File] == nil {
					written[at.File] = map[int]bool{}
				}
				written[at.File][at.Line] = true
			}
			x.PTX = append(x.PTX, shown)
		}
		numbers[i] = len(x.PTX)
	}
	for _, name := range files {
		source, err := goFile(name)
		if err != nil {
			return nil, nil, err
		}
		x.Go = append(x.Go, chunks(name, source, written[name])...)
	}
	return x, numbers, nil
}

// chunks returns the functions of a Go file with at least one of the given lines, and their doc
// comments. It relies on gofmt: a function at the top level begins with func and ends with a brace,
// both in the first column.
func chunks(name, source string, wanted map[int]bool) (found []Chunk) {
	all := strings.Split(source, "\n")
	first, inside := 0, false
	for i, line := range all {
		switch {
		case inside:
			if line != "}" {
				continue
			}
			inside = false
			for n := first; n <= i; n++ {
				if wanted[n+1] {
					found = append(found, Chunk{name, first + 1, all[first : i+1]})
					break
				}
			}
			first = i + 1
		case strings.HasPrefix(line, "func "):
			inside = !strings.HasSuffix(line, "}")
		case !strings.HasPrefix(line, "//"):
			first = i + 1
		}
	}
	return found
}
