package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	if err := run(500, 150); err != nil {
		t.Fatal(err)
	}
	if err := run(3, 4); err == nil || !strings.Contains(err.Error(), "want at least one feature") {
		t.Errorf("3 points of 4 features: %v", err)
	}
}
