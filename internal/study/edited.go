package study

import (
	"regexp"
	"strconv"
	"strings"
)

// placedLine is a line of PTX with the .loc directive that holds for it, or "".
type placedLine struct{ text, loc string }

// withSources returns PTX that the reader has edited with the .file and .loc directives of the
// original, whose listing the reader saw. Findings then name lines of Go, and those of an unrolled
// loop are one finding. An added line belongs to the line of Go before it.
func withSources(edited, original string) string {
	var files []string
	var lines []placedLine
	loc := ""
	for line := range strings.Lines(original) {
		line = strings.TrimSuffix(line, "\n")
		if _, _, ok := fileDirective(line); ok {
			files = append(files, line)
		} else if _, _, ok := locDirective(line); ok {
			loc = line
		} else if line != "" {
			lines = append(lines, placedLine{line, loc})
		}
	}
	var out strings.Builder
	loc = ""
	for _, line := range place(strings.Split(strings.TrimSuffix(edited, "\n"), "\n"), lines) {
		if line.loc != loc && isInstruction(line.text) {
			loc = line.loc
			out.WriteString(loc + "\n")
		}
		out.WriteString(line.text + "\n")
		if strings.HasPrefix(line.text, ".address_size") && len(files) > 0 {
			out.WriteString(strings.Join(files, "\n") + "\n")
		}
	}
	return out.String()
}

// place returns the lines of edited with the directives of their partners: the first and the last
// lines that are unchanged, and between them each next line with the same text.
func place(edited []string, original []placedLine) []placedLine {
	all := make([]placedLine, len(edited))
	for i, text := range edited {
		all[i].text = text
	}
	first, last := 0, len(edited)
	from, to := 0, len(original)
	for ; first < last && from < to && (edited[first] == "" || edited[first] == original[from].text); first++ {
		if edited[first] != "" {
			all[first].loc = original[from].loc
			from++
		}
	}
	for ; last > first && to > from && (edited[last-1] == "" || edited[last-1] == original[to-1].text); last-- {
		if edited[last-1] != "" {
			all[last-1].loc = original[to-1].loc
			to--
		}
	}
	for i := first; i < last; i++ {
		for at := from; at < to; at++ {
			if original[at].text == edited[i] {
				all[i].loc, from = original[at].loc, at+1
				break
			}
		}
		if all[i].loc == "" && i > 0 {
			all[i].loc = all[i-1].loc
		}
	}
	return all
}

// isInstruction reports whether a line is an instruction, the only kind that .loc may precede.
func isInstruction(line string) bool {
	return strings.HasSuffix(line, ";") && !strings.HasPrefix(strings.TrimLeft(line, "\t "), ".")
}

// position matches the line of a position in PTX, such as tiled.ptx:106.
var position = regexp.MustCompile(`(\.ptx:)(\d+)`)

// renumber returns a message of the emulator with the line numbers of the listing.
func (l lines) renumber(message string) string {
	return position.ReplaceAllStringFunc(message, func(at string) string {
		part := position.FindStringSubmatch(at)
		line, err := strconv.Atoi(part[2])
		if err != nil {
			return at
		}
		return part[1] + strconv.Itoa(l.of(line))
	})
}
