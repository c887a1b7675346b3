package gemm

// Invariance selects products whose rows do not depend on the other rows.
//
// An element of a row-invariant product has the same bits for the same row of A and operands of
// the epilogue, the same B, K and element types. They do not depend on the number or the position
// of the rows, on layouts, batches, tiles, threads or devices of one architecture.
type Invariance uint8

const (
	// NotInvariant leaves the order of summation to the choice of a kernel.
	NotInvariant Invariance = iota
	// InvariantRows makes the rows of C invariant.
	InvariantRows
	// InvariantColumns makes the columns of C invariant: C is the transpose of the caller's.
	InvariantColumns
)

// WithRowInvariance returns p with rows that do not depend on each other.
func (p Problem) WithRowInvariance() Problem {
	p.Invariance = InvariantRows
	return p
}

// Ordered reports whether p is row-invariant and its sums depend on the order of summation. Sums of
// integers do not.
func (p *Problem) Ordered() bool { return p.Invariance != NotInvariant && !p.Accum().Info().Integer }

// InvariantWidth returns the length of the rows of C that are invariant, or of its columns. The
// order of summation may depend on it.
func (p *Problem) InvariantWidth() int {
	if p.Invariance == InvariantColumns {
		return p.M
	}
	return p.N
}
