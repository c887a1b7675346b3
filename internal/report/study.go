package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/bench"
)

// row is a record with times, and the source that it is from.
type row struct {
	*bench.Record
	source int
}

// The kinds of devices. The times of an emulated GPU say nothing about a real one.
const (
	onCPU = "CPU"
	onGPU = "GPU"
	onEmu = "emulator"
)

func (r row) kind() string {
	switch {
	case strings.HasPrefix(r.Device, "gpu"):
		return onGPU
	case strings.HasPrefix(r.Device, "emu"):
		return onEmu
	}
	return onCPU
}

// device is the name of what a record was measured on.
func (r row) device() string {
	if r.kind() == onGPU {
		return cmp.Or(r.Environment.GPU, r.Device)
	}
	return cmp.Or(plainName.Replace(r.Environment.CPU), r.Device)
}

// plainName takes out of a processor's name what its maker's lawyers put there.
var plainName = strings.NewReplacer("(R)", "", "(TM)", "", "(tm)", "")

func (r row) square() bool { return r.M == r.N && r.N == r.K }

// study is what the charts are drawn from.
type study struct {
	sources []string // their names, short
	rows    []row    // with times
	counted []row    // with counts
	notes   []string // what was left out, and why
}

// newStudy keeps the records that charts can be made of: those with times, which are not
// an emulated GPU's, and those with counts, and of several of one measurement the last.
// Sources that have no measurement in common are the parts of one.
func newStudy(sources []Source) *study {
	s := &study{}
	var failed, emulated, again int
	for i, source := range sources {
		s.sources = append(s.sources, source.Name)
		at, counted := map[string]int{}, map[string]int{}
		keep := func(rows []row, at map[string]int, r row) []row {
			key := r.key()
			if old, known := at[key]; known {
				again++
				rows[old] = r
				return rows
			}
			at[key] = len(rows)
			return append(rows, r)
		}
		for j := range source.Records {
			r := row{&source.Records[j], i}
			switch {
			case r.Error != "":
				failed++
			case r.Counts != nil:
				s.counted = keep(s.counted, counted, r)
			case r.kind() == onEmu:
				emulated++
			default:
				s.rows = keep(s.rows, at, r)
			}
		}
	}
	if !s.overlap() {
		s.sources = []string{strings.Join(s.sources, ", ")}
		for _, rows := range [][]row{s.rows, s.counted} {
			for i := range rows {
				rows[i].source = 0
			}
		}
	}
	for _, n := range []struct {
		count int
		why   string
	}{
		{failed, "without a time, because the subject failed or does not do such products: they are listed at the end"},
		{emulated, "of an emulated GPU, whose times are those of the emulator"},
		{again, "that a later record of the same measurement replaces"},
	} {
		if n.count > 0 {
			s.notes = append(s.notes, "Left out: "+count(n.count, "record")+" "+n.why+".")
		}
	}
	return s
}

// overlap reports whether two sources have the same measurement.
func (s *study) overlap() bool {
	from := map[string]int{}
	for _, r := range slices.Concat(s.rows, s.counted) {
		if source, known := from[r.key()]; known && source != r.source {
			return true
		}
		from[r.key()] = r.source
	}
	return false
}

// attributes are what tells measurements apart, besides their shapes.
var attributes = []struct {
	name string
	text func(r row) string
}{
	{"subject", func(r row) string { return r.Subject }},
	{"kind", row.kind},
	{"type", func(r row) string { return r.Types() }},
	{"trans", func(r row) string { return r.Transposes() }},
	{"threads", func(r row) string {
		if r.Threads == 0 {
			return "all threads"
		}
		return count(r.Threads, "thread")
	}},
	{"transfers", func(r row) string {
		if r.Transfers {
			return "with copies"
		}
		return "without copies"
	}},
	{"cold", func(r row) string {
		if r.Cold {
			return "cold cache"
		}
		return "warm cache"
	}},
	{"scalars", func(r row) string { return fmt.Sprintf("α=%v β=%v", r.Alpha, r.Beta) }},
	{"strides", func(r row) string {
		a, c, b := r.K, r.N, r.N
		if r.TransA {
			a = r.M
		}
		if r.TransB {
			b = r.K
		}
		if r.LDA == a && r.LDB == b && r.LDC == c {
			return "dense"
		}
		return fmt.Sprintf("ld %d, %d, %d", r.LDA, r.LDB, r.LDC)
	}},
	{"epilogue", func(r row) string {
		return cmp.Or(strings.Join(strings.Fields(r.Bias+" "+r.Activation+" "+r.Epilogue), " "), "no epilogue")
	}},
}

// key is the same for two records of the same measurement.
func (r row) key() string {
	parts := []string{shape(r.Record)}
	for _, a := range attributes {
		parts = append(parts, a.text(r))
	}
	if r.Counts != nil {
		parts = append(parts, emulated(r)) // whose instructions differ
	}
	return strings.Join(parts, "\x00")
}

// naming says which attributes tell rows apart; those that are the same in all need
// no words.
type naming struct {
	study   *study
	sources bool
	parts   []int // of attributes
}

// naming is that of rows, without the attributes that are named already.
func (s *study) naming(rows []row, without ...string) naming {
	n := naming{study: s}
	for i, a := range attributes {
		if slices.Contains(without, a.name) {
			continue
		}
		for _, r := range rows {
			if a.text(r) != a.text(rows[0]) {
				n.parts = append(n.parts, i)
				break
			}
		}
	}
	n.sources = !slices.Contains(without, "source") && slices.ContainsFunc(rows, func(r row) bool { return r.source != rows[0].source })
	return n
}

// of names a row; first stands before what tells it apart. A row that nothing tells apart
// has its subject's name.
func (n naming) of(r row, first ...string) string {
	words := slices.Clone(first)
	for _, i := range n.parts {
		words = append(words, attributes[i].text(r))
	}
	if len(words) == 0 {
		words = []string{r.Subject}
	}
	name := strings.Join(words, ", ")
	if n.sources {
		name += " (" + n.study.sources[r.source] + ")"
	}
	return name
}

// glyph is the form of a series' points: of several sources each has its own, and of
// one each series.
func (s *study) glyph(series, source int) int {
	if len(s.sources) > 1 {
		return source
	}
	return series
}

// group is rows that share a name, in the order in which the names first appear.
type group struct {
	name string
	rows []row
}

func groupBy(rows []row, name func(row) string) []group {
	var groups []group
	at := map[string]int{}
	for _, r := range rows {
		k := name(r)
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k] = i
			groups = append(groups, group{name: k})
		}
		groups[i].rows = append(groups[i].rows, r)
	}
	return groups
}

// filter is the rows for which all of keep hold.
func filter(rows []row, keep ...func(row) bool) []row {
	var out []row
	for _, r := range rows {
		if !slices.ContainsFunc(keep, func(f func(row) bool) bool { return !f(r) }) {
			out = append(out, r)
		}
	}
	return out
}

func not(f func(row) bool) func(row) bool { return func(r row) bool { return !f(r) } }

func isPeer(r row) bool    { return r.Peer }
func isInexact(r row) bool { return r.Precision != "" } // it has not the elements' own arithmetic
func copies(r row) bool    { return r.Transfers }
func isSquare(r row) bool  { return r.square() }
func of(kind string) func(row) bool {
	return func(r row) bool { return r.kind() == kind }
}

// fastest is, of each size N, the row that took the least time, smallest N first.
func fastest(rows []row) []row {
	best := map[int]row{}
	for _, r := range rows {
		if old, known := best[r.N]; !known || r.Seconds.Median < old.Seconds.Median {
			best[r.N] = r
		}
	}
	return bySize(rowsOf(best))
}

func rowsOf(m map[int]row) []row {
	var rows []row
	for _, r := range m {
		rows = append(rows, r)
	}
	return rows
}

// bySize sorts rows by the work in them, and then by their shape.
func bySize(rows []row) []row {
	return slices.SortedStableFunc(slices.Values(rows), func(a, b row) int {
		return cmp.Or(
			cmp.Compare(float64(a.M)*float64(a.N)*float64(a.K), float64(b.M)*float64(b.N)*float64(b.K)),
			cmp.Compare(a.M, b.M), cmp.Compare(a.N, b.N))
	})
}

// telling is what a reader is told who points at r.
func telling(name string, r row) string {
	lines := []string{
		name,
		fmt.Sprintf("%s: %s ± %.1f %%", shape(r.Record), bench.Duration(r.Seconds.Median), 50*r.Seconds.Spread),
		r.rate() + ofPeak(r),
	}
	for _, v := range r.Versus {
		lines = append(lines, fmt.Sprintf("%s the speed of %s", times(v.Speed), v.Peer))
	}
	return strings.Join(lines, "\n")
}

// ofPeak is " (71 % of peak)" where the peak is known.
func ofPeak(r row) string {
	if percent, known := r.PercentOfPeak(); known {
		return fmt.Sprintf(" (%.0f %% of peak)", percent)
	}
	return ""
}
