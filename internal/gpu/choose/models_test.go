package choose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/fit"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
)

// TestModels checks that each model has a file, each file a model, and each coefficient a value.
func TestModels(t *testing.T) {
	files, err := modelFiles.ReadDir("models")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, _ := strings.CutSuffix(f.Name(), ".json")
		if !slices.Contains(Models(), name) {
			t.Errorf("no model has the file %s", f.Name())
		}
	}
	if len(files) != len(Models()) {
		t.Errorf("%d files, want %d", len(files), len(Models()))
	}
	for _, name := range Models() {
		modelCoefficients(name)
	}
	for name, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H200": "h200", "NVIDIA GH200 480GB": "h200", "": "h200",
	} {
		if got := ModelOf(&device.Info{Name: name, Target: ptx.Target{SM: 90}}); got != want {
			t.Errorf("model %s for %q, want %s", got, name, want)
		}
	}
	for sm, want := range map[int]string{75: "turing", 80: "ampere", 89: "ampere", 120: "h200"} {
		if got := ModelOf(&device.Info{Name: "NVIDIA L4", Target: ptx.Target{SM: sm}}); got != want {
			t.Errorf("model %s for sm_%d, want %s", got, sm, want)
		}
	}
}

// TestBadModel checks that coefficients with which nothing could be predicted are refused.
func TestBadModel(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                           `Machine.MemoryRate is 0: want a positive number`,
		`{"Machine": {"Memory": 1}}`:   `unknown field "Memory"`,
		`{"Machine": {"Ramp": -1}}`:    `Machine.Ramp is -1`,
		`{"Machine": {"Ramp": 0}}`:     `Machine.Ramp is 0`,
		`{"Machine": {"Ramp": 1e999}}`: `1e999`,
		`[`:                            `unexpected`,
	} {
		f := modelFile{Like: "h200", Coefficients: json.RawMessage(text)}
		if text == "{}" {
			f.Like = ""
		}
		if _, err := f.coefficients(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	f := modelFile{Like: "h300", Coefficients: json.RawMessage("{}")}
	if _, err := f.coefficients(); err == nil || !strings.Contains(err.Error(), `like "h300": want one of h100, `) {
		t.Errorf("error %v", err)
	}
}

// altered returns products with the times that predictions with altered coefficients give, on a
// GPU that is like an H200 with slower memory.
func altered(t *testing.T) (*device.Info, []Timed) {
	t.Helper()
	costs := *modelCoefficients("h200")
	costs.Machine.MemoryRate *= 0.5
	costs.WGMMA.Latency *= 1.5
	records := append(readTimes(t, "h200"), readTimes(t, "h200-models")...)
	d := *records[0].gpu
	var all []Timed
	for i, x := range records {
		if i%150 != 0 {
			continue
		}
		p := Timed{Problem: x.problem, Cycles: map[string]float64{}}
		j := newJob(&p.Problem, kernel.Align{}, &d)
		j.costs = &costs
		for _, c := range Near(collect(candidates(rows, j)), 2) {
			p.Cycles[c.Spec()] = c.Cycles
		}
		all = append(all, p)
	}
	return &d, all
}

// TestFitRecovers fits coefficients to times that were predicted with other ones, finds these, and
// keeps them in a cache.
func TestFitRecovers(t *testing.T) {
	d, all := altered(t)
	f, err := Fit(t.Context(), d, "h200", all, fit.Options{Penalty: Penalty, Tries: 300})
	if err != nil {
		t.Fatal(err)
	}
	if f.Before.Deviation < 0.1 || f.After.Deviation > 0.03 || f.After.Loss > f.Before.Loss/3 || !f.Better() {
		t.Errorf("before %+v, after %+v", f.Before, f.After)
	}
	changed := func(name string) float64 {
		for _, n := range f.Changed {
			if n.Name == name {
				return n.After / n.Before
			}
		}
		return 1
	}
	if r := changed("Machine.MemoryRate"); r < 0.4 || r > 0.6 {
		t.Errorf("memory's rate is %.3f of the one before, want about 0.5: %v", r, f.Changed)
	}
	if len(f.Changed) > 8 {
		t.Errorf("%d coefficients changed, want about the 2 that were altered: %v", len(f.Changed), f.Changed)
	}
	testKept(t, f, d)
}

// testKept keeps fitted coefficients and finds them again, on this GPU with this build only.
func testKept(t *testing.T, f *Fitted, d *device.Info) {
	c := cache.At(t.TempDir())
	if err := f.Keep(c, d, "a test"); err != nil {
		t.Fatal(err)
	}
	costs := keptCoefficients(c, d)
	if costs == nil || !costs.fitted {
		t.Fatal("the coefficients are not found")
	}
	text, err := f.Text("a test")
	var file modelFile
	if err != nil || decodeStrictly(text, &file) != nil {
		t.Fatalf("%v, %s", err, text)
	}
	if same, err := file.coefficients(); err != nil || same.Machine != costs.Machine {
		t.Errorf("the file has other coefficients than the cache: %v", err)
	}
	other := *d
	other.SMs++
	if keptCoefficients(c, &other) != nil {
		t.Error("another GPU has the same coefficients")
	}
	if kept := AllKept(c); len(kept) != 1 || !kept[0].Current || kept[0].From != "h200" || kept[0].Source[0] != "a test" {
		t.Errorf("kept %+v", kept)
	}
	if err := c.Section(fittedSection).Put("coefficients, of another build", f.file(nil)); err != nil {
		t.Fatal(err)
	}
	bad := modelFile{Like: "h200", Coefficients: json.RawMessage(`{"None": 1}`)}
	if err := c.Section(fittedSection).Put(fittedKey(d), bad); err != nil {
		t.Fatal(err)
	}
	if keptCoefficients(c, d) != nil {
		t.Error("coefficients of another version are used")
	}
	used := 0
	for _, k := range AllKept(c) {
		if k.Current {
			used++
		}
	}
	if n, err := ClearKept(c); n != 2 || used != 0 || err != nil || len(AllKept(c)) != 0 {
		t.Errorf("removed %d of which %d are used, %v", n, used, err)
	}
}

// TestFitFails checks that a fit to too few products, or one that is interrupted, fails.
func TestFitFails(t *testing.T) {
	d, all := altered(t)
	if _, err := Fit(t.Context(), d, "h200", all[:2], fit.Options{}); err == nil ||
		!strings.Contains(err.Error(), "2 products were measured: want at least 3") {
		t.Errorf("error %v", err)
	}
}
