package gonumblas

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack"
)

// Dlange computes a norm of a matrix.
func (l LAPACK) Dlange(norm lapack.MatrixNorm, m, n int, a []float64, lda int, work []float64) float64 {
	v := &views{bad: norm != lapack.MaxRowSum}
	va := view(v, m, n, lda, a)
	if v.bad {
		return l.Implementation.Dlange(norm, m, n, a, lda, work)
	}
	most := 0.0
	for i := range m {
		most = max(most, sumOfAbs(va.data[i*va.down:][:n]))
	}
	return most
}

// Dlansy computes a norm of a symmetric matrix.
func (l LAPACK) Dlansy(norm lapack.MatrixNorm, ul blas.Uplo, n int, a []float64, lda int, work []float64) float64 {
	v := &views{bad: !isSumNorm(norm) || len(work) < n}
	va := triangle[float64]{matrix: view(v, n, n, lda, a), lower: v.lower(ul)}
	if v.bad {
		return l.Implementation.Dlansy(norm, ul, n, a, lda, work)
	}
	clear(work[:n])
	for i := range n {
		part, first := va.row(i)
		work[i] += sumOfAbs(part)
		if !va.lower {
			part, first = part[1:], first+1
		} else {
			part = part[:i]
		}
		sums := work[first:][:len(part)]
		for j, v := range part {
			sums[j] += math.Abs(v)
		}
	}
	most := 0.0
	for _, sum := range work[:n] {
		most = max(most, sum)
	}
	return most
}

// sumOfAbs returns the sum of the absolute values of x. Its four sums are independent, so that each
// does not wait for the others.
func sumOfAbs(x []float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		s0 += math.Abs(x[0])
		s1 += math.Abs(x[1])
		s2 += math.Abs(x[2])
		s3 += math.Abs(x[3])
	}
	for _, v := range x {
		s0 += math.Abs(v)
	}
	return (s0 + s1) + (s2 + s3)
}
