package bench

import "fmt"

// History holds records of earlier measurements.
type History struct{ records []Record }

// NewHistory returns a History of records, which it keeps.
func NewHistory(records []Record) *History { return &History{records} }

// Differs compares the environments of the records with here, for measurements on the given device.
// It returns the first difference that prevents continuing the records: the machine, a version, the
// device or its driver. It returns the empty string if there is none.
func (h *History) Differs(here *Environment, device string) string {
	for i := range h.records {
		r := &h.records[i]
		for _, f := range conditions {
			if f.device && r.Device != device {
				continue
			}
			if was, is := f.text(&r.Environment), f.text(here); was != is {
				return fmt.Sprintf("its record %d was measured with %s %s, but this is %s", i+1, f.name, orUnknown(was),
					orUnknown(is))
			}
		}
	}
	return ""
}

func orUnknown(value string) string {
	if value == "" {
		return "unknown"
	}
	return value
}

// conditions are the parts of an environment that affect times. They must be equal if one
// measurement is to continue another. Those with device set matter only for records of the same
// device.
var conditions = []struct {
	name   string
	device bool
	text   func(e *Environment) string
}{
	{"CPU", false, func(e *Environment) string { return e.CPU }},
	{"cores", false, func(e *Environment) string { return fmt.Sprint(e.Cores) }},
	{"GOMAXPROCS", false, func(e *Environment) string { return fmt.Sprint(e.GOMAXPROCS) }},
	{"system", false, func(e *Environment) string { return e.OS + "/" + e.Arch }},
	{"Go", false, func(e *Environment) string { return e.Go }},
	{"tilework", false, (*Environment).Build},
	{"GPU", true, func(e *Environment) string { return e.GPU }},
	{"driver", true, func(e *Environment) string { return e.Driver }},
}

// Find returns the latest record of each subject for a case measured with these options. all is
// false if any subject has none, or one that failed or was interrupted; an unsupported product is
// not a failure. The subjects take turns, so a case that lacks one subject must be measured as a
// whole.
func (h *History) Find(c Case, o Options, subjects []string) (found []Record, all bool) {
	want := newRecord(&c)
	want.Cold, want.Seed = o.Cold, o.Seed
	for _, name := range subjects {
		want.Subject = name
		at := len(h.records) - 1
		for at >= 0 && h.records[at].identity() != want.identity() {
			at--
		}
		if at < 0 || h.records[at].Interrupted || h.records[at].Error != "" && !h.records[at].Unsupported {
			return nil, false
		}
		found = append(found, h.records[at])
	}
	return found, true
}

// identity describes a measured case and subject, without the results.
type identity struct {
	subject, device, in, out string
	m, n, k, lda, ldb, ldc   int
	transA, transB           bool
	alpha, beta              float64
	bias, activation         string
	epilogue, scales         string
	threads                  int
	transfers, cold          bool
	seed                     uint64
	products                 int
	groups                   string
	rowInvariant             bool
}

func (r *Record) identity() identity {
	return identity{
		r.Subject, r.Device, r.In, r.Out, r.M, r.N, r.K, r.LDA, r.LDB, r.LDC, r.TransA, r.TransB,
		r.Alpha, r.Beta, r.Bias, r.Activation, r.Epilogue, r.BlockScales, r.Threads, r.Transfers, r.Cold, r.Seed,
		r.Products, fmt.Sprint(r.Groups), r.RowInvariant,
	}
}
