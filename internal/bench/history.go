package bench

import "fmt"

// History is records that were measured before.
type History struct{ records []Record }

// NewHistory takes over records.
func NewHistory(records []Record) *History { return &History{records} }

// Differs says what keeps the records from being continued with a measurement here, on
// a device of that name: the machine, the versions, the device or its driver. It is
// empty where nothing does.
func (h *History) Differs(here *Environment, device string) string {
	for i := range h.records {
		r := &h.records[i]
		for _, f := range conditions {
			if f.device && r.Device != device {
				continue
			}
			if was, is := f.text(&r.Environment), f.text(here); was != is {
				return fmt.Sprintf("its record %d was measured with %s %s, and this is %s", i+1, f.name, told(was), told(is))
			}
		}
	}
	return ""
}

func told(value string) string {
	if value == "" {
		return "unknown"
	}
	return value
}

// conditions is what two measurements have in common where one continues the other:
// all that changes times. The facts of a device count only on that device.
var conditions = []struct {
	name   string
	device bool
	text   func(e *Environment) string
}{
	{"processor", false, func(e *Environment) string { return e.CPU }},
	{"cores", false, func(e *Environment) string { return fmt.Sprint(e.Cores) }},
	{"GOMAXPROCS", false, func(e *Environment) string { return fmt.Sprint(e.GOMAXPROCS) }},
	{"system", false, func(e *Environment) string { return e.OS + "/" + e.Arch }},
	{"Go", false, func(e *Environment) string { return e.Go }},
	{"tilework", false, (*Environment).build},
	{"GPU", true, func(e *Environment) string { return e.GPU }},
	{"driver", true, func(e *Environment) string { return e.Driver }},
}

// Find returns the records of a case, measured with these options, if each of the
// subjects has one: its latest, that is neither interrupted nor a failure. What a
// subject does not do is no failure. Subjects are compared in turns, so that a case of
// which one is missing has to be measured as a whole.
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

// identity is what was measured, as against what came out.
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
}

func (r *Record) identity() identity {
	return identity{
		r.Subject, r.Device, r.In, r.Out, r.M, r.N, r.K, r.LDA, r.LDB, r.LDC, r.TransA, r.TransB,
		r.Alpha, r.Beta, r.Bias, r.Activation, r.Epilogue, r.BlockScales, r.Threads, r.Transfers, r.Cold, r.Seed,
		r.Products, fmt.Sprint(r.Groups),
	}
}
