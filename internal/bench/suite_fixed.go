package bench

import "slices"

// tensorSuite is for 16-bit types, which language models use.
var tensorSuite = slices.Concat(float32Suite, decoder())

var float32Suite = slices.Concat(
	cubes("square", 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
	beside(127, 257, 511, 1023, 1025, 2047, 2049, 4095, 4097),
	shapes("around", Shape{4095, 4097, 4099}),
	beside(8191),
	cubes("prime", 251, 509, 1009, 2003, 4001),
	shapes("primes", Shape{1009, 2003, 4001}),
	cubes("round", 1000, 3000),
	shapes("skinny M", Shape{1, 4096, 4096}, Shape{16, 4096, 4096}, Shape{64, 4096, 4096}),
	shapes("skinny N", Shape{4096, 1, 4096}, Shape{4096, 16, 4096}, Shape{4096, 64, 4096}),
	shapes("skinny K", Shape{4096, 4096, 16}, Shape{4096, 4096, 64}, Shape{4096, 4096, 128}),
	shapes("decode up", Shape{8, 14336, 4096}),
	shapes("decode down", Shape{32, 4096, 14336}),
	shapes("prefill down", Shape{128, 4096, 14336}),
	shapes("prefill qkv", Shape{512, 6144, 4096}),
	shapes("prefill out", Shape{2048, 4096, 4096}),
	shapes("prefill up", Shape{2048, 14336, 4096}),
	shapes("logits", Shape{16, 32000, 4096}),
	shapes("long K", Shape{256, 256, 65536}, Shape{64, 64, 65536}, Shape{512, 512, 16384},
		Shape{1024, 1024, 65536}),
)

var cpuSuite = slices.Concat(
	cubes("square", 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
	beside(15, 17, 31, 33, 63, 65, 127, 129, 255, 257, 511, 513, 1023, 1025, 2047, 2049),
	cubes("prime", 7, 13, 61, 251, 509, 1009, 2003),
	shapes("primes", Shape{509, 1009, 251}),
	cubes("round", 20, 48, 100, 200, 1000),
	shapes("skinny M", Shape{1, 4096, 4096}, Shape{2, 4096, 4096}, Shape{4, 4096, 4096}, Shape{8, 4096, 4096},
		Shape{16, 4096, 4096}, Shape{64, 4096, 4096}),
	shapes("skinny N", Shape{4096, 1, 4096}, Shape{4096, 2, 4096}, Shape{4096, 4, 4096}, Shape{4096, 8, 4096},
		Shape{4096, 16, 4096}, Shape{4096, 64, 4096}),
	shapes("skinny K", Shape{4096, 4096, 1}, Shape{4096, 4096, 2}, Shape{4096, 4096, 4}, Shape{4096, 4096, 8},
		Shape{4096, 4096, 16}, Shape{4096, 4096, 64}),
	shapes("long K", Shape{64, 64, 4096}, Shape{16, 16, 16384}),
	shapes("small network", Shape{1, 768, 3072}),
	shapes("odd", Shape{7, 513, 1025}),
	shapes("encoder out", Shape{128, 768, 768}),
	shapes("encoder up", Shape{128, 3072, 768}),
	shapes("encoder down", Shape{128, 768, 3072}),
	shapes("attention scores", Shape{384, 384, 64}),
	shapes("attention values", Shape{384, 64, 384}),
	shapes("decode up", Shape{1, 14336, 4096}),
	shapes("decode down", Shape{1, 4096, 14336}),
	shapes("decode qkv", Shape{4, 6144, 4096}),
	shapes("logits", Shape{16, 32000, 4096}),
	shapes("prefill out", Shape{512, 4096, 4096}),
)

// cubes returns samples of the given sizes.
func cubes(why string, sizes ...int) (all []Sample) {
	for _, n := range sizes {
		all = append(all, Sample{Shape: Cube(n), Why: why})
	}
	return all
}

// beside returns samples of sizes beside powers of two.
func beside(sizes ...int) (all []Sample) {
	for _, n := range sizes {
		why := "plus one"
		if n&(n+1) == 0 {
			why = "minus one"
		}
		all = append(all, cubes(why, n)...)
	}
	return all
}

func shapes(why string, shapes ...Shape) (all []Sample) {
	for _, s := range shapes {
		all = append(all, Sample{Shape: s, Why: why})
	}
	return all
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
