package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tilework/internal/bench"
)

// Origin is where a source's records come from.
type Origin struct {
	Name     string
	Facts    []Fact
	Commands []string // that made them
	Failures []string // the subjects that have no time, and why
}

// Fact is something about an origin, and its values.
type Fact struct {
	Name   string
	Values []string
}

// facts are what is told of records; empty values are left out.
var facts = []struct {
	name  string
	value func(r *bench.Record) string
}{
	{"processor", func(r *bench.Record) string { return r.Environment.CPU }},
	{"cores", func(r *bench.Record) string {
		return fmt.Sprintf("%d, GOMAXPROCS %d", r.Environment.Cores, r.Environment.GOMAXPROCS)
	}},
	{"instructions", func(r *bench.Record) string { return strings.Join(r.Environment.Features, " ") }},
	{"GPU", func(r *bench.Record) string { return r.Environment.GPU }},
	{"driver", func(r *bench.Record) string { return r.Environment.Driver }},
	{"GPU clock", func(r *bench.Record) string {
		if r.Load == nil || r.Load.SMClock.Median == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f MHz", r.Load.SMClock.Median)
	}},
	{"caches", func(r *bench.Record) string {
		if r.Cold {
			return "cold: operands come from memory"
		}
		return "warm: operands are those of the product before"
	}},
	{"libraries", func(r *bench.Record) string {
		if r.Peer {
			return cmp.Or(r.Detail, r.Subject)
		}
		return ""
	}},
	{"system", func(r *bench.Record) string { return r.Environment.OS + "/" + r.Environment.Arch }},
	{"Go", func(r *bench.Record) string { return r.Environment.Go }},
	{"tilework", func(r *bench.Record) string {
		e := &r.Environment
		text := strings.TrimSpace(e.Version + " " + e.Commit[:min(12, len(e.Commit))])
		if e.Modified {
			text += ", modified"
		}
		return text
	}},
	{"date", func(r *bench.Record) string { return r.Environment.Date.Format(time.DateOnly) }},
	{"results", func(r *bench.Record) string {
		switch {
		case r.Error != "":
			return ""
		case r.Verified:
			return "checked against a float64 reference before they were timed"
		}
		return "some were not checked"
	}},
}

// mostValues bounds how many different values of one fact are listed.
const mostValues = 6

func originOf(s Source) Origin {
	o := Origin{Name: s.Name, Facts: []Fact{{"records", []string{fmt.Sprint(len(s.Records))}}}}
	for _, f := range facts {
		var values []string
		for i := range s.Records {
			if v := f.value(&s.Records[i]); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if n := len(values); n > mostValues {
			values = append(values[:mostValues-1], fmt.Sprintf("and %d more", n-mostValues+1))
		}
		if len(values) > 0 {
			o.Facts = append(o.Facts, Fact{f.name, values})
		}
	}
	for i := range s.Records {
		r := &s.Records[i]
		if command := r.Environment.Command; command != "" && !slices.Contains(o.Commands, command) {
			o.Commands = append(o.Commands, command)
		}
		if r.Error != "" {
			o.Failures = append(o.Failures, fmt.Sprintf("%s, %s %s on %s: %s", r.Subject, shape(r), r.Types(), r.Device, r.Error))
		}
	}
	return o
}
