package tilework

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTrustNamesTests checks that each test named in docs/trust.md exists. A name has the form
// `folder.Test`, or `Test` for a test of this package.
func TestTrustNamesTests(t *testing.T) {
	text, err := os.ReadFile("docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)`")
	named := name.FindAllStringSubmatch(string(text), -1)
	if len(named) < 70 {
		t.Errorf("docs/trust.md names %d tests, want at least 70 in the form `folder.Test` or `Test`", len(named))
	}
	for _, m := range named {
		if !defines(t, filepath.Join(".", m[1]), m[2]) {
			t.Errorf("docs/trust.md names %s, which does not exist", m[0])
		}
	}
}

// defines reports whether a test file in folder defines the function name.
func defines(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
