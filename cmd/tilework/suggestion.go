package main

import "fmt"

// suggestion returns ` (did you mean "tiled"?)` if one of the names is similar to a mistyped
// one, and otherwise "".
func suggestion(typed string, names []string) string {
	best, near := "", 1+len(typed)/4 // at most one mistake, and one more for every 4 letters
	for _, name := range names {
		if d := distance(typed, name); d <= near && d < len(typed) {
			best, near = name, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
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
