// Package names finds entries of fixed lists by the names that users type, and reports names that
// no entry has.
package names

import (
	"fmt"
	"strings"
)

// Find returns the index of the entry of list with the given name. The error is that of [Unknown].
func Find[T any](kind, name string, list []T, nameOf func(*T) string) (int, error) {
	for i := range list {
		if nameOf(&list[i]) == name {
			return i, nil
		}
	}
	known := make([]string, len(list))
	for i := range list {
		known[i] = nameOf(&list[i])
	}
	return 0, Unknown(kind, name, known)
}

// Unknown returns the error for a name that is none of the known names of a kind of things:
// `unknown kernel "tield" (did you mean "tiled"?): want one of naive, tiled`.
func Unknown(kind, name string, known []string) error {
	hint := ""
	if similar := Similar(name, known); similar != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", similar)
	}
	return fmt.Errorf("unknown %s %q%s: want one of %s", kind, name, hint, strings.Join(known, ", "))
}

// maxTyped is the maximum length in bytes of a mistyped name. Longer names resemble none, as the
// time and memory for a comparison grow with the product of the lengths.
const maxTyped = 1000

// Similar returns the known name that a mistyped name resembles most, or "" if it resembles none.
// Names that differ in case only resemble each other most.
func Similar(typed string, known []string) string {
	if len(typed) > maxTyped {
		return ""
	}
	best, near := "", (1+len(typed))/3 // one mistake for every 3 letters
	for _, name := range known {
		if len(name) > len(typed)+4*near { // letters have up to 4 bytes
			continue
		}
		if d := distance(strings.ToLower(typed), strings.ToLower(name)); d <= near {
			best, near = name, d-1
		}
	}
	return best
}

// distance returns the optimal string alignment distance between a and b: the number of letters to
// insert, delete, replace or swap with their neighbour.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case s[i-1] == t[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(s)][len(t)]
}
