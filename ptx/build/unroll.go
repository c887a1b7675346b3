package build

// ForUnrolled is [Kernel.For] with n rounds of the body written one after the other,
// whose loads can then be under way together, and a loop for the rounds that are left
// over. to is no less than from.
//
// An address that is computed from i costs one addition a round, not a product.
func (k *Kernel) ForUnrolled(from, to Value, n int, body func(i Reg)) {
	if n < 1 {
		k.fail("ForUnrolled by %d: want at least 1", n)
		return
	}
	rest := k.Sub(to, k.Rem(k.Sub(to, from), n))
	k.ForStep(from, rest, n, func(i Reg) {
		for range n {
			body(i)
			i = k.next(i)
		}
	})
	k.For(rest, to, body)
}

// next is i + 1, where that is known not to wrap around: [Ptr.At] may go on from the
// address of i.
func (k *Kernel) next(i Reg) Reg {
	n := k.Add(i, 1)
	if n.ok() && !n.v.constant {
		n.v.before = i.v
	}
	return n
}

// previous is what [Kernel.next] made r of.
func (r Reg) previous() (i Reg, ok bool) {
	if r.v == nil || r.v.before == nil {
		return Reg{}, false
	}
	return Reg{r.v.before}, true
}
