package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tilework/ptx/emu"
)

// dims describes the dimensions that a flag or an argument accepts.
type dims struct {
	counts  []int // the allowed numbers of dimensions
	example string
}

// The dimensions that flags and arguments take.
var (
	blockDims  = dims{[]int{1, 2, 3}, "16, 16x16 or 4x4x2"}
	arrayDims  = dims{[]int{1, 2, 3, 4, 5}, "1000, 64x32 or 4x64x32"}
	matrixDims = dims{[]int{2}, "64x32"}
)

// parse parses dimensions of 1 or more that are joined by x or commas: "16x16" or "16,16".
func (d dims) parse(text string) ([]int, error) {
	separator := "x"
	if strings.Contains(text, ",") {
		separator = ","
	}
	parts := strings.Split(text, separator)
	if !slices.Contains(d.counts, len(parts)) {
		return nil, fmt.Errorf("%s: %d %s, want %s", text, len(parts), plural("dimension", len(parts)), d.example)
	}
	sides := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q is not a size from 1 to %d, want %s", text, p, math.MaxInt32, d.example)
		}
		sides[i] = int(n)
	}
	return sides, nil
}

// parseDim3 parses the dimensions of a grid, a cluster or a block.
func parseDim3(text string) (emu.Dim3, error) {
	sides, err := blockDims.parse(text)
	if err != nil {
		return emu.Dim3{}, err
	}
	sides = append(sides, 1, 1)
	return emu.Dim3{X: sides[0], Y: sides[1], Z: sides[2]}, nil
}
