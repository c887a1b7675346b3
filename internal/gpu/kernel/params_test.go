package kernel

import (
	"testing"

	"tilework/internal/device"
	"tilework/ptx/build"
)

// TestDeclarer checks that a Declarer declares the parameters that Encode encodes, in the same
// order, and refuses another order.
func TestDeclarer(t *testing.T) {
	type launch struct{ n, x uint64 }
	params := []Param[launch]{
		{Name: "n", Type: TypeU32, Value: func(l *launch) uint64 { return l.n }},
		{Name: "absent", Type: TypeU64, When: func(*Config) bool { return false }},
		{Name: "x", Type: TypeU64, Pointer: true, Value: func(l *launch) uint64 { return l.x }},
	}
	c := &Config{}
	k := build.New("entry")
	d := Declarer[launch]{Kernel: k, Config: c, Params: params}
	refuses := func(name string) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("declared parameter %s with %d parameters left", name, len(d.Params))
			}
		}()
		rest := d
		rest.Value(name)
	}
	refuses("x")
	refuses("absent")
	d.Value("n")
	refuses("n")
	d.Pointer("x")
	refuses("x")
	m, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	var args device.Params
	Encode(&args, params, c, &launch{1, 2})
	if got, want := len(args.Bytes()), m.Funcs()[0].ParamBytes(); got != want || want != 16 {
		t.Errorf("encoded %d bytes and declared %d, want 16", got, want)
	}
}
