package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"tilework/dtype"
)

// TestHistory checks that Find returns a case only if each subject has a usable record of it.
func TestHistory(t *testing.T) {
	c := shape(t, Cube(8), dtype.F32, dtype.F32)
	modified := func(change func(r *Record)) Record {
		r := newRecord(&c)
		r.Subject, r.Seed, r.Reps = "a", 7, 5
		change(&r)
		return r
	}
	good := modified(func(*Record) {})
	o := Options{Seed: 7}
	for _, v := range []struct {
		name     string
		records  []Record
		subjects string
		found    bool
	}{
		{"no records", nil, "a", false},
		{"measured", []Record{good}, "a", true},
		{"other subject", []Record{good}, "b", false},
		{"one of two subjects", []Record{good}, "a b", false},
		{"both subjects", []Record{modified(func(r *Record) { r.Subject = "b" }), good}, "a b", true},
		{"interrupted", []Record{modified(func(r *Record) { r.Interrupted = true })}, "a", false},
		{"interrupted, then completed", []Record{modified(func(r *Record) { r.Interrupted = true }), good}, "a", true},
		{"failed", []Record{modified(func(r *Record) { r.Error = "boom" })}, "a", false},
		{"completed, then failed", []Record{good, modified(func(r *Record) { r.Error = "boom" })}, "a", false},
		{"unsupported", []Record{modified(func(r *Record) { r.Error, r.Unsupported = "no", true })}, "a", true},
		{"other shape", []Record{modified(func(r *Record) { r.K = 9 })}, "a", false},
		{"other type", []Record{modified(func(r *Record) { r.In = "float64" })}, "a", false},
		{"transposed", []Record{modified(func(r *Record) { r.TransB = true })}, "a", false},
		{"other threads", []Record{modified(func(r *Record) { r.Threads = 1 })}, "a", false},
		{"other device", []Record{modified(func(r *Record) { r.Device = "gpu" })}, "a", false},
		{"cold", []Record{modified(func(r *Record) { r.Cold = true })}, "a", false},
		{"with transfers", []Record{modified(func(r *Record) { r.Transfers = true })}, "a", false},
		{"other seed", []Record{modified(func(r *Record) { r.Seed = 8 })}, "a", false},
	} {
		subjects := strings.Fields(v.subjects)
		found, all := NewHistory(v.records).Find(c, o, subjects)
		if all != v.found || all && len(found) != len(subjects) {
			t.Errorf("%s: got %d records, all %v, want all %v", v.name, len(found), all, v.found)
		}
		for i := range found {
			if found[i].Subject != subjects[i] {
				t.Errorf("%s: record %d is of subject %s, want %s", v.name, i, found[i].Subject, subjects[i])
			}
		}
	}
}

// TestHistoryDiffers checks that Differs reports the differences that affect times, and no others.
func TestHistoryDiffers(t *testing.T) {
	was := Environment{OS: "linux", Arch: "amd64", CPU: "R3000", Cores: 2, GOMAXPROCS: 2, Go: "go1.26",
		Commit: "0123456789abcdef", GPU: "H200", Driver: "580"}
	for _, v := range []struct {
		device string
		change func(e *Environment)
		want   string
	}{
		{"gpu", func(e *Environment) {}, ""},
		{"gpu", func(e *Environment) { e.CPUClock, e.Command, e.Memory = 33, "another", 1 }, ""},
		{"gpu", func(e *Environment) { e.CPU = "R4000" }, "its record 1 was measured with CPU R3000, but this is R4000"},
		{"gpu", func(e *Environment) { e.GOMAXPROCS = 1 }, "its record 1 was measured with GOMAXPROCS 2, but this is 1"},
		{"gpu", func(e *Environment) { e.Commit = "" },
			"its record 1 was measured with tilework 0123456789ab, but this is unknown"},
		{"gpu", func(e *Environment) { e.Modified = true },
			"its record 1 was measured with tilework 0123456789ab, but this is 0123456789ab, modified"},
		{"gpu", func(e *Environment) { e.GPU = "H100" }, "its record 1 was measured with GPU H200, but this is H100"},
		{"gpu", func(e *Environment) { e.Driver = "570" }, "its record 1 was measured with driver 580, but this is 570"},
		{"cpu", func(e *Environment) { e.GPU, e.Driver = "", "" }, ""}, // records of another device
	} {
		h := NewHistory([]Record{{Device: "gpu", Environment: was}})
		here := was
		v.change(&here)
		if got := h.Differs(&here, v.device); got != v.want {
			t.Errorf("got %q, want %q", got, v.want)
		}
	}
}

// TestTrimPartial truncates a file of records at every byte.
func TestTrimPartial(t *testing.T) {
	all := examples(t)[:3]
	text := []byte(write(t, "jsonl", all))
	for n := range len(text) + 1 {
		complete, missing := TrimPartial(text[:n:n])
		if !bytes.HasPrefix(text[:n], complete) {
			t.Fatalf("%d bytes: got %q, which is not a prefix", n, complete)
		}
		trimmed := fmt.Sprintf("%s%s", complete, missing)
		records, err := ReadRecords(strings.NewReader(trimmed))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		lines := bytes.Count(text[:n], []byte("\n"))
		if n < len(text) && text[n] == '\n' {
			lines++ // only its line end is missing
		}
		if len(records) != lines || trimmed != "" && !strings.HasSuffix(trimmed, "\n") {
			t.Fatalf("%d bytes: got %d records, want %d", n, len(records), lines)
		}
	}
}
