package bench

import (
	"fmt"
	"strconv"
	"time"
)

// column is a row of the table of columns. CSV has them all; the table to look
// at has those with a text, which is short and may be empty.
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
	{"in", func(r *Record) any { return r.In }, "type", types},
	{"out", func(r *Record) any { return r.Out }, "", nil},
	{"m", func(r *Record) any { return r.M }, "M×N×K", func(r *Record) string { return fmt.Sprintf("%d×%d×%d", r.M, r.N, r.K) }},
	{"n", func(r *Record) any { return r.N }, "", nil},
	{"k", func(r *Record) any { return r.K }, "", nil},
	{"trans", func(r *Record) any { return transposes(r) }, "trans", notable(transposes, "NN")},
	{"lda", func(r *Record) any { return r.LDA }, "", nil},
	{"ldb", func(r *Record) any { return r.LDB }, "", nil},
	{"ldc", func(r *Record) any { return r.LDC }, "", nil},
	{"alpha", func(r *Record) any { return r.Alpha }, "", nil},
	{"beta", func(r *Record) any { return r.Beta }, "", nil},
	{"bias", func(r *Record) any { return r.Bias }, "bias", func(r *Record) string { return r.Bias }},
	{"activation", func(r *Record) any { return r.Activation }, "activation", func(r *Record) string { return r.Activation }},
	{"threads", func(r *Record) any { return r.Threads }, "threads", notable(func(r *Record) string { return strconv.Itoa(r.Threads) }, "0")},
	{"transfers", func(r *Record) any { return r.Transfers }, "transfers", yes(func(r *Record) bool { return r.Transfers })},
	{"cold", func(r *Record) any { return r.Cold }, "cold", yes(func(r *Record) bool { return r.Cold })},
	{"buffers", func(r *Record) any { return r.Buffers }, "", nil},
	{"seed", func(r *Record) any { return r.Seed }, "", nil},
	{"setup_seconds", func(r *Record) any { return r.Setup }, "", nil},
	{"reps", func(r *Record) any { return r.Reps }, "reps", timed(func(r *Record) string { return strconv.Itoa(r.Reps) })},
	{"batch", func(r *Record) any { return r.Batch }, "", nil},
	{"seconds", func(r *Record) any { return r.Seconds.Median }, "median", timed(func(r *Record) string { return duration(r.Seconds.Median) })},
	{"seconds_min", func(r *Record) any { return r.Seconds.Min }, "", nil},
	{"seconds_p10", func(r *Record) any { return r.Seconds.P10 }, "", nil},
	{"seconds_p90", func(r *Record) any { return r.Seconds.P90 }, "", nil},
	{"seconds_max", func(r *Record) any { return r.Seconds.Max }, "", nil},
	{"spread", func(r *Record) any { return r.Seconds.Spread }, "spread", timed(func(r *Record) string { return fmt.Sprintf("%.1f%%", 100*r.Seconds.Spread) })},
	{"gflops", func(r *Record) any { return r.GFLOPS }, "GFLOP/s", timed(func(r *Record) string { return fmt.Sprintf("%.4g", r.GFLOPS) })},
	{"peak_gflops", func(r *Record) any { return r.Peak }, "of peak", percentOfPeak},
	{"allocate_seconds", step(func(s *Steps) float64 { return s.Allocate }), "allocate + upload + compute + download", steps},
	{"upload_seconds", step(func(s *Steps) float64 { return s.Upload }), "", nil},
	{"compute_seconds", step(func(s *Steps) float64 { return s.Compute }), "", nil},
	{"download_seconds", step(func(s *Steps) float64 { return s.Download }), "", nil},
	{"sm_mhz", load(func(l *Load) float64 { return l.SMClock.Median }), "clock", clockRate},
	{"watts", load(func(l *Load) float64 { return l.Power.Median }), "", nil},
	{"celsius", load(func(l *Load) float64 { return l.Temperature.Median }), "", nil},
	{"verified", func(r *Record) any { return r.Verified }, "", nil},
	{"error_ratio", func(r *Record) any { return r.ErrorRatio }, "error/bound", timed(func(r *Record) string { return fmt.Sprintf("%.2g", r.ErrorRatio) })},
	{"error", func(r *Record) any { return r.Error }, "", nil},
	{"date", func(r *Record) any { return r.Environment.Date.Format(time.RFC3339) }, "", nil},
	{"os", func(r *Record) any { return r.Environment.OS }, "", nil},
	{"arch", func(r *Record) any { return r.Environment.Arch }, "", nil},
	{"cpu", func(r *Record) any { return r.Environment.CPU }, "", nil},
	{"gpu", func(r *Record) any { return r.Environment.GPU }, "", nil},
	{"driver", func(r *Record) any { return r.Environment.Driver }, "", nil},
	{"go", func(r *Record) any { return r.Environment.Go }, "", nil},
	{"version", func(r *Record) any { return r.Environment.Version }, "", nil},
	{"commit", func(r *Record) any { return r.Environment.Commit }, "", nil},
}

func types(r *Record) string { return typeNames(r.In, r.Out) }

func typeNames(in, out string) string {
	if in == out {
		return in
	}
	return in + "→" + out
}

// load is a part of the record's Load, 0 where it has none.
func load(part func(*Load) float64) func(*Record) any {
	return func(r *Record) any {
		if r.Load == nil {
			return 0.0
		}
		return part(r.Load)
	}
}

// step is a part of the record's Steps, 0 where it has none.
func step(part func(*Steps) float64) func(*Record) any {
	return func(r *Record) any {
		if r.Steps == nil {
			return 0.0
		}
		return part(r.Steps)
	}
}

// steps is what the steps take: allocate, upload, compute, download.
func steps(r *Record) string {
	s := r.Steps
	if s == nil || r.Error != "" {
		return ""
	}
	return fmt.Sprintf("%s + %s + %s + %s", duration(s.Allocate), duration(s.Upload), duration(s.Compute), duration(s.Download))
}

// clockRate is what the device's clock was, mostly.
func clockRate(r *Record) string {
	if r.Load == nil || r.Load.SMClock.Median == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f MHz", r.Load.SMClock.Median)
}

// transposes is BLAS's two letters, "NT" for A·Bᵀ.
func transposes(r *Record) string {
	letter := map[bool]string{false: "N", true: "T"}
	return letter[r.TransA] + letter[r.TransB]
}

func percentOfPeak(r *Record) string {
	percent, known := r.PercentOfPeak()
	if !known || r.Error != "" {
		return ""
	}
	return fmt.Sprintf("%.1f%%", percent)
}

// notable is f's text unless it is the usual one.
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

// timed is f's text where the record has times.
func timed(f func(*Record) string) func(*Record) string {
	return func(r *Record) string {
		if r.Error != "" {
			return ""
		}
		return f(r)
	}
}

// duration has four digits and a unit.
func duration(seconds float64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if seconds >= u.size {
			return fmt.Sprintf("%.4g %s", seconds/u.size, u.unit)
		}
	}
	return fmt.Sprintf("%.4g ns", seconds*1e9)
}

// plain is a value without rounding.
func plain(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}
