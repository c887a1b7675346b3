package table

import (
	"strings"
	"unicode/utf8"
)

// Continue breaks a line of aligned cells at spaces into lines of at most width characters. Text
// after a break is indented to the column of the last cell. A width of 0 is no limit.
func Continue(line string, width int) string {
	runes := []rune(line)
	if width == 0 || len(runes) <= width {
		return line
	}
	indent := 0
	if gap := strings.LastIndex(line, "  "); gap >= 0 { // between the last two cells
		indent = utf8.RuneCountInString(line[:gap+2])
	}
	at := width
	for at > indent && runes[at] != ' ' {
		at--
	}
	if at <= indent {
		return line // one long word
	}
	return string(runes[:at]) + "\n" + Continue(strings.Repeat(" ", indent)+string(runes[at+1:]), width)
}
