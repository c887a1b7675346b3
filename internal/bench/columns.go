package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tilework/internal/device/timeline"
	"tilework/internal/host"
)

// column is a column of the output. CSV has all columns. The table has those with a text function,
// whose result is short and may be empty.
type column struct {
	name  string
	value func(r *Record) any
	title string
	text  func(r *Record) string
}

var columns = []column{
	{"subject", func(r *Record) any { return r.Subject }, "subject", func(r *Record) string { return r.Subject }},
	{"detail", func(r *Record) any { return r.Detail }, "", nil},
	{"peer", func(r *Record) any { return r.Peer }, "", nil},
	{"precision", func(r *Record) any { return r.Precision }, "", nil},
	{"device", func(r *Record) any { return r.Device }, "device", func(r *Record) string { return r.Device }},
	{"in", func(r *Record) any { return r.In }, "type", (*Record).Types},
	{"out", func(r *Record) any { return r.Out }, "", nil},
	{"m", func(r *Record) any { return r.M }, "M×N×K", (*Record).shape},
	{"n", func(r *Record) any { return r.N }, "", nil},
	{"k", func(r *Record) any { return r.K }, "", nil},
	{"products", func(r *Record) any { return max(r.Products, 1) }, "products",
		notable(func(r *Record) string { return strconv.Itoa(max(r.Products, 1)) }, "1")},
	{"groups", func(r *Record) any { return groupsText(r) }, "groups", groupsText},
	{"trans", func(r *Record) any { return r.Transposes() }, "trans", notable((*Record).Transposes, "NN")},
	{"lda", func(r *Record) any { return r.LDA }, "", nil},
	{"ldb", func(r *Record) any { return r.LDB }, "", nil},
	{"ldc", func(r *Record) any { return r.LDC }, "", nil},
	{"alpha", func(r *Record) any { return r.Alpha }, "", nil},
	{"beta", func(r *Record) any { return r.Beta }, "", nil},
	{"bias", func(r *Record) any { return r.Bias }, "bias", func(r *Record) string { return r.Bias }},
	{"activation", func(r *Record) any { return r.Activation }, "activation",
		func(r *Record) string { return r.Activation }},
	{"epilogue", func(r *Record) any { return r.Epilogue }, "epilogue", func(r *Record) string { return r.Epilogue }},
	{"block_scales", func(r *Record) any { return r.BlockScales }, "block scales",
		func(r *Record) string { return r.BlockScales }},
	{"row_invariant", func(r *Record) any { return r.RowInvariant }, "row-invariant",
		yes(func(r *Record) bool { return r.RowInvariant })},
	{"threads", func(r *Record) any { return r.Threads }, "threads",
		notable(func(r *Record) string { return strconv.Itoa(r.Threads) }, "0")},
	{"transfers", func(r *Record) any { return r.Transfers }, "transfers",
		yes(func(r *Record) bool { return r.Transfers })},
	{"cold", func(r *Record) any { return r.Cold }, "cache", timed(cacheText)},
	{"buffers", func(r *Record) any { return r.Buffers }, "", nil},
	{"seed", func(r *Record) any { return r.Seed }, "", nil},
	{"intensity", func(r *Record) any { return r.Intensity }, "", nil},
	{"predicted_cycles", func(r *Record) any { return r.Predicted }, "", nil},
	{"predicted_seconds", func(r *Record) any { return r.PredictedSeconds }, "", nil},
	{"setup_seconds", func(r *Record) any { return r.Setup }, "compile", setup},
	{"reps", func(r *Record) any { return r.Reps }, "reps", timed(func(r *Record) string { return strconv.Itoa(r.Reps) })},
	{"median_of", func(r *Record) any { return max(r.MedianOf, 1) }, "", nil},
	{"batch", func(r *Record) any { return r.Batch }, "", nil},
	{"seconds", func(r *Record) any { return r.Seconds.Median }, "median",
		timed(func(r *Record) string { return Marked(Duration(r.Seconds.Median), r.Uncertain()) })},
	{"seconds_min", func(r *Record) any { return r.Seconds.Min }, "", nil},
	{"seconds_p10", func(r *Record) any { return r.Seconds.P10 }, "", nil},
	{"seconds_p90", func(r *Record) any { return r.Seconds.P90 }, "", nil},
	{"seconds_max", func(r *Record) any { return r.Seconds.Max }, "", nil},
	{"spread", func(r *Record) any { return r.Seconds.Spread }, "spread",
		timed(func(r *Record) string {
			if r.Reps < 2 {
				return "" // one timing has none
			}
			return fmt.Sprintf("%.1f%%", 100*r.Seconds.Spread)
		})},
	{"gflops", rate(func(r *Record) any { return r.GFLOPS }), "GFLOP/s", rateText},
	{"gbytes_per_second", func(r *Record) any { return r.Bandwidth() / 1e9 }, "GB/s", timed(bandwidth)},
	{"peak_gflops", rate(func(r *Record) any { return r.Peak }), "of peak", percentOfPeak},
	{"allocate_seconds", step(func(s *Steps) float64 { return s.Allocate }), "allocate + upload + compute + download",
		steps},
	{"upload_seconds", step(func(s *Steps) float64 { return s.Upload }), "", nil},
	{"compute_seconds", step(func(s *Steps) float64 { return s.Compute }), "", nil},
	{"download_seconds", step(func(s *Steps) float64 { return s.Download }), "", nil},
	{"gpus", breakdownList(func(s *timeline.Breakdown) any { return s.Device }), "", nil},
	{"gpus_seconds", breakdownList(func(s *timeline.Breakdown) any { return s.Seconds }), "", nil},
	{"gpus_compute_seconds", breakdownList(func(s *timeline.Breakdown) any { return s.Compute }), "", nil},
	{"gpus_copies_seconds", breakdownList(func(s *timeline.Breakdown) any { return s.Copies }), "", nil},
	{"gpus_overlapped_seconds", breakdownList(func(s *timeline.Breakdown) any { return s.Overlapped }), "", nil},
	{"gpus_waiting_seconds", breakdownList(func(s *timeline.Breakdown) any { return s.Waiting }), "", nil},
	{"gpus_from_host_bytes", breakdownList(func(s *timeline.Breakdown) any { return s.FromHost }), "", nil},
	{"gpus_to_host_bytes", breakdownList(func(s *timeline.Breakdown) any { return s.ToHost }), "", nil},
	{"gpus_from_gpus_bytes", breakdownList(func(s *timeline.Breakdown) any { return s.FromGPUs }), "", nil},
	{"sm_mhz", load(func(l *Load) float64 { return l.SMClock.Median }), "clock", clockRate},
	{"watts", load(func(l *Load) float64 { return l.Power.Median }), "", nil},
	{"celsius", load(func(l *Load) float64 { return l.Temperature.Median }), "", nil},
	{"burst_seconds", func(r *Record) any { return r.Burst }, "burst",
		aloneText(func(r *Record) float64 { return r.Burst })},
	{"sustained_seconds", func(r *Record) any { return r.Sustained }, "sustained",
		aloneText(func(r *Record) float64 { return r.Sustained })},
	{"joules", func(r *Record) any { return r.Joules }, "energy", energyText},
	{"instructions", counted(func(c *Counts) any { return c.Instructions }), "instructions",
		countText(func(c *Counts) string { return strconv.FormatInt(c.Instructions, 10) })},
	{"flops", counted(func(c *Counts) any { return c.Flops }), "FLOP",
		countText(func(c *Counts) string { return strconv.FormatInt(c.Flops, 10) })},
	{"issued_flops", counted(func(c *Counts) any { return c.Issued }), "issued",
		countText(func(c *Counts) string { return strconv.FormatInt(c.Issued, 10) })},
	{"load_bytes", counted(func(c *Counts) any { return c.LoadBytes }), "loaded",
		countText(func(c *Counts) string { return host.Bytes(uint64(c.LoadBytes)) })},
	{"flops_per_byte", counted(func(c *Counts) any { return c.Intensity() }), "FLOP/byte",
		countText(func(c *Counts) string { return fmt.Sprintf("%.3g", c.Intensity()) })},
	{"store_bytes", counted(func(c *Counts) any { return c.StoreBytes }), "stored",
		countText(func(c *Counts) string { return host.Bytes(uint64(c.StoreBytes)) })},
	{"sectors", counted(func(c *Counts) any { return c.Sectors }), "sectors (ideal)",
		countText(func(c *Counts) string { return fmt.Sprintf("%d (%d)", c.Sectors, c.IdealSectors) })},
	{"ideal_sectors", counted(func(c *Counts) any { return c.IdealSectors }), "", nil},
	{"distinct_sectors", counted(func(c *Counts) any { return c.DistinctSectors }), "distinct",
		countText(func(c *Counts) string { return strconv.FormatInt(c.DistinctSectors, 10) })},
	{"shared_requests", counted(func(c *Counts) any { return c.SharedRequests }), "", nil},
	{"wavefronts", counted(func(c *Counts) any { return c.Wavefronts }), "wavefronts",
		countText(func(c *Counts) string { return strconv.FormatInt(c.Wavefronts, 10) })},
	{"ideal_wavefronts", counted(func(c *Counts) any { return c.IdealWavefronts }), "", nil},
	{"bank_conflicts", counted(func(c *Counts) any { return c.Conflicts() }), "conflicts",
		countText(func(c *Counts) string { return strconv.FormatInt(c.Conflicts(), 10) })},
	{"then_half_warps", historicCount(func(t *HistoricCounts) int64 { return t.HalfWarps }), "", nil},
	{"then_transactions", historicCount(func(t *HistoricCounts) int64 { return t.Transactions }), "", nil},
	{"then_wavefronts", historicCount(func(t *HistoricCounts) int64 { return t.Wavefronts }), "", nil},
	{"then_ideal_wavefronts", historicCount(func(t *HistoricCounts) int64 { return t.IdealWavefronts }), "", nil},
	{"verified", func(r *Record) any { return r.Verified }, "", nil},
	{"error_ratio", func(r *Record) any { return r.ErrorRatio }, "error/bound", errorRatio},
	{"error", func(r *Record) any { return r.Error }, "", nil},
	{"unsupported", func(r *Record) any { return r.Unsupported }, "", nil},
	{"interrupted", func(r *Record) any { return r.Interrupted }, "interrupted",
		yes(func(r *Record) bool { return r.Interrupted })},
	{"date", func(r *Record) any { return r.Environment.Date.Format(time.RFC3339) }, "", nil},
	{"os", func(r *Record) any { return r.Environment.OS }, "", nil},
	{"arch", func(r *Record) any { return r.Environment.Arch }, "", nil},
	{"cpu", func(r *Record) any { return r.Environment.CPU }, "", nil},
	{"cpu_mhz", func(r *Record) any { return r.Environment.CPUClock }, "", nil},
	{"features", func(r *Record) any { return strings.Join(r.Environment.Features, " ") }, "", nil},
	{"cores", func(r *Record) any { return r.Environment.Cores }, "", nil},
	{"gomaxprocs", func(r *Record) any { return r.Environment.GOMAXPROCS }, "", nil},
	{"cache_bytes", func(r *Record) any { return r.Environment.Cache }, "", nil},
	{"memory_bytes", func(r *Record) any { return r.Environment.Memory }, "", nil},
	{"gpu", func(r *Record) any { return r.Environment.GPU }, "", nil},
	{"driver", func(r *Record) any { return r.Environment.Driver }, "", nil},
	{"go", func(r *Record) any { return r.Environment.Go }, "", nil},
	{"version", func(r *Record) any { return r.Environment.Version }, "", nil},
	{"commit", func(r *Record) any { return r.Environment.Commit }, "", nil},
	{"modified", func(r *Record) any { return r.Environment.Modified }, "", nil},
	{"command", func(r *Record) any { return r.Environment.Command }, "", nil},
}

// dropped lists the titles of the columns that a narrow table omits, in the order of omission. The
// subject, the shape, its time and rate, and the ratios always stay.
var dropped = []string{
	"error/bound", "reps", "cache", "distinct", "clock", "stored", "issued", "compile", "FLOP/byte", "spread",
	"wavefronts", "device", "of peak",
	"allocate + upload + compute + download", "conflicts", "threads", "sectors (ideal)", "loaded", "transfers", "type",
	"trans", "GB/s",
}

// dropRank returns the Drop rank of a column for table.Column.
func dropRank(title string) int {
	i := slices.Index(dropped, title)
	if i < 0 {
		return 0
	}
	return len(dropped) - i
}

// Types returns the type of A and B, followed by the type of C if it differs: "int8→int32".
func (r *Record) Types() string { return typeNames(r.In, r.Out) }

func typeNames(in, out string) string {
	if in == out {
		return in
	}
	return in + "→" + out
}

// load returns a column value from the record's Load, or 0 if it has none.
func load(part func(*Load) float64) func(*Record) any {
	return func(r *Record) any {
		if r.Load == nil {
			return 0.0
		}
		return part(r.Load)
	}
}

// step returns a column value from the record's Steps, or 0 if it has none.
func step(part func(*Steps) float64) func(*Record) any {
	return func(r *Record) any {
		if r.Steps == nil {
			return 0.0
		}
		return part(r.Steps)
	}
}

// steps returns the durations of allocation, upload, computation and download.
func steps(r *Record) string {
	s := r.Steps
	if s == nil || r.Error != "" {
		return ""
	}
	return fmt.Sprintf("%s + %s + %s + %s", Duration(s.Allocate), Duration(s.Upload), Duration(s.Compute),
		Duration(s.Download))
}

// setup returns the duration of compiling the kernel, for products with transfers.
func setup(r *Record) string {
	if r.Steps == nil || r.Error != "" {
		return ""
	}
	return Duration(r.Setup)
}

// counted returns a column value from the record's Counts, or 0 if it has none.
func counted(part func(*Counts) any) func(*Record) any {
	return func(r *Record) any {
		if r.Counts == nil {
			return 0
		}
		return part(r.Counts)
	}
}

// historicCount returns a column value from the record's historic counts, or 0 if it has none.
func historicCount(part func(*HistoricCounts) int64) func(*Record) any {
	return func(r *Record) any {
		if r.Counts == nil || r.Counts.Historic == nil {
			return 0
		}
		return part(r.Counts.Historic)
	}
}

// countText returns a table cell from the record's Counts, or the empty string if it has none.
func countText(part func(*Counts) string) func(*Record) string {
	return func(r *Record) string {
		if r.Counts == nil {
			return ""
		}
		return part(r.Counts)
	}
}

// cacheText returns the state of the cache before each product.
func cacheText(r *Record) string {
	if r.Cold {
		return "cold"
	}
	return "warm"
}

// clockRate returns the median clock rate of the device.
func clockRate(r *Record) string {
	if r.Load == nil || r.Load.SMClock.Median == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f MHz", r.Load.SMClock.Median)
}

// aloneText returns a table cell from a time of the subject alone, or the empty string if it was
// not measured.
func aloneText(seconds func(*Record) float64) func(*Record) string {
	return func(r *Record) string {
		if seconds(r) == 0 {
			return ""
		}
		return Duration(seconds(r))
	}
}

// energyText returns the energy of a product.
func energyText(r *Record) string {
	if r.Joules == 0 {
		return ""
	}
	return withUnit(r.Joules, []unit{{"J", 1}, {"mJ", 1e-3}}, unit{"µJ", 1e-6})
}

// groupsText returns the rows of each group: "409 205 102".
func groupsText(r *Record) string { return strings.Trim(fmt.Sprint(r.Groups), "[]") }

// Transposes returns the transpose letters of BLAS: "NT" for A·Bᵀ.
func (r *Record) Transposes() string {
	letter := map[bool]string{false: "N", true: "T"}
	return letter[r.TransA] + letter[r.TransB]
}

// rate returns value(r) if the record has a rate, and otherwise the empty string.
func rate(value func(*Record) any) func(*Record) any {
	return func(r *Record) any {
		if _, ok := r.Rate(); !ok {
			return ""
		}
		return value(r)
	}
}

func rateText(r *Record) string {
	gflops, ok := r.Rate()
	if !ok {
		return ""
	}
	return Marked(fmt.Sprintf("%.4g", gflops), r.Uncertain())
}

func percentOfPeak(r *Record) string {
	percent, known := r.PercentOfPeak()
	if !known {
		return ""
	}
	return fmt.Sprintf("%.1f%%", percent)
}

// bandwidth returns the bandwidth in GB/s, or the empty string if the product is not skinny enough
// to be limited by memory.
func bandwidth(r *Record) string {
	const skinnyRatio = 64
	if !r.onlyReads() && min(r.M, r.N)*skinnyRatio > max(r.M, r.N) {
		return ""
	}
	return fmt.Sprintf("%.3g", r.Bandwidth()/1e9)
}

// notable returns f's text, or the empty string if it equals usual.
func notable(f func(*Record) string, usual string) func(*Record) string {
	return func(r *Record) string {
		if s := f(r); s != usual {
			return s
		}
		return ""
	}
}

func yes(f func(*Record) bool) func(*Record) string {
	return func(r *Record) string {
		if f(r) {
			return "yes"
		}
		return ""
	}
}

// timed returns f's text if the record has times, and otherwise the empty string.
func timed(f func(*Record) string) func(*Record) string {
	return func(r *Record) string {
		if !r.Timed() {
			return ""
		}
		return f(r)
	}
}

// errorRatio returns the largest error ratio of a verified result.
func errorRatio(r *Record) string {
	if !r.Verified {
		return ""
	}
	return fmt.Sprintf("%.2g", r.ErrorRatio)
}

// Duration formats a number of seconds with four digits and a unit.
func Duration(seconds float64) string {
	return withUnit(seconds, []unit{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}}, unit{"ns", 1e-9})
}

// unit is a unit of measurement.
type unit struct {
	name string
	size float64 // in the base unit
}

// withUnit formats v with four digits in the largest of units that does not exceed it, or else in
// the smallest.
func withUnit(v float64, units []unit, smallest unit) string {
	for _, u := range units {
		if v >= u.size {
			smallest = u
			break
		}
	}
	return fmt.Sprintf("%.4g %s", v/smallest.size, smallest.name)
}

// plain formats a value without rounding.
func plain(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}
