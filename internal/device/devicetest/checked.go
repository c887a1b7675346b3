package devicetest

import (
	"testing"

	"tilework/internal/device/emu"
	"tilework/internal/model"
	"tilework/ptx/emu/check"
)

// fewSMs is an emulated H200 of which little is left, so that blocks that stay on their SM
// have more than one tile.
func FewSMs(t *testing.T, o emu.Options) *emu.Device {
	t.Helper()
	h200, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	few := *h200
	few.SMs = 3
	o.Model = &few
	d, err := emu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// checked is an emulated GPU on which a finding is an error of the test.
func Checked(t *testing.T, o check.Options) *emu.Device {
	t.Helper()
	return FewSMs(t, emu.Options{Watch: emu.Checking(o, func(r *check.Report) {
		for _, f := range r.Findings {
			t.Error(f.String())
		}
	})})
}
