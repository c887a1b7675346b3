package bench

import "testing"

// TestTensorSuite: the suite of the tensor cores has that of float32 and decoders' layers.
func TestTensorSuite(t *testing.T) {
	cases, err := Suite("tensor")
	if err != nil {
		t.Fatal(err)
	}
	base, err := Suite("fp32")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[int]bool{}
	for i, c := range cases {
		if i < len(base) && c != base[i] {
			t.Errorf("shape %d is %v, want %v", i, c, base[i])
		}
		if i >= len(base) {
			tokens[c.M] = true
		}
	}
	if len(cases) != len(base)+45 || len(tokens) != 9 || !tokens[1] || !tokens[256] {
		t.Errorf("%d shapes, %d numbers of tokens", len(cases)-len(base), len(tokens))
	}
}

// TestSuite: what the suite of float32 promises to cover is there, each shape once.
func TestSuite(t *testing.T) {
	cases, err := Suite("fp32")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Shape]bool{}
	odd, skinny, deep := 0, [3]int{}, 0
	for _, c := range cases {
		if seen[c.Shape] {
			t.Errorf("%v stands there twice", c.Shape)
		}
		if c.Why == "" {
			t.Errorf("%v has no reason", c.Shape)
		}
		seen[c.Shape] = true
		if c.M%2 != 0 && c.N%2 != 0 && c.K%2 != 0 {
			odd++
		}
		for i, n := range []int{c.M, c.N, c.K} {
			if n <= 64 && max(c.M, c.N, c.K) >= 4096 {
				skinny[i]++
			}
		}
		if c.K >= 65536 {
			deep++
		}
	}
	for n := 64; n <= 16384; n *= 2 {
		if !seen[Cube(n)] {
			t.Errorf("the square of %d is not there", n)
		}
	}
	if len(cases) < 40 || odd < 10 || skinny[0] < 2 || skinny[1] < 2 || skinny[2] < 2 || deep < 2 {
		t.Errorf("%d shapes, %d of odd sizes, %v skinny along M, N and K, %d with a long K", len(cases), odd, skinny, deep)
	}
	if _, err := Suite("fp31"); err == nil || err.Error() != `no suite "fp31" (there are fp32, tensor)` {
		t.Errorf("an unknown suite: %v", err)
	}
}
