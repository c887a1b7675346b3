package block

// tinyTerms is the product m·n·k up to which a loop is faster than a micro-kernel.
const tinyTerms = 16

// MaxTerms returns the product m·n·k up to which [Kernels.Product] is faster than a planned
// product.
func (k *Kernels[T]) MaxTerms() float64 {
	if len(k.micro.Direct) == 0 {
		return 8 * 8 * 8
	}
	return 24 * 24 * 24
}

// Product computes C ← α·A·B + β·C for an m×n matrix C on the calling goroutine. Element (i, p) of
// A is a[i*rsa+p*csa], and so on; one stride of each matrix is 1. Product reads neither A nor B if
// α is 0, nor C if β is 0. It is meant for products of at most [Kernels.MaxTerms] terms, and takes
// no [Matrix], because copies of those would take longer than the arithmetic.
func (k *Kernels[T]) Product(m, n, depth int, alpha T, a []T, rsa, csa int, b []T, rsb, csb int, beta T, c []T,
	rsc, csc int) {
	if n == 1 && rsc == 1 || n > 1 && csc != 1 { // make the rows of C contiguous
		m, n, a, rsa, csa, b, rsb, csb, rsc = n, m, b, csb, rsb, a, csa, rsa, csc
	}
	switch {
	case alpha == 0 || depth == 0:
		scale(m, n, beta, c, rsc)
	case len(k.micro.Direct) == 0 || m*n*depth <= tinyTerms:
		inRows(m, n, depth, alpha, a, rsa, csa, b, rsb, csb, beta, c, rsc)
	case m == 1 && rsb == 1 && (csa == 1 || depth == 1):
		k.multiplyRows(n, depth, alpha, b, csb, a, beta, c)
	case csb != 1 && n > 1:
		room := k.borrow(depth * n)
		k.transpose(n, depth, *room, n, b, csb)
		k.tiles(m, n, depth, alpha, a, rsa, csa, *room, n, beta, c, rsc)
		k.rooms.Put(room)
	default:
		k.tiles(m, n, depth, alpha, a, rsa, csa, b, rsb, beta, c, rsc)
	}
}

// scale computes C ← β·C.
func scale[T Float](m, n int, beta T, c []T, ldc int) {
	for i := range m {
		row := c[i*ldc:][:n]
		if beta == 0 {
			clear(row)
			continue
		}
		for j := range row {
			row[j] *= beta
		}
	}
}

// inRows computes C ← α·A·B + β·C in plain Go, four columns at a time.
func inRows[T Float](m, n, depth int, alpha T, a []T, rsa, csa int, b []T, rsb, csb int, beta T, c []T, ldc int) {
	for i := range m {
		row := c[i*ldc:][:n]
		j := 0
		for ; j+4 <= n; j += 4 {
			var s0, s1, s2, s3 T
			p, q := i*rsa, j*csb
			for range depth {
				v := a[p]
				s0 += T(v * b[q])
				s1 += T(v * b[q+csb])
				s2 += T(v * b[q+2*csb])
				s3 += T(v * b[q+3*csb])
				p, q = p+csa, q+rsb
			}
			store(row, j, alpha*s0, beta)
			store(row, j+1, alpha*s1, beta)
			store(row, j+2, alpha*s2, beta)
			store(row, j+3, alpha*s3, beta)
		}
		for ; j < n; j++ {
			var sum T
			p, q := i*rsa, j*csb
			for range depth {
				sum += T(a[p] * b[q])
				p, q = p+csa, q+rsb
			}
			store(row, j, alpha*sum, beta)
		}
	}
}

// store computes x[i] ← v + β·x[i].
func store[T Float](x []T, i int, v, beta T) {
	if beta != 0 {
		v += T(beta * x[i])
	}
	x[i] = v
}

// tiles computes C ← α·A·B + β·C with kernels that read A and B as stored. Element (i, p) of A is
// a[i*rsa+p*csa].
func (k *Kernels[T]) tiles(rows, cols, depth int, alpha T, a []T, rsa, csa int, b []T, ldb int, beta T, c []T,
	ldc int) {
	for j := 0; j < cols; j += k.micro.NR {
		for i := 0; i < rows; {
			high := min(k.micro.MR, rows-i)
			count := (rows - i) / high
			k.micro.Direct[high-1](count, depth, &a[i*rsa], rsa, csa, &b[j], ldb, &c[i*ldc+j], &b[j], 0, ldc,
				min(k.micro.NR, cols-j), alpha, beta)
			i += count * high
		}
	}
}
