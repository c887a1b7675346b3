package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSBOM checks that the bill lists the linked modules with their checksums, and is reproducible.
func TestSBOM(t *testing.T) {
	stdout, stderr, code := run(t.Context(), "version", "--sbom")
	var bill billOfMaterials
	if err := json.Unmarshal([]byte(stdout), &bill); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v, %q", code, err, stderr)
	}
	if bill.Format != "CycloneDX" || bill.Metadata.Component.Name != "tilework" {
		t.Errorf("metadata %+v", bill.Metadata)
	}
	for _, name := range []string{"std", "github.com/spf13/cobra", "golang.org/x/sys"} {
		i := slices.IndexFunc(bill.Components, func(c component) bool { return c.Name == name })
		if i < 0 {
			t.Errorf("the bill lacks %s", name)
		} else if c := bill.Components[i]; c.Version == "" || c.PURL != "pkg:golang/"+name+"@"+c.Version || name != "std" &&
			len(c.Properties) != 1 {
			t.Errorf("component %+v", c)
		}
	}
	if again, _, _ := run(t.Context(), "version", "--sbom"); again != stdout {
		t.Error("the second bill differs")
	}
}

// TestVersionFlag compares --version with the command version.
func TestVersionFlag(t *testing.T) {
	want, _, _ := run(t.Context(), "version")
	stdout, stderr, code := run(t.Context(), "--version")
	if code != 0 || stdout != want || !strings.HasPrefix(want, "tilework ") {
		t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
}

// TestVersionMatchesChangelog checks that version prints the newest version of CHANGELOG.md.
func TestVersionMatchesChangelog(t *testing.T) {
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}$`).FindSubmatch(changelog)
	if newest == nil {
		t.Fatal("CHANGELOG.md has no heading such as ## 0.1.0 - 2026-11-23")
	}
	stdout, _, code := run(t.Context(), "version")
	if want := "tilework " + string(newest[1]) + " "; code != 0 || !strings.HasPrefix(stdout, want) {
		t.Errorf("version printed %q with exit code %d: want it to start with %q", stdout, code, want)
	}
}
