package main

// bf16 is bfloat16 for CPUs that multiply it: a panel holds 32-bit words with two values of K each,
// and the sums are float32.
var bf16 = func() element {
	e := f32
	e.name, e.group, e.fma, e.fmaBroadcast, e.maths = "BF16", 2, encoded("VDPBF16PS"), nil, nil
	e.words.step = "dot2"
	e.words.notes = []string{"",
		"dot2 adds the product of the second bfloat16 of a and b to the sum, then that of the first,",
		"and rounds to nearest each time. Subnormal inputs and results are flushed to zero."}
	return e
}()

// bf16TileDoc describes the order in which AMX sums bfloat16.
const bf16TileDoc = `The hardware computes dot2 for blocks of sixteen steps, each from a p that is a multiple of
sixteen. It sums the products of the first bfloat16 of each step and those of the second
separately, with fused multiply-adds, then adds both sums to sum. Subnormal inputs and results
are flushed to zero.`
