package explain

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/model"
)

// TestSteps checks the steps of the textbook exercise: 4×4 matrices with tiles of 2. A phase has
// two loads, two stores, a barrier, four reads and a barrier. At the end, the sums are written.
func TestSteps(t *testing.T) {
	k, s := findKernel(t, "tiled", "2")
	m, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	p := problem(t, dtype.F32, 4, 4, 4, false, false)
	machine, _, err := NewMachine(k, s, p, m, Source{Files: []string{"tiled.go"}})
	if err != nil {
		t.Fatal(err)
	}
	x, err := machine.Trace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	phase := []string{"load", "store", "load", "store", "barrier", "read", "read", "read", "read", "barrier"}
	want := append(append(append([]string{}, phase...), phase...), "write")
	steps := x.Blocks[3].Steps // the block of the last two rows and columns
	if len(steps) != len(want) {
		t.Fatalf("got %d steps, want %d", len(steps), len(want))
	}
	for i, s := range steps {
		if s.Op != want[i] || s.Op != "barrier" && len(s.Lanes) != 4 || s.Line == 0 {
			t.Errorf("step %d: got %+v, want %s by 4 threads", i, s, want[i])
		}
	}
	// In the second phase thread 1, (0,1), stores A[2][3] to As[0][1]. Its read of As is of
	// A[2][2].
	if got, want := steps[11].Lanes[1], (TraceLane{1, "A", 2, 3, "As", 1, 1}); got != want {
		t.Errorf("got store %+v, want %+v", got, want)
	}
	if got, want := steps[15].Lanes[1], (TraceLane{1, "A", 2, 2, "As", 0, 0}); got != want {
		t.Errorf("got read %+v, want %+v", got, want)
	}
	if s := steps[15]; s.Wavefronts != 1 || s.Ideal != 1 {
		t.Errorf("got %d wavefronts, %d ideal, want 1", s.Wavefronts, s.Ideal)
	}
	if s := steps[0]; s.Sectors != 1 {
		t.Errorf("a load of two rows of 16 bytes takes %d sectors, want 1", s.Sectors)
	}
}
