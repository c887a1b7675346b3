package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"tilework/dtype"
)

// TestHistory: a case is found when each subject has a record of it that counts, and of
// any other case it is not.
func TestHistory(t *testing.T) {
	c := shape(t, Cube(8), dtype.F32, dtype.F32)
	of := func(change func(r *Record)) Record {
		r := newRecord(&c)
		r.Subject, r.Seed, r.Reps = "a", 7, 5
		change(&r)
		return r
	}
	good := of(func(*Record) {})
	o := Options{Seed: 7}
	for _, v := range []struct {
		name     string
		records  []Record
		subjects string
		found    bool
	}{
		{"nothing was measured", nil, "a", false},
		{"it was measured", []Record{good}, "a", true},
		{"another subject was", []Record{good}, "b", false},
		{"one of two was", []Record{good}, "a b", false},
		{"both were", []Record{of(func(r *Record) { r.Subject = "b" }), good}, "a b", true},
		{"it was interrupted", []Record{of(func(r *Record) { r.Interrupted = true })}, "a", false},
		{"it was interrupted, and done", []Record{of(func(r *Record) { r.Interrupted = true }), good}, "a", true},
		{"it failed", []Record{of(func(r *Record) { r.Error = "boom" })}, "a", false},
		{"it was done, and failed", []Record{good, of(func(r *Record) { r.Error = "boom" })}, "a", false},
		{"it does not do that", []Record{of(func(r *Record) { r.Error, r.Unsupported = "no", true })}, "a", true},
		{"another shape", []Record{of(func(r *Record) { r.K = 9 })}, "a", false},
		{"another type", []Record{of(func(r *Record) { r.In = "float64" })}, "a", false},
		{"a transpose", []Record{of(func(r *Record) { r.TransB = true })}, "a", false},
		{"other threads", []Record{of(func(r *Record) { r.Threads = 1 })}, "a", false},
		{"another device", []Record{of(func(r *Record) { r.Device = "gpu" })}, "a", false},
		{"cold", []Record{of(func(r *Record) { r.Cold = true })}, "a", false},
		{"with transfers", []Record{of(func(r *Record) { r.Transfers = true })}, "a", false},
		{"another seed", []Record{of(func(r *Record) { r.Seed = 8 })}, "a", false},
	} {
		subjects := strings.Fields(v.subjects)
		found, all := NewHistory(v.records).Find(c, o, subjects)
		if all != v.found || all && len(found) != len(subjects) {
			t.Errorf("%s: found %d records, %v, want %v", v.name, len(found), all, v.found)
		}
		for i := range found {
			if found[i].Subject != subjects[i] {
				t.Errorf("%s: record %d is of %s, want %s", v.name, i, found[i].Subject, subjects[i])
			}
		}
	}
}

// TestHistoryDiffers: whatever changes times keeps a file from being continued, and no
// more than that.
func TestHistoryDiffers(t *testing.T) {
	was := Environment{OS: "linux", Arch: "amd64", CPU: "R3000", Cores: 2, GOMAXPROCS: 2, Go: "go1.26", Commit: "0123456789abcdef", GPU: "H200", Driver: "580"}
	for _, v := range []struct {
		device string
		change func(e *Environment)
		want   string
	}{
		{"gpu", func(e *Environment) {}, ""},
		{"gpu", func(e *Environment) { e.CPUClock, e.Command, e.Memory = 33, "another", 1 }, ""},
		{"gpu", func(e *Environment) { e.CPU = "R4000" }, "its record 1 was measured with processor R3000, and this is R4000"},
		{"gpu", func(e *Environment) { e.GOMAXPROCS = 1 }, "its record 1 was measured with GOMAXPROCS 2, and this is 1"},
		{"gpu", func(e *Environment) { e.Commit = "" }, "its record 1 was measured with tilework 0123456789ab, and this is unknown"},
		{"gpu", func(e *Environment) { e.Modified = true }, "its record 1 was measured with tilework 0123456789ab, and this is 0123456789ab, modified"},
		{"gpu", func(e *Environment) { e.GPU = "H100" }, "its record 1 was measured with GPU H200, and this is H100"},
		{"gpu", func(e *Environment) { e.Driver = "570" }, "its record 1 was measured with driver 580, and this is 570"},
		{"cpu", func(e *Environment) { e.GPU, e.Driver = "", "" }, ""}, // the other part of a study
	} {
		h := NewHistory([]Record{{Device: "gpu", Environment: was}})
		here := was
		v.change(&here)
		if got := h.Differs(&here, v.device); got != v.want {
			t.Errorf("got %q, want %q", got, v.want)
		}
	}
}

// TestMend cuts a file of records at every byte.
func TestMend(t *testing.T) {
	all := examples(t)[:3]
	text := []byte(write(t, "jsonl", all))
	for n := range len(text) + 1 {
		whole, lacks := Mend(text[:n:n])
		if !bytes.HasPrefix(text[:n], whole) {
			t.Fatalf("of %d bytes it made up %d", n, len(whole))
		}
		mended := fmt.Sprintf("%s%s", whole, lacks)
		records, err := ReadRecords(strings.NewReader(mended))
		if err != nil {
			t.Fatalf("of %d bytes: %v", n, err)
		}
		lines := bytes.Count(text[:n], []byte("\n"))
		if n < len(text) && text[n] == '\n' {
			lines++ // all of it but its end
		}
		if len(records) != lines || mended != "" && !strings.HasSuffix(mended, "\n") {
			t.Fatalf("of %d bytes %d records are left, want %d", n, len(records), lines)
		}
	}
}
