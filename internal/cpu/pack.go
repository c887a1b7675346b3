package cpu

// pack copies rows x0…x0+n-1 of an operand, for p = p0…p0+k-1, into a panel of
// r rows (n ≤ r) as the micro-kernels read it:
//
//	dst[p·r + i] = element(x0+i, p0+p)     zero for i ≥ n
//
// tmp holds k elements for conversions.
func (o *operand[T]) pack(dst []T, r, x0, n, p0, k int, tmp []T) {
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
	i := 0
	if o.widen == nil {
		// Four rows at a time: every cache line of dst is then written in fewer
		// passes, which is what a transposition costs.
		for ; i+4 <= n; i += 4 {
			s0 := o.data[o.index(x0+i, p0):][:k]
			s1 := o.data[o.index(x0+i+1, p0):][:k]
			s2 := o.data[o.index(x0+i+2, p0):][:k]
			s3 := o.data[o.index(x0+i+3, p0):][:k]
			for p, v := range s0 {
				d := dst[p*r+i:][:4]
				d[0], d[1], d[2], d[3] = v, s1[p], s2[p], s3[p]
			}
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
