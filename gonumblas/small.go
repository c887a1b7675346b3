package gonumblas

// gemmSmall computes C ← α·A·B + β·C, four elements at a time.
func gemmSmall[T float32 | float64](alpha T, a, b matrix[T], beta T, c matrix[T]) {
	if c.rows < c.cols {
		a, b, c = b.t(), a.t(), c.t()
	}
	i := 0
	for ; i+4 <= c.rows; i += 4 {
		from, to := a.data[i*a.down:], c.data[i*c.down:]
		for j := range c.cols {
			var s0, s1, s2, s3 T
			p, q := 0, j*b.right
			for range a.cols {
				v := b.data[q]
				s0 += from[p] * v
				s1 += from[p+a.down] * v
				s2 += from[p+2*a.down] * v
				s3 += from[p+3*a.down] * v
				p, q = p+a.right, q+b.down
			}
			at := j * c.right
			add(to, at, alpha*s0, beta)
			add(to, at+c.down, alpha*s1, beta)
			add(to, at+2*c.down, alpha*s2, beta)
			add(to, at+3*c.down, alpha*s3, beta)
		}
	}
	for ; i < c.rows; i++ {
		for j := range c.cols {
			var sum T
			for p := range a.cols {
				sum += a.at(i, p) * b.at(p, j)
			}
			add(c.data, i*c.down+j*c.right, alpha*sum, beta)
		}
	}
}

// add computes x[i] ← v + β·x[i].
func add[T float32 | float64](x []T, i int, v, beta T) {
	if beta != 0 {
		v += beta * x[i]
	}
	x[i] = v
}
