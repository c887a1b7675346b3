package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tilework/internal/bench"
	"tilework/internal/phrase"
)

// row is a record of a source.
type row struct {
	*bench.Record
	source int // its index
	list   int // the number of Groups among the different lists longer than maxGroups
}

// The kinds of device.
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

// device returns the name of the CPU, the GPU or the emulated GPU.
func (r row) device() string {
	switch r.kind() {
	case onGPU:
		return cmp.Or(r.Environment.GPU, r.Device)
	case onEmu:
		return strings.TrimSuffix(cmp.Or(r.Environment.GPU, r.Device), ", emulated")
	}
	return cmp.Or(plainName.Replace(r.Environment.CPU), r.Device)
}

// plainName removes trademark signs from a CPU's name.
var plainName = strings.NewReplacer("(R)", "", "(TM)", "", "(tm)", "")

// square reports whether the record is a single product of square matrices, neither a batch nor
// grouped.
func (r row) square() bool { return r.M == r.N && r.N == r.K && r.Products == 0 && len(r.Groups) == 0 }

// study holds the records that charts are made from.
type study struct {
	sources []string // short names
	rows    []row    // records with times
	counted []row    // records with counts
	notes   []string // the records that were ignored, and why
}

// compares reports whether the sources are compared with each other. Otherwise they are parts of
// one study.
func (s *study) compares() bool { return len(s.sources) > 1 }

// newStudy keeps the records with times or counts, except times of emulated GPUs. It keeps the last
// of several records of one measurement. Sources without a common measurement become one study.
func newStudy(sources []Source) *study {
	s := &study{}
	lists := map[string]int{} // the numbers of long lists of groups
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
			r := row{Record: &source.Records[j], source: i}
			if text := fmt.Sprint(r.Groups); len(r.Groups) > maxGroups {
				if lists[text] == 0 {
					lists[text] = len(lists) + 1
				}
				r.list = lists[text]
			}
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
		{failed, "without a time, because the kernel failed or does not support the product (listed below)"},
		{emulated, "of an emulated GPU, which has no meaningful times"},
		{again, "replaced by a later record of the same measurement"},
	} {
		if n.count > 0 {
			s.notes = append(s.notes, phrase.Count(n.count, "record")+" "+n.why+".")
		}
	}
	return s
}

// overlap reports whether two sources have the same measurement: times on any devices, or counts
// for the same emulated GPU.
func (s *study) overlap() bool {
	from := map[string]int{}
	for _, r := range slices.Concat(s.rows, s.counted) {
		key := r.caseKey()
		if r.Counts != nil {
			key = r.key()
		}
		if source, known := from[key]; known && source != r.source {
			return true
		}
		from[key] = r.source
	}
	return false
}

// attribute is a property of a measurement. A name of the measurement omits an empty text.
type attribute struct {
	name string
	text func(r row) string
}

// deviceAttribute is the attribute in which sources that are compared may differ.
const deviceAttribute = "device"

// attributes distinguish measurements of the same shape.
var attributes = []attribute{
	{deviceAttribute, row.device},
	{"subject", func(r row) string { return r.Subject }},
	{"kind", row.kind},
	{"gpus", func(r row) string { return phrase.Count(gpus(r), "GPU") }},
	{"type", func(r row) string { return r.Types() }},
	{"trans", func(r row) string { return r.Transposes() }},
	{"threads", threadsOf},
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
		if r.Dense() {
			return "dense"
		}
		return fmt.Sprintf("ld %d, %d, %d", r.LDA, r.LDB, r.LDC)
	}},
	{"epilogue", func(r row) string {
		return cmp.Or(strings.Join(strings.Fields(r.Bias+" "+r.Activation+" "+r.Epilogue), " "), "no epilogue")
	}},
	{"block scales", func(r row) string { return cmp.Or(r.BlockScales, "no block scales") }},
	{"groups", groupsOf},
	{"invariance", func(r row) string {
		if r.RowInvariant && !r.Peer {
			return "row-invariant"
		}
		return "not row-invariant"
	}},
}

// threadsOf returns the number of threads: "all threads" or "2 threads".
func threadsOf(r row) string {
	if r.Threads == 0 {
		return "all threads"
	}
	return phrase.Count(r.Threads, "thread")
}

// maxGroups is the largest number of groups whose rows a name lists.
const maxGroups = 8

// groupsOf returns the rows of the groups: "groups of 4, 2 and 1 rows". Long lists have a number
// instead: "groups of 1 to 40 rows, list 2". The text is empty if the product is not grouped.
func groupsOf(r row) string {
	if len(r.Groups) == 0 {
		return ""
	}
	least, most := slices.Min(r.Groups), slices.Max(r.Groups)
	switch {
	case least == most:
		return fmt.Sprintf("groups of %d rows", most)
	case len(r.Groups) > maxGroups:
		return fmt.Sprintf("groups of %d to %d rows, list %d", least, most, r.list)
	}
	var words []string
	for _, n := range r.Groups {
		words = append(words, strconv.Itoa(n))
	}
	return "groups of " + phrase.List(words) + " rows"
}

// key returns a string that is equal for two records of the same measurement.
func (r row) key() string { return r.device() + "\x00" + r.caseKey() }

// caseKey returns a string that is equal for two records of the same measurement on any devices.
func (r row) caseKey() string {
	parts := []string{shape(r.Record)}
	for _, a := range attributes {
		if a.name != deviceAttribute {
			parts = append(parts, a.text(r))
		}
	}
	return strings.Join(parts, "\x00")
}

// naming selects the attributes whose values make up a row's name.
type naming struct {
	study   *study
	sources bool
	parts   []int // of attributes
}

// naming selects the attributes that differ among rows, except those in without. Sources that are
// compared may have been measured on different devices, which are named only if they differ within
// a source.
func (s *study) naming(rows []row, without ...string) naming {
	n := naming{study: s}
	for i, a := range attributes {
		differs := func(r row) bool {
			first := rows[0]
			if a.name == deviceAttribute {
				first = rows[slices.IndexFunc(rows, func(x row) bool { return x.source == r.source })]
			}
			return a.text(r) != a.text(first)
		}
		if !slices.Contains(without, a.name) && slices.ContainsFunc(rows, differs) {
			n.parts = append(n.parts, i)
		}
	}
	n.sources = !slices.Contains(without, "source") &&
		slices.ContainsFunc(rows, func(r row) bool { return r.source != rows[0].source })
	return n
}

// add selects an attribute although it is the same in all rows, unless they ran on a GPU.
func (n *naming) add(name string, rows []row) {
	i := slices.IndexFunc(attributes, func(a attribute) bool { return a.name == name })
	if !slices.Contains(n.parts, i) && rows[0].kind() == onCPU {
		n.parts = append(n.parts, i)
	}
}

// of returns the name of a row: the words of first, then the selected attributes. If there are
// none, it is the subject.
func (n naming) of(r row, first ...string) string {
	words := slices.Clone(first)
	for _, i := range n.parts {
		if text := attributes[i].text(r); text != "" {
			words = append(words, text)
		}
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

// group holds the rows that share a name.
type group struct {
	name string
	rows []row
}

// groupBy returns the groups in the order in which their names first appear.
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

// values returns the different texts of rows in the order in which they first appear.
func values(rows []row, text func(row) string) []string {
	var all []string
	for _, g := range groupBy(rows, text) {
		all = append(all, g.name)
	}
	return all
}

// devices returns the names of the devices of rows.
func devices(rows []row) []string { return values(rows, row.device) }

// filter returns the rows that satisfy all of keep.
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
func isInexact(r row) bool { return r.Precision != "" } // it rounds or splits its operands
func copies(r row) bool    { return r.Transfers }
func isSquare(r row) bool  { return r.square() }
func of(kind string) func(row) bool {
	return func(r row) bool { return r.kind() == kind }
}
func inSource(source int) func(row) bool {
	return func(r row) bool { return r.source == source }
}

// fastest returns the row with the least time for each N, sorted by N.
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
			cmp.Compare(a.Flops(), b.Flops()),
			cmp.Compare(a.M, b.M), cmp.Compare(a.N, b.N))
	})
}

// describe returns the text of a tooltip.
func describe(name string, r row) string {
	lines := []string{
		name,
		shape(r.Record) + ": " + spreadText(r),
	}
	if hasRate(r) {
		lines = append(lines, r.rate()+ofPeak(r))
	}
	for _, v := range r.Versus {
		lines = append(lines, fmt.Sprintf("%s the speed of %s", ratioOf(v), v.Peer))
	}
	return strings.Join(lines, "\n")
}

// ofPeak returns " (71 % of peak)", or nothing if the peak is not known.
func ofPeak(r row) string {
	if percent, known := r.PercentOfPeak(); known {
		return fmt.Sprintf(" (%.0f %% of peak)", percent)
	}
	return ""
}

// sizes returns the number of different shapes.
func sizes(rows []row) int {
	return len(groupBy(rows, func(r row) string { return shape(r.Record) }))
}

// fewSizes reports whether rows have too few sizes for lines.
func fewSizes(rows []row) bool { return sizes(rows) < 3 }

// facet returns a key that is equal for rows that can share a chart of rates: those of one kind of
// device and one element type, and with either exact or rounded operands.
func facet(r row) string {
	return fmt.Sprintf("%s, %s, %v", r.kind(), r.Types(), isInexact(r))
}

// arithmetic returns the element type, followed by the precision of the multiplication if it
// differs.
func arithmetic(r row) string {
	if isInexact(r) {
		return r.Types() + " in " + r.Precision
	}
	return r.Types()
}

// mainFacet returns the facet with the most rows of our kernels. It prefers GPUs and exact
// operands.
func (s *study) mainFacet() string {
	groups := groupBy(filter(s.rows, hasRate, not(copies), not(isPeer)), facet)
	if len(groups) == 0 {
		return ""
	}
	is := func(g group, what func(row) bool) int { return len(filter(g.rows[:1], what)) }
	return slices.MaxFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(is(a, of(onGPU)), is(b, of(onGPU))), cmp.Compare(is(b, isInexact), is(a, isInexact)),
			cmp.Compare(len(a.rows), len(b.rows)))
	}).name
}

// byFacet groups rows by facet, starting with the main one, and names the groups for readers, such
// as "GPU, float32 in tf32 and f32x3".
func (s *study) byFacet(rows []row) []group {
	all := groupBy(rows, facet)
	if i := slices.IndexFunc(all, func(g group) bool { return g.name == s.mainFacet() }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	for i, g := range all {
		all[i].name = g.rows[0].kind() + ", " + g.rows[0].Types()
		var precisions []string
		for _, p := range groupBy(filter(g.rows, isInexact), func(r row) string { return r.Precision }) {
			precisions = append(precisions, p.name)
		}
		if precisions != nil {
			all[i].name += " in " + phrase.List(precisions)
		}
	}
	return all
}
