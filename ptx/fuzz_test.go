package ptx

import (
	"os"
	"testing"

	"tilework/internal/testkit"
)

// FuzzParse checks that no input crashes the parser or the verifier, and that a module is
// unchanged by printing and parsing.
func FuzzParse(f *testing.F) {
	// Large seeds are slow to minimize. The tour covers the rest of the grammar.
	f.Add(corpus(f)["hopper.sm_90.O3.ptx"])
	tour, err := os.ReadFile("testdata/print/tour.in.ptx")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(tour))
	f.Add(body("@!%p1 mov.b64 {%r1, _}, -0d3FF0000000000000; { // c\n }"))
	f.Fuzz(func(t *testing.T, text string) {
		m := parseCheaply(t, text)
		if m == nil {
			return
		}
		checkRoundTrip(t, m)
		if Verify(m) == nil {
			if need := m.Need(); need.Version > m.Version || !need.supportedBy(m.Target) {
				t.Errorf("requires %v, but verified with %v, %v", need, m.Version, m.Target)
			}
		}
	})
}

// parseCheaply parses and verifies text and checks that time and memory stay within limits
// proportional to the input. It returns nil if the input is invalid. A one-letter operand becomes
// a value of over a hundred bytes.
func parseCheaply(t *testing.T, text string) (m *Module) {
	testkit.CheckCost(t, len(text), 1024, func() {
		var err error
		if m, err = Parse("k", text); err == nil {
			_ = Verify(m)
		}
	})
	return m
}

// FuzzForm checks that no instruction crashes Bind.
func FuzzForm(f *testing.F) {
	f.Add("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];")
	f.Add("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d1}, {%d1}, {%d1, %d2};")
	f.Add("cp.async.bulk.wait_group.read 0;")
	f.Add("atom.global.cta.cas.b32 _, [memory], 0, 1;")
	f.Fuzz(func(t *testing.T, text string) {
		m := parseCheaply(t, body(text))
		if m == nil || Verify(m) != nil {
			return
		}
		checkRoundTrip(t, m)
	})
}
