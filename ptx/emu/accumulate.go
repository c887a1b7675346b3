package emu

// Accumulate is how a matrix instruction sums the products of a row and a column.
type Accumulate uint8
