package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// Origin describes the records of a source.
type Origin struct {
	Name     string
	Facts    []Fact
	Summary  string   // the number of records and the date
	Commands []string // the commands that measured them
	Failures []string // subjects without a time, with the error
}

// Fact is a property of an origin with its different values.
type Fact struct {
	Name   string
	Values []string
}

// facts lists the properties. Empty values are omitted.
var facts = []struct {
	name  string
	value func(r *bench.Record) string
}{
	{"CPU", func(r *bench.Record) string { return r.Environment.CPU }},
	{"cores", func(r *bench.Record) string {
		if r.Environment.Cores == 0 {
			return ""
		}
		return fmt.Sprintf("%d, GOMAXPROCS %d", r.Environment.Cores, r.Environment.GOMAXPROCS)
	}},
	{"instructions", func(r *bench.Record) string { return strings.Join(r.Environment.Features, " ") }},
	{"GPU", func(r *bench.Record) string { return r.Environment.GPU }},
	{"driver", func(r *bench.Record) string { return r.Environment.Driver }},
	{"caches", func(r *bench.Record) string {
		if r.Cold {
			return "cold: operands are read from memory"
		}
		return "warm: operands are those of the previous product"
	}},
	{"libraries", func(r *bench.Record) string {
		if r.Peer {
			name, _, _ := strings.Cut(cmp.Or(r.Detail, r.Subject), ",")
			return name
		}
		return ""
	}},
	{"system", func(r *bench.Record) string { return strings.Trim(r.Environment.OS+"/"+r.Environment.Arch, "/") }},
	{"Go", func(r *bench.Record) string { return r.Environment.Go }},
	{"tilework", func(r *bench.Record) string { return r.Environment.Build() }},
	{"date", dateOf},
	{"results", func(r *bench.Record) string {
		switch {
		case r.Error != "":
			return ""
		case r.Verified:
			return "checked against a float64 reference before and after timing"
		}
		return "some were not checked"
	}},
}

// dateOf returns the date of a record, or the empty string if it has none.
func dateOf(r *bench.Record) string {
	if r.Environment.Date.IsZero() {
		return ""
	}
	return r.Environment.Date.Format(time.DateOnly)
}

// maxValues is the largest number of values listed for one fact.
const maxValues = 6

// clocks returns the lowest and the highest clock rate of the GPU, or zeros.
func clocks(records []bench.Record) (low, high float64) {
	for _, r := range records {
		if r.Load == nil || r.Load.SMClock.Median == 0 {
			continue
		}
		if clock := r.Load.SMClock.Median; high == 0 {
			low, high = clock, clock
		} else {
			low, high = min(low, clock), max(high, clock)
		}
	}
	return low, high
}

func originOf(s Source) Origin {
	o := Origin{Name: s.Name, Summary: phrase.Count(len(s.Records), "record")}
	for _, f := range facts {
		var values []string
		for i := range s.Records {
			if v := f.value(&s.Records[i]); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if n := len(values); n > maxValues {
			values = append(values[:maxValues-1], fmt.Sprintf("and %d more", n-maxValues+1))
		}
		if len(values) > 0 {
			o.Facts = append(o.Facts, Fact{f.name, values})
		}
	}
	if low, high := clocks(s.Records); high > 0 {
		o.Facts = append(o.Facts, Fact{"GPU clock", []string{fmt.Sprintf("%.0f to %.0f MHz", low, high)}})
	}
	if n := len(s.Records); n > 0 && dateOf(&s.Records[n-1]) != "" {
		o.Summary += ", " + dateOf(&s.Records[n-1])
	}
	for i := range s.Records {
		r := &s.Records[i]
		if command := r.Environment.Command; command != "" && !slices.Contains(o.Commands, command) {
			o.Commands = append(o.Commands, command)
		}
		if r.Error != "" {
			o.Failures = append(o.Failures, fmt.Sprintf("%s, %s %s on %s: %s", r.Subject, shape(r), r.Types(), r.Device,
				r.Error))
		}
	}
	return o
}
