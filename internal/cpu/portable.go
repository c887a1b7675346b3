package cpu

import (
	"unsafe"

	"tilework/internal/cpu/asm"
)

// portable returns the micro-kernel in plain Go, for any type and CPU. Its 4×4 tile has as many
// sums as most CPUs have registers for.
func portable[T scalar]() asm.Kernels[T] {
	ks := asm.Kernels[T]{MR: 4, NR: 4, Packed: packed4x4[T], Group: 1}
	for rows := 1; rows <= ks.MR; rows *= 2 {
		ks.Solve = append(ks.Solve, solveRows[T](rows))
		ks.Multiply = append(ks.Multiply, multiplyRows[T](rows))
	}
	return ks
}

// packed4x4 computes, for i < m and j < n,
//
//	C[i·ldc+j] = β·C[i·ldc+j] + α·Σ_p a[p·4+i]·b[p·4+j],  p = 0…k-1
//
// and does not read C if β = 0. It rounds the products before it adds them, so that every CPU gives
// the same bits: the conversions to T keep the compiler from fusing.
func packed4x4[T scalar](k int, a, b, c, _ *T, ldc, m, n int, alpha, beta T) {
	var sum [4][4]T
	for _, p := range [2][2]int{{0, 2}, {2, 4}} { // two rows at a time, so that the eight sums stay in registers
		i := p[0]
		var s00, s01, s02, s03, s10, s11, s12, s13 T
		as, bs := slice(a, 4*k), slice(b, 4*k)
		for len(as) >= 4 && len(bs) >= 4 {
			a0, a1 := as[i&3], as[(i+1)&3]
			b0, b1, b2, b3 := bs[0], bs[1], bs[2], bs[3]
			s00 += T(a0 * b0)
			s01 += T(a0 * b1)
			s02 += T(a0 * b2)
			s03 += T(a0 * b3)
			s10 += T(a1 * b0)
			s11 += T(a1 * b1)
			s12 += T(a1 * b2)
			s13 += T(a1 * b3)
			as, bs = as[4:], bs[4:]
		}
		sum[i] = [4]T{s00, s01, s02, s03}
		sum[i+1] = [4]T{s10, s11, s12, s13}
	}
	for i := range m {
		row := slice(c, (m-1)*ldc+n)[i*ldc:][:n]
		for j := range row {
			v := T(alpha * sum[i][j])
			if beta != 0 {
				v += T(beta * row[j])
			}
			row[j] = v
		}
	}
}

// solveRows returns the [asm.Triangle] that solves for the given number of rows.
func solveRows[T scalar](rows int) asm.Triangle[T] {
	return triangle4x4(rows, func(x, sums *[4]T, l []T, alpha T) {
		for i := range rows {
			x[i] = T(alpha*x[i]) - sums[i]
		}
		for i := range rows {
			x[i] *= l[i*4+i]
			for r := i + 1; r < rows; r++ {
				x[r] -= T(l[i*4+r] * x[i])
			}
		}
	})
}

// multiplyRows returns the [asm.Triangle] that multiplies the given number of rows.
func multiplyRows[T scalar](rows int) asm.Triangle[T] {
	return triangle4x4(rows, func(x, sums *[4]T, l []T, alpha T) {
		for i := range rows {
			for r := i; r < rows; r++ {
				sums[r] += T(l[i*4+r] * x[i])
			}
		}
		for i := range rows {
			x[i] = alpha * sums[i]
		}
	})
}

// triangle4x4 returns an [asm.Triangle] for the given number of rows. finish completes a column x
// of a tile, given the sums of its products with the rows above.
func triangle4x4[T scalar](rows int, finish func(x, sums *[4]T, l []T, alpha T)) asm.Triangle[T] {
	return func(tiles, k int, a *T, rsa, csa int, l, b *T, ldb int, alpha T) {
		triangle := slice(l, 4*(rows-1)+rows)
		for range tiles * 4 {
			var x, sums [4]T
			for p := range k {
				v := *offset(b, p*ldb)
				for i := range rows {
					sums[i] += T(*offset(a, i*rsa+p*csa) * v)
				}
			}
			for i := range rows {
				x[i] = *offset(b, (k+i)*ldb)
			}
			finish(&x, &sums, triangle, alpha)
			for i := range rows {
				*offset(b, (k+i)*ldb) = x[i]
			}
			b = offset(b, 1)
		}
	}
}

// offset returns a pointer to the element n elements after p, or before p if n is negative.
func offset[T scalar](p *T, n int) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(p), n*int(unsafe.Sizeof(*p))))
}
