package build

// ForUnrolled is like [Kernel.For] with the body unrolled n times, so that the loads of several
// iterations can be in flight together. A second loop executes the remaining iterations. to must
// be at least from.
//
// Addresses computed from i cost one addition per unrolled iteration instead of a multiplication.
func (k *Kernel) ForUnrolled(from, to Value, n int, body func(i Reg)) {
	if n < 1 {
		k.fail("ForUnrolled(n = %d): want at least 1", n)
		return
	}
	if k.isNil("ForUnrolled", body == nil) {
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

// next returns i + 1, which must not wrap around. [Ptr.At] then computes the address of i + 1
// from the address of i.
func (k *Kernel) next(i Reg) Reg {
	n := k.Add(i, 1)
	if n.ok() && !n.v.constant {
		n.v.before = i.v
	}
	return n
}

// previous returns the i for which r was returned by [Kernel.next]. ok is false if there is none.
func (r Reg) previous() (i Reg, ok bool) {
	if r.v == nil || r.v.before == nil {
		return Reg{}, false
	}
	return Reg{r.v.before}, true
}
