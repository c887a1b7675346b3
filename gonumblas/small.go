package gonumblas

import "gonum.org/v1/gonum/blas"

// leaf is the largest size of the triangles that are multiplied and solved in registers.
const leaf = 4

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

// multiplyLeaf computes B ← α·A·B for up to leaf rows.
func multiplyLeaf[T float32 | float64](alpha T, a triangle[T], b matrix[T]) {
	l, p, down := leafOf(a, b)
	for range b.cols {
		p0 := p
		p += b.right
		x0 := alpha * b.data[p0]
		b.data[p0] = l[0][0] * x0
		if b.rows == 1 {
			continue
		}
		p1 := p0 + down
		x1 := alpha * b.data[p1]
		b.data[p1] = l[1][0]*x0 + l[1][1]*x1
		if b.rows == 2 {
			continue
		}
		p2 := p1 + down
		x2 := alpha * b.data[p2]
		b.data[p2] = l[2][0]*x0 + l[2][1]*x1 + l[2][2]*x2
		if b.rows == 3 {
			continue
		}
		p3 := p2 + down
		b.data[p3] = l[3][0]*x0 + l[3][1]*x1 + l[3][2]*x2 + l[3][3]*alpha*b.data[p3]
	}
}

// solveLeaf computes B ← α·A⁻¹·B for up to leaf rows. It multiplies by the reciprocals of the
// diagonal, as gonum does for an A on the left.
func solveLeaf[T float32 | float64](alpha T, a triangle[T], b matrix[T]) {
	l, p, down := leafOf(a, b)
	for i := range b.rows {
		l[i][i] = 1 / l[i][i]
	}
	for range b.cols {
		p0 := p
		p += b.right
		x0 := alpha * b.data[p0] * l[0][0]
		b.data[p0] = x0
		if b.rows == 1 {
			continue
		}
		p1 := p0 + down
		x1 := (alpha*b.data[p1] - l[1][0]*x0) * l[1][1]
		b.data[p1] = x1
		if b.rows == 2 {
			continue
		}
		p2 := p1 + down
		x2 := (alpha*b.data[p2] - l[2][0]*x0 - l[2][1]*x1) * l[2][2]
		b.data[p2] = x2
		if b.rows == 3 {
			continue
		}
		p3 := p2 + down
		b.data[p3] = (alpha*b.data[p3] - l[3][0]*x0 - l[3][1]*x1 - l[3][2]*x2) * l[3][3]
	}
}

// leafOf returns the elements of a triangle of up to leaf rows as a lower one: it reverses the
// order of the rows and columns of an upper triangle. It also returns the position of the first
// element of b in that order, and the distance to the next row.
func leafOf[T float32 | float64](a triangle[T], b matrix[T]) (l [leaf][leaf]T, start, down int) {
	last := a.rows - 1
	for i := range a.rows {
		for j := range i {
			if a.lower {
				l[i][j] = a.at(i, j)
			} else {
				l[i][j] = a.at(last-i, last-j)
			}
		}
		d := i
		if !a.lower {
			d = last - i
		}
		if l[i][i] = 1; a.diag != blas.Unit {
			l[i][i] = a.at(d, d)
		}
	}
	if a.lower {
		return l, 0, b.down
	}
	return l, last * b.down, -b.down
}
