package bench

import "slices"

// tensorSuite is for 16-bit types, which language models use.
var tensorSuite = slices.Concat(float32Suite, decoder())

var float32Suite = []Sample{
	{Shape: Cube(64), Why: "square"},
	{Shape: Cube(128), Why: "square"},
	{Shape: Cube(256), Why: "square"},
	{Shape: Cube(512), Why: "square"},
	{Shape: Cube(1024), Why: "square"},
	{Shape: Cube(2048), Why: "square"},
	{Shape: Cube(4096), Why: "square"},
	{Shape: Cube(8192), Why: "square"},
	{Shape: Cube(16384), Why: "square"},

	{Shape: Cube(127), Why: "minus one"},
	{Shape: Cube(257), Why: "plus one"},
	{Shape: Cube(511), Why: "minus one"},
	{Shape: Cube(1023), Why: "minus one"},
	{Shape: Cube(1025), Why: "plus one"},
	{Shape: Cube(2047), Why: "minus one"},
	{Shape: Cube(2049), Why: "plus one"},
	{Shape: Cube(4095), Why: "minus one"},
	{Shape: Cube(4097), Why: "plus one"},
	{Shape: Shape{4095, 4097, 4099}, Why: "around"},
	{Shape: Cube(8191), Why: "minus one"},

	{Shape: Cube(251), Why: "prime"},
	{Shape: Cube(509), Why: "prime"},
	{Shape: Cube(1009), Why: "prime"},
	{Shape: Cube(2003), Why: "prime"},
	{Shape: Cube(4001), Why: "prime"},
	{Shape: Shape{1009, 2003, 4001}, Why: "primes"},
	{Shape: Cube(1000), Why: "round"},
	{Shape: Cube(3000), Why: "round"},

	{Shape: Shape{1, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{16, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{64, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{4096, 1, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 16, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 64, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 4096, 16}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 64}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 128}, Why: "skinny K"},

	{Shape: Shape{8, 14336, 4096}, Why: "decode up"},
	{Shape: Shape{32, 4096, 14336}, Why: "decode down"},
	{Shape: Shape{128, 4096, 14336}, Why: "prefill down"},
	{Shape: Shape{512, 6144, 4096}, Why: "prefill qkv"},
	{Shape: Shape{2048, 4096, 4096}, Why: "prefill out"},
	{Shape: Shape{2048, 14336, 4096}, Why: "prefill up"},
	{Shape: Shape{16, 32000, 4096}, Why: "logits"},

	{Shape: Shape{256, 256, 65536}, Why: "long K"},
	{Shape: Shape{64, 64, 65536}, Why: "long K"},
	{Shape: Shape{512, 512, 16384}, Why: "long K"},
	{Shape: Shape{1024, 1024, 65536}, Why: "long K"},
}

var cpuSuite = []Sample{
	{Shape: Cube(8), Why: "square"},
	{Shape: Cube(16), Why: "square"},
	{Shape: Cube(32), Why: "square"},
	{Shape: Cube(64), Why: "square"},
	{Shape: Cube(128), Why: "square"},
	{Shape: Cube(256), Why: "square"},
	{Shape: Cube(512), Why: "square"},
	{Shape: Cube(1024), Why: "square"},
	{Shape: Cube(2048), Why: "square"},
	{Shape: Cube(4096), Why: "square"},

	{Shape: Cube(15), Why: "minus one"},
	{Shape: Cube(17), Why: "plus one"},
	{Shape: Cube(31), Why: "minus one"},
	{Shape: Cube(33), Why: "plus one"},
	{Shape: Cube(63), Why: "minus one"},
	{Shape: Cube(65), Why: "plus one"},
	{Shape: Cube(127), Why: "minus one"},
	{Shape: Cube(129), Why: "plus one"},
	{Shape: Cube(255), Why: "minus one"},
	{Shape: Cube(257), Why: "plus one"},
	{Shape: Cube(511), Why: "minus one"},
	{Shape: Cube(513), Why: "plus one"},
	{Shape: Cube(1023), Why: "minus one"},
	{Shape: Cube(1025), Why: "plus one"},
	{Shape: Cube(2047), Why: "minus one"},
	{Shape: Cube(2049), Why: "plus one"},

	{Shape: Cube(7), Why: "prime"},
	{Shape: Cube(13), Why: "prime"},
	{Shape: Cube(61), Why: "prime"},
	{Shape: Cube(251), Why: "prime"},
	{Shape: Cube(509), Why: "prime"},
	{Shape: Cube(1009), Why: "prime"},
	{Shape: Cube(2003), Why: "prime"},
	{Shape: Shape{509, 1009, 251}, Why: "primes"},

	{Shape: Cube(20), Why: "round"},
	{Shape: Cube(48), Why: "round"},
	{Shape: Cube(100), Why: "round"},
	{Shape: Cube(200), Why: "round"},
	{Shape: Cube(1000), Why: "round"},

	{Shape: Shape{1, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{2, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{4, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{8, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{16, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{64, 4096, 4096}, Why: "skinny M"},
	{Shape: Shape{4096, 1, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 2, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 4, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 8, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 16, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 64, 4096}, Why: "skinny N"},
	{Shape: Shape{4096, 4096, 1}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 2}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 4}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 8}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 16}, Why: "skinny K"},
	{Shape: Shape{4096, 4096, 64}, Why: "skinny K"},

	{Shape: Shape{64, 64, 4096}, Why: "long K"},
	{Shape: Shape{16, 16, 16384}, Why: "long K"},
	{Shape: Shape{1, 768, 3072}, Why: "small network"},
	{Shape: Shape{7, 513, 1025}, Why: "odd"},
	{Shape: Shape{128, 768, 768}, Why: "encoder out"},
	{Shape: Shape{128, 3072, 768}, Why: "encoder up"},
	{Shape: Shape{128, 768, 3072}, Why: "encoder down"},
	{Shape: Shape{384, 384, 64}, Why: "attention scores"},
	{Shape: Shape{384, 64, 384}, Why: "attention values"},
	{Shape: Shape{1, 14336, 4096}, Why: "decode up"},
	{Shape: Shape{1, 4096, 14336}, Why: "decode down"},
	{Shape: Shape{4, 6144, 4096}, Why: "decode qkv"},
	{Shape: Shape{16, 32000, 4096}, Why: "logits"},
	{Shape: Shape{512, 4096, 4096}, Why: "prefill out"},
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
			all = append(all, Sample{Shape: Shape{m, w.n, w.k}, Why: w.why})
		}
	}
	return all
}
