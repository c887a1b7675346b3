package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/bench"
)

// unit returns FLOP/s, or OP/s for integers.
func (r row) unit() string {
	if t, err := dtype.Parse(r.In); err == nil && t.Info().Integer {
		return "OP/s"
	}
	return "FLOP/s"
}

// rate returns the rate with its unit, marked if it is uncertain.
func (r row) rate() string { return bench.Marked(rate(r.GFLOPS, r.unit()), r.Uncertain()) }

// time returns the time, marked if it is uncertain.
func (r row) time() string { return bench.Marked(bench.Duration(r.Seconds.Median), r.Uncertain()) }

// rate formats a rate that is given in 10⁹ of a unit.
func rate(giga float64, unit string) string {
	if giga >= 1000 {
		return digits(giga/1000) + " T" + unit
	}
	return digits(giga) + " G" + unit
}

// rateTick formats a rate for an axis.
func rateTick(unit string) func(giga float64) string {
	return func(giga float64) string {
		if giga >= 1000 {
			return tick(giga/1000) + " T" + unit
		}
		return tick(giga) + " G" + unit
	}
}

// digits formats v with three significant digits, and with an exponent only if v is tiny.
func digits(v float64) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	if math.Abs(v) < 1e-4 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', max(places, 0), 64)
}

// times formats a ratio: "0.98×".
func times(ratio float64) string { return ratioText(ratio) + "×" }

// gain returns how many times as fast as slow fast is, marked if one of the times is uncertain.
func gain(slow, fast row) string {
	return bench.Marked(times(slow.Seconds.Median/fast.Seconds.Median), slow.Uncertain() || fast.Uncertain())
}

// timesTick formats a ratio for an axis.
func timesTick(ratio float64) string { return tick(ratio) + "×" }

// ratioText formats a ratio with three significant digits, or two decimals near 1.
func ratioText(ratio float64) string {
	if ratio >= 0.095 && ratio < 9.995 {
		return fmt.Sprintf("%.2f", ratio)
	}
	return digits(ratio)
}

// tick formats a value for an axis.
func tick(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// shape formats a shape: "1024³", "1×768×3072", "64 of 512³" for a batch, and
// "4096×14336×4096 in 8 groups".
func shape(r *bench.Record) string {
	s := fmt.Sprintf("%d×%d×%d", r.M, r.N, r.K)
	if r.M == r.N && r.N == r.K {
		s = strconv.Itoa(r.M) + "³"
	}
	switch {
	case r.Products > 0:
		return fmt.Sprintf("%d of %s", r.Products, s)
	case len(r.Groups) > 0:
		return fmt.Sprintf("%s in %d groups", s, len(r.Groups))
	}
	return s
}

// word returns the letters and digits of s separated by dashes, for links and file names.
func word(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s),
		func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }), "-")
}

// percent formats a fraction.
func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
