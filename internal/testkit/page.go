package testkit

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// CheckPage checks that a page of the documentation has the text want after the comment
// <!-- comment -->, up to an empty line. TILEWORK_UPDATE=1 rewrites the text. A comment of the form
// "computed: plan, by internal/resident.TestDivisionPage" names the test that calls CheckPage.
func CheckPage(t *testing.T, page, comment, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	mark := regexp.MustCompile("(?s)<!-- " + regexp.QuoteMeta(comment) + " -->\n+(.*?\n)(\n|$)")
	found := mark.FindAllSubmatchIndex(text, -1)
	if len(found) != 1 {
		t.Fatalf("%s has %d texts after the comment %q, want 1", page, len(found), comment)
	}
	from, to := found[0][2], found[0][3]
	if got := string(text[from:to]); got == want {
		return
	}
	if os.Getenv("TILEWORK_UPDATE") == "" {
		t.Errorf("%s, %q: another text is computed (TILEWORK_UPDATE=1 writes it): want\n%s", page, comment, want)
		return
	}
	changed := string(text[:from]) + want + string(text[to:])
	if err := os.WriteFile(page, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Fenced returns a block of code of a page.
func Fenced(text string) string { return "```\n" + strings.TrimSuffix(text, "\n") + "\n```\n" }

// Table returns a table of a page. Each row has the texts of its cells, and the first row the
// titles.
func Table(rows ...[]string) string {
	var b strings.Builder
	for i, cells := range rows {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(cells)) + "|\n")
		}
	}
	return b.String()
}
