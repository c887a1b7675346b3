package bench

import (
	"math"
	"strings"
	"testing"
)

// TestChoices checks which records are compared, the loss, and the report.
func TestChoices(t *testing.T) {
	record := func(subject string, m int, micros, predicted float64) Record {
		r := Record{Schema: Schema, Subject: subject, Detail: subject + " tile", Device: "gpu:0", In: "float32",
			Out: "float32",
			M:   m, N: 20, K: 30, LDA: 30, LDB: 20, LDC: 20, Reps: 5, Predicted: predicted,
			Load: &Load{SMClock: Span{Median: 1000}}}
		r.Seconds.Median = micros / 1e6
		return r
	}
	failed := record("blocked:1", 10, 1, 10)
	failed.Error = "wrong result"
	peer := record("peer", 10, 2, 0)
	peer.Peer = true
	lost := record(Chosen, 12, 0, 0)
	lost.Error = "no kernel"
	records := []Record{
		record(Chosen, 10, 15, 10000), record("blocked:2", 10, 12, 11000), record("blocked:3", 10, 20, 12000), failed, peer,
		record(Chosen, 11, 10, 10000), record("blocked:2", 11, 11, 11000),
		lost, record("blocked:2", 12, 11, 11000),
	}
	choices := Choices(records)
	if len(choices) != 2 {
		t.Fatalf("got %d choices, want 2", len(choices))
	}
	if c := choices[0]; c.Chosen != &records[0] || c.Best != &records[1] || c.Others != 2 ||
		math.Abs(c.Loss()-0.25) > 1e-12 {
		t.Errorf("first product: got best %q of %d others, loss %v", c.Best.Subject, c.Others, c.Loss())
	}
	if c := choices[1]; c.Best != c.Chosen || c.Others != 1 || c.Loss() != 0 {
		t.Errorf("second product: got best %q, loss %v", c.Best.Subject, c.Loss())
	}
	var b strings.Builder
	if err := WriteChoices(&b, records, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"10×20×30", "auto tile", "10 µs", "15 µs", "blocked:2 tile", "11 µs", "12 µs", "25.0%",
		"float32: the choice takes 12.5% longer than the best candidate in the mean of 2, 25.0% at most (10×20×30); " +
			"it takes 1.50 × the predicted time in the median",
		"float32 12×20×30: no kernel",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &b)
		}
	}
}
