package main

// bf16 is bfloat16 where the processor multiplies it: a panel holds words of 32 bits with
// two values of K each, and the sums are float32.
var bf16 = func() element {
	e := f32
	e.name, e.group, e.fma, e.maths = "BF16", 2, unnamed("VDPBF16PS"), nil
	e.words.step = "dot2"
	e.words.more = []string{"",
		"dot2 adds to the sum the product of the second bfloat16 of a and b and then that of the",
		"first, rounding to nearest each time. What is below the normal range is taken for zero,",
		"and becomes zero."}
	return e
}()

// separateSums says how AMX sums bfloat16.
const separateSums = `dot2 of sixteen steps, from a p that is a multiple of sixteen on, is one: the products of
the first bfloat16 of each step are summed up, those of the second are, with fused
multiply-adds, and then the sum of both is added to sum. What is below the normal range
is taken for zero, and becomes zero.`
