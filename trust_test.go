package tilework

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTrustNamesTests: each test that docs/trust.md names, as `folder.Test` or, of this
// package, `Test`, is there.
func TestTrustNamesTests(t *testing.T) {
	text, err := os.ReadFile("docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 70 {
		t.Errorf("%d tests are named: are they written as they should be?", len(named))
	}
	for _, m := range named {
		if !defines(t, filepath.Join(".", m[1]), m[2]) {
			t.Errorf("it names %s, which is not there", m[0])
		}
	}
}

// defines reports whether a folder's tests define a function.
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
