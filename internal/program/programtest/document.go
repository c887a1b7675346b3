package programtest

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"tilework/internal/program"
)

// CheckDocumented checks that a page shows the program in the code block after the comment
// <!-- program: NAME -->. TILEWORK_UPDATE=1 rewrites the block.
func CheckDocumented(t *testing.T, page, name string, p *program.Program) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)(<!-- program: " + regexp.QuoteMeta(name) + " -->\n\n```\n)(.*?)```\n")
	found := block.FindSubmatchIndex(text)
	if found == nil {
		t.Fatalf("%s has no code block after a comment for the program %q", page, name)
	}
	if want := p.String(); string(text[found[4]:found[5]]) != want {
		if os.Getenv("TILEWORK_UPDATE") == "" {
			t.Errorf("%s shows another program %q (TILEWORK_UPDATE=1 rewrites it): want\n%s", page, name, want)
			return
		}
		changed := fmt.Appendf(nil, "%s%s%s", text[:found[4]], want, text[found[5]:])
		if err := os.WriteFile(page, changed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
