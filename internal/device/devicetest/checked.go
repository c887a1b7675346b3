package devicetest

import (
	"testing"

	"tilework/internal/device/emu"
	"tilework/internal/model"
	"tilework/ptx/emu/check"
)

// FewSMs returns an emulated H200 with 3 SMs, so that each block of a persistent kernel computes
// more than one tile.
func FewSMs(t *testing.T, o emu.Options) *emu.Device {
	t.Helper()
	return withSMs(t, 3, o)
}

// withSMs returns an emulated H200 with n SMs.
func withSMs(t *testing.T, n int, o emu.Options) *emu.Device {
	t.Helper()
	h200, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	few := *h200
	few.SMs = n
	o.Model = &few
	d, err := emu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Checked returns an emulated GPU with 3 SMs that runs all checkers. Each finding is an error of
// the test.
func Checked(t *testing.T, o check.Options) *emu.Device {
	t.Helper()
	return CheckedSMs(t, 3, o)
}

// CheckedSMs is [Checked] for n SMs.
func CheckedSMs(t *testing.T, n int, o check.Options) *emu.Device {
	t.Helper()
	return withSMs(t, n, emu.Options{Watch: emu.Checking(o, func(r *check.Report) {
		for _, f := range r.Findings {
			t.Error(f.String())
		}
	})})
}
