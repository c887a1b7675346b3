package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCommittedRecords reads the records that claims are made on.
func TestCommittedRecords(t *testing.T) {
	files, err := filepath.Glob("../../docs/results/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no records: %v", err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		records, err := ReadRecords(f)
		if err != nil || len(records) == 0 {
			t.Errorf("%s: %d records, %v", file, len(records), err)
		}
		for _, r := range records {
			if r.Error == "" && !r.Verified {
				t.Errorf("%s: %s on %d×%d×%d is not verified", file, r.Subject, r.M, r.N, r.K)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
