package gonumblas

// Small problems are computed in other ways than large ones. The sizes were measured on a Zen 3, a
// Zen 4 and an Ice Lake; a factor of two matters little.
const (
	// smallRank and smallTriangle are the products of sizes up to which loops compute SYRK and SYR2K,
	// and TRMM and TRSM.
	smallRank     = 7 * 7 * 7
	smallTriangle = 9 * 9 * 9
	// minVectorTerms is the number of elements of a matrix from which gonum no longer computes GEMV,
	// GER and TRSV, and minTrmvTerms that for TRMV.
	minVectorTerms = 80 * 80
	minTrmvTerms   = 220 * 220
	// smallLU, smallCholesky, smallQR and smallQ are the numbers of elements up to which gonum
	// computes an LU, Cholesky or QR factorisation, or a product with the Q of that many elements.
	smallLU       = 56 * 56
	smallCholesky = 32 * 32
	smallQR       = 100 * 100
	smallQ        = 32 * 32
	// qrLeaf is the number of columns of a QR factorisation that gonum factorises.
	qrLeaf = 16
)

// Problems are split into blocks of these sizes.
const (
	// wholeRows divides the sizes of the first halves of triangles.
	wholeRows = 8
	// vectorTerms is the number of elements of a matrix up to which one thread computes with vectors.
	vectorTerms = 360 * 360
	// symmBlock is the largest symmetric matrix that is completed in scratch memory and multiplied at
	// once.
	symmBlock = 256
	// rankBlock is the size of the blocks on the diagonal of a symmetric product. Both triangles of
	// such a block are computed.
	rankBlock = 64
	// rankTerms is the product n·n·k up to which those blocks may have size symmBlock: one product on
	// all threads is faster than the smaller products that it splits into.
	rankTerms = 4 << 20
	// qrBlock is the number of columns of a panel of a QR factorisation. Its reflectors are applied to
	// the rest of the matrix at once.
	qrBlock = 48
	// qrWide is the number of columns up to which panels have qrLeaf columns instead.
	qrWide = 320
)

// terms returns m·n·k. It is a float64 because the product may overflow an int of 32 bits.
func terms(m, n, k int) float64 { return float64(m) * float64(n) * float64(k) }
