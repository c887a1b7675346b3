package main

import (
	"fmt"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// noScales is the value of --block-scales for a product without them.
const noScales = "none"

// scalesExample is a value of --block-scales: a scale for each row of A, and for each block of 128
// columns of B, and 128 elements along K.
const scalesExample = "1x128+128x128"

// parseScales parses --block-scales. For each item it returns the number of rows of op(A), and of
// columns of op(B), that share a scale, or zeros for none.
func (f *benchFlags) parseScales() (list [][2]int, err error) {
	if f.scales == "" {
		return [][2]int{{}}, nil
	}
	if f.transfers || f.batch > 1 || f.groups != "" {
		return nil, fmt.Errorf("--block-scales %s: want no --transfers, --batch or --groups", f.scales)
	}
	for text := range strings.SplitSeq(f.scales, ",") {
		sides, ok := [2]int{}, true
		if text = strings.TrimSpace(text); text != noScales {
			a, b, _ := strings.Cut(text, "+")
			for i, side := range []string{a, b} {
				switch side {
				case "1x128":
					sides[i] = 1
				case "128x128":
					sides[i] = gemm.ScaleBlock
				default:
					ok = false
				}
			}
		}
		if !ok {
			return nil, fmt.Errorf("--block-scales: %q: want %s, or the blocks of A and of B, each 1x128 or 128x128, as in %s",
				text, noScales, scalesExample)
		}
		list = append(list, sides)
	}
	return list, nil
}

// scaled returns p with block scales, not complete, each shared by sides[0] rows of op(A) or
// sides[1] columns of op(B), and by ScaleBlock elements along K. They are stored as cuBLASLt
// expects them: scales of single rows or columns are contiguous along M or N, scales of blocks
// are contiguous along K, and the leading dimension is a multiple of 4.
func scaled(p gemm.Problem, sides [2]int) gemm.Problem {
	if sides[0] == 0 {
		return p
	}
	steps := gemm.ScaleBlocks(p.K)
	layout := func(n, side int) gemm.Layout { // one row for side rows of op(A) or columns of op(B)
		rows := ints.CeilDiv(n, side)
		l := gemm.Dense(dtype.F32, rows, steps)
		if side == 1 {
			l = gemm.Dense(dtype.F32, steps, rows).T()
		}
		l.LD = (l.LD + 3) &^ 3
		return l
	}
	p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB] = layout(p.M, sides[0]), layout(p.N, sides[1]).T()
	return p
}
