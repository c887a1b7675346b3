package main

import (
	"fmt"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// noScales is a product without block scales in --block-scales.
const noScales = "none"

// scalesExample are block scales as --block-scales reads them: of A's rows, and of blocks of B.
const scalesExample = "1x128+128x128"

// parseScales reads --block-scales: of each choice how many rows of op(A), and columns of op(B),
// share a scale, and 0 for none.
func (f *benchFlags) parseScales() (list [][2]int, err error) {
	if f.scales == "" {
		return [][2]int{{}}, nil
	}
	if f.transfers || f.batch > 1 || f.groups != "" {
		return nil, fmt.Errorf("--block-scales %s with --transfers, --batch or --groups: those are of matrices without", f.scales)
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
			return nil, fmt.Errorf("--block-scales: %q: want %s, or A's and B's as %s, each 1x128 or 128x128", text, noScales, scalesExample)
		}
		list = append(list, sides)
	}
	return list, nil
}

// scaled is p with block scales that as many rows, and columns, share. Those of neighbouring
// rows of A are neighbours, and those of neighbouring blocks along K of B, in rows of whole
// vectors, which is how cuBLASLt takes them.
func scaled(p gemm.Problem, sides [2]int) (gemm.Problem, error) {
	if sides[0] == 0 {
		return p, nil
	}
	steps := gemm.ScaleBlocks(p.K)
	layout := func(n, side int) gemm.Layout { // a row for each row of op(A), or column of op(B)
		rows := (n + side - 1) / side
		l := gemm.Dense(dtype.F32, rows, steps)
		if side == 1 {
			l = gemm.Dense(dtype.F32, steps, rows).T()
		}
		l.LD = (l.LD + 3) &^ 3
		return l
	}
	return p.Scaled(layout(p.M, sides[0]), layout(p.N, sides[1]).T(), false)
}
