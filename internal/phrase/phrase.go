// Package phrase formats numbers and lists for messages.
package phrase

import (
	"strconv"
	"strings"
	"unicode"
)

// Count formats a number of things: "1 block", "2,048 threads".
func Count[T int | int64](n T, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Commas(n) + " " + thing
}

// Commas formats n with its digits in groups of three.
func Commas[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	first := 0 // digit
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// List joins words: "a, b and c".
func List(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// Printable returns about the first most bytes of a text that another process has sent, as one
// line. Unprintable characters, such as those that begin an escape sequence of a terminal, become
// escapes in the syntax of Go.
func Printable(s string, most int) string {
	var b strings.Builder
	for i, r := range s {
		if i >= most {
			b.WriteString("… (" + Count(len(s), "byte") + ")")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
