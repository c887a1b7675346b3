package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/phrase"
)

// fields lists the fields of queries, whose texts select records and are titles.
var fields = map[string]func(e entry) string{
	"records": func(e entry) string { return e.set },
	"cell":    func(e entry) string { return e.cell },

	"type":  func(e entry) string { return arithmetic(e.Record) },
	"C in":  func(e entry) string { return shortType(e.Out) },
	"M×N×K": func(e entry) string { return shapeTitle(e.Record) },
	"M":     func(e entry) string { return strconv.Itoa(e.M) },
	"rows of C": func(e entry) string {
		switch {
		case e.M <= 64:
			return "1 to 64 rows"
		case e.M < 1024:
			return "65 to 1,023"
		}
		return "1,024 and more"
	},
	"few rows": func(e entry) string { return either(e.M <= FewRows, "M ≤ 16", "M > 16") },
	"product":  func(e entry) string { return productTitle(e.Record) },
	"batch": func(e entry) string {
		return either(e.Products > 0, "strided", either(len(e.Groups) > 0, "groups", "none"))
	},
	"class": func(e entry) string { return classes[e.class()].Name },
	"epilogue": func(e entry) string {
		bias := either(e.Bias == "", "", "bias")
		parts := []string{bias, e.Activation, e.Epilogue}
		return cmp.Or(strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", "), "none")
	},
	"block scales": func(e entry) string { return cmp.Or(e.BlockScales, "none") },

	"kernel":    func(e entry) string { name, _, _ := strings.Cut(e.Subject, "@"); return subjectTitle(name) },
	"split":     func(e entry) string { return splitTitle(e.Record) },
	"memory":    func(e entry) string { _, limit, _ := strings.Cut(e.Subject, "@"); return cmp.Or(limit, "all") },
	"threads":   func(e entry) string { return strconv.Itoa(cmp.Or(e.Threads, e.Environment.GOMAXPROCS)) },
	"GPU":       func(e entry) string { return strings.Fields(e.Environment.GPU)[1] },
	"transfers": func(e entry) string { return either(e.Transfers, "yes", "no") },
	"compared":  func(e entry) string { return either(len(e.Versus) > 0, "yes", "no") },
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// arithmetic returns the precision or the type of the operands: "TF32", "e4m3".
func arithmetic(r *Record) string {
	if r.Precision == "tf32" {
		return "TF32"
	}
	return cmp.Or(r.Precision, shortType(r.In))
}

// shortType returns the short name of an 8-bit float, and the name of another type.
func shortType(name string) string {
	if t, err := dtype.Parse(name); err == nil && t.Bits() == 8 && t.Info().Roundoff > 0 {
		return t.Info().Short
	}
	return name
}

// shapeTitle returns "64³" or "64×32×16".
func shapeTitle(r *Record) string {
	if r.M == r.N && r.N == r.K {
		return strconv.Itoa(r.M) + "³"
	}
	return r.shape()
}

// productTitle returns the shape with the number of products or groups, and the transposes.
func productTitle(r *Record) string {
	text := shapeTitle(r)
	if r.TransA || r.TransB {
		text += " " + r.Transposes()
	}
	switch {
	case r.Products > 0:
		return fmt.Sprintf("%d of %s", r.Products, text)
	case len(r.Groups) > 0 && slices.Min(r.Groups) == slices.Max(r.Groups):
		return fmt.Sprintf("%s, %d equal groups", text, len(r.Groups))
	case len(r.Groups) > 0:
		return fmt.Sprintf("%s, %d unequal groups", text, len(r.Groups))
	}
	return text
}

// best stands for the fastest peer of each product.
const best = "best"

// subjectTitle returns the name of a peer in prose, or the name of a kernel.
func subjectTitle(name string) string {
	return cmp.Or(map[string]string{
		"blis": "BLIS", "cublaslt": "cuBLASLt", "cublaslt-tf32": "cuBLASLt", "cublasmp": "cuBLASMp",
		"cublaslt-first": "cuBLASLt's first",
		"cublasxt":       "cuBLASXt", "cublasxt-pinned": "cuBLASXt, pinned", "mkl": "MKL", "onednn": "oneDNN",
		"openblas": "OpenBLAS", "pytorch": "PyTorch", "pytorch-async": "async PyTorch", best: "the fastest library",
		"cuda:naive": "CUDA C, naive", "cuda:tiled16": "CUDA C, tiled 16", "cuda:tiled32": "CUDA C, tiled 32",
		"cuda:blocked128x256": "CUDA C, 128×256", "cuda:blocked128x128": "CUDA C, 128×128",
		"cuda:blocked64x128": "CUDA C, 64×128",
	}[name], name)
}

// splitTitle returns the number of GPUs of a product and the split of B.
func splitTitle(r *Record) string {
	if r.Peer {
		return subjectTitle(r.Subject)
	}
	_, on, several := strings.Cut(r.Subject, "@")
	if !several {
		return "one GPU"
	}
	on, split, _ := strings.Cut(on, "/")
	gpus := either(strings.Count(on, ",") == 1, "two", "four")
	switch {
	case r.Transfers:
		return gpus + " GPUs"
	case split == "columns":
		return "B in columns, " + gpus
	case split == "each":
		return "B on each, " + gpus
	}
	return "B in rows, " + gpus
}

// figures lists the figures of cells, except the ratios to a peer.
var figures = map[string]func(s *sample) string{
	"compared": func(s *sample) string { return strconv.Itoa(len(s.speeds)) },
	"µs":       func(s *sample) string { return digits(1e6 * s.seconds()) },
	"ms":       func(s *sample) string { return digits(1e3 * s.seconds()) },
	"GFLOP/s":  func(s *sample) string { return digits(s.median(gflops)) },
	"TFLOP/s":  func(s *sample) string { return digits(s.median(gflops) / 1e3) },
	"TFLOP/s in a burst": func(s *sample) string {
		return digits(s.median(func(r *Record) float64 { return r.Flops() / r.Burst / 1e12 }))
	},
	"TFLOP/s sustained": func(s *sample) string {
		return digits(s.median(func(r *Record) float64 { return r.Flops() / r.Sustained / 1e12 }))
	},
	"J":           func(s *sample) string { return digits(s.median(func(r *Record) float64 { return r.Joules })) },
	"GB/s":        func(s *sample) string { return digits(s.median((*Record).Bandwidth) / 1e9) },
	"of the peak": func(s *sample) string { return fmt.Sprintf("%.2g %%", 100*s.median(ofPeak)) },
	"slower in":   (*sample).slower,
	"below 0.90":  func(s *sample) string { return strconv.Itoa(s.below(0.9)) },
	"below 0.80":  func(s *sample) string { return strconv.Itoa(s.below(0.8)) },
	"slowest":     (*sample).slowest,
}

func gflops(r *Record) float64 { return r.GFLOPS }
func ofPeak(r *Record) float64 { return r.GFLOPS / r.Peak }

// sample is the records of a cell.
type sample struct {
	records  []*Record
	compared []*Record // those with a ratio to the peer
	speeds   []float64 // of compared, over the peer
}

// sampleOf returns the records of entries with their speeds over a peer in the same arithmetic.
func sampleOf(entries []entry, peer string) (s sample) {
	for _, e := range entries {
		s.records = append(s.records, e.Record)
		name, least := peer, math.Inf(1)
		if _, ok := e.RatioTo(peer + "-" + e.Precision); ok {
			name = peer + "-" + e.Precision
		}
		for _, v := range e.Versus {
			if peer == best || v.Peer == name {
				least = min(least, v.Speed)
			}
		}
		if !e.Peer && !math.IsInf(least, 1) {
			s.compared, s.speeds = append(s.compared, e.Record), append(s.speeds, least)
		}
	}
	return s
}

// missing stands for the speed of records without the peer.
const missing = "–"

// mean returns the geometric mean of the speeds.
func (s *sample) mean() string {
	if len(s.speeds) == 0 {
		return missing
	}
	sum := 0.0
	for _, speed := range s.speeds {
		sum += math.Log(speed)
	}
	speed := math.Exp(sum / float64(len(s.speeds)))
	if speed >= 9.995 {
		return digits(speed)
	}
	return fmt.Sprintf("%.2f", speed)
}

// slower returns the number of speeds below 1, and of all speeds.
func (s *sample) slower() string {
	if len(s.speeds) == 0 {
		return missing
	}
	return fmt.Sprintf("%d of %d", s.below(1), len(s.speeds))
}

// below returns the number of speeds below a bound.
func (s *sample) below(bound float64) (n int) {
	for _, speed := range s.speeds {
		if speed < bound {
			n++
		}
	}
	return n
}

// slowest returns the least speed and its product.
func (s *sample) slowest() string {
	if len(s.speeds) == 0 {
		return missing
	}
	least := slices.Min(s.speeds)
	return fmt.Sprintf("%.2f, %s", least, productTitle(s.compared[slices.Index(s.speeds, least)]))
}

func (s *sample) median(value func(*Record) float64) float64 {
	values := make([]float64, len(s.records))
	for i, r := range s.records {
		values[i] = value(r)
	}
	return median(values)
}

// seconds returns the median time of records of one product.
func (s *sample) seconds() float64 {
	return s.median(func(r *Record) float64 { return r.Seconds.Median })
}

// digits returns three significant digits, or all digits of a larger whole number.
func digits(v float64) string {
	if v >= 999.5 {
		return phrase.Commas(int(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
