package table

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func write(t *testing.T, width int, columns []Column, rows [][]string) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, width, columns, rows); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWrite(t *testing.T) {
	columns := []Column{
		{Title: "kernel"}, {Title: "device", Drop: 1}, {Title: "×", Drop: 2}, {Title: "spread", Drop: 3},
		{Title: "note", Wrap: true},
	}
	rows := [][]string{
		{"naive", "cpu", "0.50", "12 %", "the textbook's loop, one thread for each element of C"},
		{"µ", "cpu", "", "3 %", ""},
	}
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, `
kernel  device  ×     spread  note
naive   cpu     0.50  12 %    the textbook's loop, one thread for each element of C
µ       cpu           3 %
`},
		{60, `
kernel  device  ×     spread  note
naive   cpu     0.50  12 %    the textbook's loop, one
                              thread for each element of C
µ       cpu           3 %
`},
		// The column device is constant and is dropped first, then the column of the highest rank.
		{50, `
kernel  ×     spread  note
naive   0.50  12 %    the textbook's loop, one
                      thread for each element of C
µ             3 %
Not shown (--wide shows all columns): device cpu
`},
		{40, `
kernel  ×     note
naive   0.50  the textbook's loop, one
              thread for each element of
              C
µ
Not shown (--wide shows all columns):
device cpu, spread
`},
		{32, `
kernel  note
naive   the textbook's loop, one
        thread for each element
        of C
µ
Not shown (--wide shows all
columns): device cpu, spread, ×
`},
		{20, `
kernel  note
naive   the
        textbook's
        loop, one
        thread for
        each element
        of C
µ
Not shown (--wide
shows all columns):
device cpu, spread,
×
`},
	} {
		if got := write(t, c.width, columns, rows); got != c.want[1:] {
			t.Errorf("width %d: got\n%s\nwant\n%s", c.width, got, c.want[1:])
		}
	}
}

// TestWidth checks that every line fits if the columns that stay are narrow enough.
func TestWidth(t *testing.T) {
	columns := []Column{{Title: "a"}, {Title: "bb", Drop: 1}, {Title: "ccc", Wrap: true}, {Title: "dddd", Wrap: true}}
	rows := [][]string{
		{"x", strings.Repeat("y", 20), strings.Repeat("word ", 30), strings.Repeat("longer ", 20)},
		{"xx", "", "word", ""},
	}
	for width := len("xx  words  longer"); width < 300; width++ {
		for line := range strings.Lines(write(t, width, columns, rows)) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Fatalf("width %d: a line of %d characters: %q", width, n, line)
			}
		}
	}
}

// TestLongWords checks that a wrapped column is as wide as its longest word, however narrow the
// table.
func TestLongWords(t *testing.T) {
	word := strings.Repeat("x", minWidth+6)
	columns := []Column{{Title: "a", Wrap: true}, {Title: "b"}}
	got := write(t, 10, columns, [][]string{{"to " + word + " and on", "y"}})
	pad := strings.Repeat(" ", len(word))
	if want := "a" + pad[1:] + "  b\nto" + pad[2:] + "  y\n" + word + "\nand on\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestDroppedTitles checks that the text of a dropped column is named only if several rows have it.
func TestDroppedTitles(t *testing.T) {
	columns := []Column{{Title: "a"}, {Title: "bb", Drop: 1}, {Title: "cc", Drop: 2}}
	const note = "Not shown (--wide shows all columns): "
	for _, c := range []struct {
		rows [][]string
		want string
	}{
		{nil, "cc, bb"},
		{[][]string{{"x", "y", "z"}}, "cc, bb"},
		{[][]string{{"x", "y", "z"}, {"x", "y", ""}}, "bb y, cc"},
		{[][]string{{"x", "y", ""}, {"x", "y", ""}}, "cc, bb y"},
	} {
		got := write(t, 1, columns, c.rows)
		if got = strings.Join(strings.Fields(got[strings.Index(got, "Not"):]), " "); got != note+c.want {
			t.Errorf("%q: %q, want %q", c.rows, got, note+c.want)
		}
	}
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"one\n two " + strings.Repeat("x", 70) + " three", 70, "one two\n" + strings.Repeat("x", 70) + "\nthree"},
		{"ä ö ü", 3, "ä ö\nü"},
		{"a  b", 0, "a  b"},
		{"", 5, ""},
	} {
		if got := Fold(c.text, c.width); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

func TestContinue(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"  shared  µ each block needs bytes", 18, "  shared  µ each\n          block\n          needs\n          bytes"},
		{"no cells at all", 8, "no cells\nat all"},
		{"fits  here", 10, "fits  here"},
		{"any  width is enough", 0, "any  width is enough"},
		{"cell  word-that-is-long", 8, "cell  word-that-is-long"},
	} {
		if got := Continue(c.line, c.width); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.line, c.width, got, c.want)
		}
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteError(t *testing.T) {
	if err := Write(broken{}, 0, []Column{{Title: "a"}}, nil); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
}
