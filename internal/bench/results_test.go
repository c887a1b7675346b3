package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// counters is the file with the figures of Nsight Compute, which is no record of bench.
const counters = "ncu-h200.tsv"

// TestCommittedRecords reads the records in docs/results, which may take 3 MB.
func TestCommittedRecords(t *testing.T) {
	files, err := filepath.Glob("../../docs/results/*.tsv")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in docs/results: %v", err)
	}
	size := int64(0)
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		if filepath.Base(file) == counters {
			continue
		}
		records, err := ReadRecords(f)
		if err != nil || len(records) == 0 {
			t.Errorf("%s: got %d records, error %v", file, len(records), err)
		}
		for _, r := range records {
			// These two peers do not compute the problem and are not verified.
			unchecked := r.Peer && (r.Subject == Reading || r.Subject == "plain")
			if r.Error == "" && r.Verified == unchecked {
				t.Errorf("%s: %s on %d×%d×%d, verified %v", file, r.Subject, r.M, r.N, r.K, r.Verified)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if size > 3e6 {
		t.Errorf("%d bytes in %d files: want at most 3 MB", size, len(files))
	}
}
