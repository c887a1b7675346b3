package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Sample is a shape of a suite, with the reason for its choice in a few words.
type Sample struct {
	Shape
	Why string
}

// suites are the lists of shapes that published speeds refer to. A suite is chosen before any
// tuning for it and does not change afterwards. Otherwise the results could decide which shapes it
// contains.
var suites = []struct {
	name   string
	shapes []Sample
}{
	{"fp32", float32Suite},
	{"cpu", cpuSuite},
	{"tensor", slices.Concat(float32Suite, decoder())},
}

var float32Suite = []Sample{
	{Cube(64), "square"},
	{Cube(128), "square"},
	{Cube(256), "square"},
	{Cube(512), "square"},
	{Cube(1024), "square"},
	{Cube(2048), "square"},
	{Cube(4096), "square"},
	{Cube(8192), "square"},
	{Cube(16384), "square"},

	{Cube(127), "minus one"},
	{Cube(257), "plus one"},
	{Cube(511), "minus one"},
	{Cube(1023), "minus one"},
	{Cube(1025), "plus one"},
	{Cube(2047), "minus one"},
	{Cube(2049), "plus one"},
	{Cube(4095), "minus one"},
	{Cube(4097), "plus one"},
	{Shape{4095, 4097, 4099}, "around"},
	{Cube(8191), "minus one"},

	{Cube(251), "prime"},
	{Cube(509), "prime"},
	{Cube(1009), "prime"},
	{Cube(2003), "prime"},
	{Cube(4001), "prime"},
	{Shape{1009, 2003, 4001}, "primes"},
	{Cube(1000), "round"},
	{Cube(3000), "round"},

	{Shape{1, 4096, 4096}, "skinny M"},
	{Shape{16, 4096, 4096}, "skinny M"},
	{Shape{64, 4096, 4096}, "skinny M"},
	{Shape{4096, 1, 4096}, "skinny N"},
	{Shape{4096, 16, 4096}, "skinny N"},
	{Shape{4096, 64, 4096}, "skinny N"},
	{Shape{4096, 4096, 16}, "skinny K"},
	{Shape{4096, 4096, 64}, "skinny K"},
	{Shape{4096, 4096, 128}, "skinny K"},

	{Shape{8, 14336, 4096}, "decode up"},
	{Shape{32, 4096, 14336}, "decode down"},
	{Shape{128, 4096, 14336}, "prefill down"},
	{Shape{512, 6144, 4096}, "prefill qkv"},
	{Shape{2048, 4096, 4096}, "prefill out"},
	{Shape{2048, 14336, 4096}, "prefill up"},
	{Shape{16, 32000, 4096}, "logits"},

	{Shape{256, 256, 65536}, "long K"},
	{Shape{64, 64, 65536}, "long K"},
	{Shape{512, 512, 16384}, "long K"},
	{Shape{1024, 1024, 65536}, "long K"},
}

var cpuSuite = []Sample{
	{Cube(8), "square"},
	{Cube(16), "square"},
	{Cube(32), "square"},
	{Cube(64), "square"},
	{Cube(128), "square"},
	{Cube(256), "square"},
	{Cube(512), "square"},
	{Cube(1024), "square"},
	{Cube(2048), "square"},
	{Cube(4096), "square"},

	{Cube(15), "minus one"},
	{Cube(17), "plus one"},
	{Cube(31), "minus one"},
	{Cube(33), "plus one"},
	{Cube(63), "minus one"},
	{Cube(65), "plus one"},
	{Cube(127), "minus one"},
	{Cube(129), "plus one"},
	{Cube(255), "minus one"},
	{Cube(257), "plus one"},
	{Cube(511), "minus one"},
	{Cube(513), "plus one"},
	{Cube(1023), "minus one"},
	{Cube(1025), "plus one"},
	{Cube(2047), "minus one"},
	{Cube(2049), "plus one"},

	{Cube(7), "prime"},
	{Cube(13), "prime"},
	{Cube(61), "prime"},
	{Cube(251), "prime"},
	{Cube(509), "prime"},
	{Cube(1009), "prime"},
	{Cube(2003), "prime"},
	{Shape{509, 1009, 251}, "primes"},

	{Cube(20), "round"},
	{Cube(48), "round"},
	{Cube(100), "round"},
	{Cube(200), "round"},
	{Cube(1000), "round"},

	{Shape{1, 4096, 4096}, "skinny M"},
	{Shape{2, 4096, 4096}, "skinny M"},
	{Shape{4, 4096, 4096}, "skinny M"},
	{Shape{8, 4096, 4096}, "skinny M"},
	{Shape{16, 4096, 4096}, "skinny M"},
	{Shape{64, 4096, 4096}, "skinny M"},
	{Shape{4096, 1, 4096}, "skinny N"},
	{Shape{4096, 2, 4096}, "skinny N"},
	{Shape{4096, 4, 4096}, "skinny N"},
	{Shape{4096, 8, 4096}, "skinny N"},
	{Shape{4096, 16, 4096}, "skinny N"},
	{Shape{4096, 64, 4096}, "skinny N"},
	{Shape{4096, 4096, 1}, "skinny K"},
	{Shape{4096, 4096, 2}, "skinny K"},
	{Shape{4096, 4096, 4}, "skinny K"},
	{Shape{4096, 4096, 8}, "skinny K"},
	{Shape{4096, 4096, 16}, "skinny K"},
	{Shape{4096, 4096, 64}, "skinny K"},

	{Shape{64, 64, 4096}, "long K"},
	{Shape{16, 16, 16384}, "long K"},
	{Shape{1, 768, 3072}, "small network"},
	{Shape{7, 513, 1025}, "odd"},
	{Shape{128, 768, 768}, "encoder out"},
	{Shape{128, 3072, 768}, "encoder up"},
	{Shape{128, 768, 3072}, "encoder down"},
	{Shape{384, 384, 64}, "attention scores"},
	{Shape{384, 64, 384}, "attention values"},
	{Shape{1, 14336, 4096}, "decode up"},
	{Shape{1, 4096, 14336}, "decode down"},
	{Shape{4, 6144, 4096}, "decode qkv"},
	{Shape{16, 32000, 4096}, "logits"},
	{Shape{512, 4096, 4096}, "prefill out"},
}

// decoder returns the products of transformer decoder layers in common sizes, with hidden size
// 4096, for 1 to 256 tokens.
func decoder() []Sample {
	var all []Sample
	for _, w := range []struct {
		n, k int
		why  string
	}{{4096, 4096, "out"}, {14336, 4096, "up"}, {4096, 14336, "down"}, {28672, 4096, "gate and up"},
		{4096, 28672, "wide down"}} {
		for m := 1; m <= 256; m *= 2 {
			all = append(all, Sample{Shape{m, w.n, w.k}, w.why})
		}
	}
	return all
}

// Suites lists the names of the suites.
func Suites() []string {
	names := make([]string, len(suites))
	for i, s := range suites {
		names[i] = s.name
	}
	return names
}

// Suite returns the shapes of the suite with the given name.
func Suite(name string) ([]Sample, error) {
	for _, s := range suites {
		if s.name == name {
			return s.shapes, nil
		}
	}
	return nil, fmt.Errorf("unknown suite %q: want one of %s", name, strings.Join(Suites(), ", "))
}
