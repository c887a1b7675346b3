package backend

import (
	"fmt"
	"strings"
	"testing"
)

// TestParseDevice checks that ParseDevice accepts each form of a name and quotes other names in its
// error, and that String returns a name for the same device.
func TestParseDevice(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   DeviceName
		string string
	}{
		{"", DeviceName{}, "auto"},
		{"auto", DeviceName{}, "auto"},
		{"cpu", DeviceName{Kind: CPU}, "cpu"},
		{"gpu", DeviceName{Kind: GPU}, "gpu"},
		{"gpu:0", DeviceName{Kind: GPU}, "gpu"},
		{"gpu:12", DeviceName{Kind: GPU, Index: 12}, "gpu:12"},
		{"gpu:GPU-3f2a", DeviceName{Kind: GPU, UUID: "GPU-3f2a"}, "gpu:GPU-3f2a"},
		{"gpu:0,1", DeviceName{Kind: GPU, List: "0,1"}, "gpu:0,1"},
		{"gpu:3,0,12", DeviceName{Kind: GPU, List: "3,0,12"}, "gpu:3,0,12"},
		{"gpu:all", DeviceName{Kind: GPU, List: AllGPUs}, "gpu:all"},
		{"emu", DeviceName{Kind: Emulator}, "emu"},
		{"emu:sm_80", DeviceName{Kind: Emulator, Model: "sm_80"}, "emu:sm_80"},
		{"emu:h200#3", DeviceName{Kind: Emulator, Model: "h200", Index: 3}, "emu:h200#3"},
		{"emu:h200,t4", DeviceName{Kind: Emulator, List: "h200,t4"}, "emu:h200,t4"},
	} {
		got, err := ParseDevice(c.name)
		if err != nil || got != c.want || got.String() != c.string {
			t.Errorf("%q: got %+v, named %q, error %v; want %+v, named %q", c.name, got, got, err, c.want, c.string)
		}
		if again, err := ParseDevice(got.String()); err != nil || again != got {
			t.Errorf("%q: its String parses to %+v, error %v", c.name, again, err)
		}
	}
	for _, name := range []string{"GPU", "gpu:", "gpu:-1", "gpu:1x", "gpu:1:2", "gpu:gpu-3f", "cpu:0", "auto:1", "emu:",
		" cpu",
		"cuda", "gpu:0,", "gpu:,1", "gpu:0,1,0", "gpu:0,01", "gpu:0,-1", "gpu:0,GPU-3f", "gpu:ALL",
		"emu:h200,", "emu:,", "emu:h200#0", "emu:h200#x", "emu:h200,t4#1", "emu:#1"} {
		if got, err := ParseDevice(name); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%q: got %+v, error %v, want an error that quotes it", name, got, err)
		}
	}
	const forms = "auto, cpu, gpu, gpu:N, gpu:UUID, gpu:N,N, gpu:all, emu, emu:MODEL, emu:MODEL,MODEL"
	if _, err := ParseDevice("tpu"); err == nil || !strings.HasSuffix(err.Error(), forms) {
		t.Errorf("got error %v, want the forms %s", err, forms)
	}
}

// TestMembers checks the GPUs of lists. Each has a name of its own.
func TestMembers(t *testing.T) {
	for name, want := range map[string]string{
		"gpu:3,0": "[gpu:3 gpu]", "gpu:all": "[]", "emu:h200,h200,t4": "[emu:h200 emu:h200#1 emu:t4#2]",
	} {
		d, err := ParseDevice(name)
		if got := fmt.Sprint(d.Members()); err != nil || got != want {
			t.Errorf("%s: members %v, error %v, want %s", name, got, err, want)
		}
	}
}
