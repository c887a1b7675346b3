package cpu

// pack copies rows x0…x0+n-1 of an operand, for p = p0…p0+k-1, into a panel of
// r rows (n ≤ r) as the micro-kernels read it:
//
//	dst[p·r + i] = element(x0+i, p0+p)     zero for i ≥ n
//
// tmp holds k elements for conversions.
func (o *operand[T]) pack(dst []T, r, x0, n, p0, k int, tmp []T) {
	if k == 0 {
		return // A or B is not read, and need not be there
	}
	dst = dst[:k*r]
	if n < r {
		clear(dst)
	}
	if !o.alongK {
		for p := range k {
			o.run(dst[p*r:p*r+n], o.index(x0, p0+p))
		}
		return
	}
	// Transpose, as many rows at a time as the panel has: it is then written from
	// its first byte to its last, once.
	i := 0
	if o.widen == nil {
		row := func(i int) []T { return o.data[o.index(x0+i, p0):][:k] }
		for ; i+8 <= n; i += 8 {
			zip8(dst[i:], r, row(i), row(i+1), row(i+2), row(i+3), row(i+4), row(i+5), row(i+6), row(i+7))
		}
		for ; i+2 <= n; i += 2 {
			zip2(dst[i:], r, row(i), row(i+1))
		}
	}
	for ; i < n; i++ {
		tmp := tmp[:k]
		o.run(tmp, o.index(x0+i, p0))
		for p, v := range tmp {
			dst[p*r+i] = v
		}
	}
}

// zip8 stores s0[p] … s7[p] at dst[p·r:]. All sources are equally long.
func zip8[T scalar](dst []T, r int, s0, s1, s2, s3, s4, s5, s6, s7 []T) {
	for p, v := range s0 {
		d := dst[p*r:][:8]
		d[0], d[1], d[2], d[3] = v, s1[p], s2[p], s3[p]
		d[4], d[5], d[6], d[7] = s4[p], s5[p], s6[p], s7[p]
	}
}

// zip2 is zip8 for two sources.
func zip2[T scalar](dst []T, r int, s0, s1 []T) {
	for p, v := range s0 {
		d := dst[p*r:][:2]
		d[0], d[1] = v, s1[p]
	}
}
