package ptx

import (
	"os"
	"testing"

	"tilework/internal/testkit"
)

// FuzzParse: no text crashes the parser or the verifier, and what parses is the
// same after it was printed.
func FuzzParse(f *testing.F) {
	// Large seeds are slow to shrink; the tour has the rest of the grammar.
	f.Add(corpus(f)["hopper.sm_90.O3.ptx"])
	tour, err := os.ReadFile("testdata/print/tour.in.ptx")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(tour))
	f.Add(body("@!%p1 mov.b64 {%r1, _}, -0d3FF0000000000000; { // c\n }"))
	f.Fuzz(func(t *testing.T, text string) {
		m := cheap(t, text)
		if m == nil {
			return
		}
		checkRoundTrip(t, m)
		if Verify(m) == nil {
			if need := m.Need(); need.Version > m.Version || !m.Target.Has(need.Target) {
				t.Errorf("needs %v, verified with %v, %v", need, m.Version, m.Target)
			}
		}
	})
}

// cheap parses and verifies a text within the time and the memory that it may take; nil
// stands for what does not parse. An operand of one letter becomes a value of a hundred
// bytes and more.
func cheap(t *testing.T, text string) (m *Module) {
	testkit.Cheap(t, len(text), 1024, func() {
		var err error
		if m, err = Parse("k", text); err == nil {
			_ = Verify(m)
		}
	})
	return m
}

// FuzzForm: no instruction crashes the binder.
func FuzzForm(f *testing.F) {
	f.Add("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];")
	f.Add("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d1}, {%d1}, {%d1, %d2};")
	f.Add("cp.async.bulk.wait_group.read 0;")
	f.Add("atom.global.cta.cas.b32 _, [memory], 0, 1;")
	f.Fuzz(func(t *testing.T, text string) {
		m := cheap(t, body(text))
		if m == nil || Verify(m) != nil {
			return
		}
		checkRoundTrip(t, m)
	})
}
