package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/bench"
)

// unit is what a row's rates are in: the operations of integers are no floating-point ones.
func (r row) unit() string {
	if t, err := dtype.Parse(r.Out); err == nil && t.Info().Integer {
		return "OP/s"
	}
	return "FLOP/s"
}

// rate is the row's rate in words.
func (r row) rate() string { return rate(r.GFLOPS, r.unit()) }

// rate is a rate given in 10⁹ of a unit, in words.
func rate(giga float64, unit string) string {
	if giga >= 1000 {
		return digits(giga/1000) + " T" + unit
	}
	return digits(giga) + " G" + unit
}

// rateTick is the same as short as it can be.
func rateTick(unit string) func(giga float64) string {
	return func(giga float64) string {
		if giga >= 1000 {
			return tick(giga/1000) + " T" + unit
		}
		return tick(giga) + " G" + unit
	}
}

// digits is v with three digits and no exponent.
func digits(v float64) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', max(places, 0), 64)
}

// times is a ratio in words: "0.98×".
func times(ratio float64) string { return ratioText(ratio) + "×" }

// ratioText is a ratio with three digits, or with two behind the point where the first
// is there.
func ratioText(ratio float64) string {
	if ratio >= 0.095 && ratio < 9.995 {
		return fmt.Sprintf("%.2f", ratio)
	}
	return digits(ratio)
}

// tick is a value on an axis: as short as it can be, whole numbers whole.
func tick(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// shape is a product's shape: "1024³", or "1×768×3072"; of a batch "64 of 512³", and of groups
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

// count is a number of things: "1 record", "2 records".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// list is words with commas between them, and an "and".
func list(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// word is s as a part of a link or of a file's name: its letters and digits, with a
// dash for whatever is between them.
func word(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }), "-")
}
