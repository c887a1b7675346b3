package main

import (
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tilework/internal/cache"
	"tilework/internal/dispatch/tuned"
)

// TestCSVFields checks the names and the texts of fields, in particular those that only some rows
// have.
func TestCSVFields(t *testing.T) {
	type inner struct {
		Low  float64 `json:"low"`
		High float64 `json:"high"`
	}
	type row struct {
		Name  string   `json:"name"`
		Tile  string   `json:"tile,omitempty"`
		Gain  inner    `json:"gain"`
		Types []string `json:"types"`
		All   []inner  `json:"all"`
		Next  *inner   `json:"next"`
		Good  bool     `json:"good"`
	}
	var out strings.Builder
	rows := []row{
		{Name: "a,\"b\"", Gain: inner{1.5, 2e21}, Types: []string{"f32", "<f4"}, Good: true},
		{Name: "c", Tile: "8x8", All: []inner{{1, 2}}},
	}
	if err := writeCSV(&out, rows); err != nil {
		t.Fatal(err)
	}
	got, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"name", "tile", "gain_low", "gain_high", "types", "all", "next", "good"},
		{"a,\"b\"", "", "1.5", "2e+21", "f32 <f4", "", "", "true"},
		{"c", "8x8", "0", "0", "", `[{"low":1,"high":2}]`, "", "false"},
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestListsAsData checks that the lists of commands have equal fields in CSV and in JSON, with
// names in lower case, and that an empty list is one in JSON.
func TestListsAsData(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	if stdout, _, code := run(t.Context(), "tune", "--show", "--format", "json"); code != 0 || stdout != "[]\n" {
		t.Errorf("tune --show: exit code %d, %q, want an empty list", code, stdout)
	}
	for _, args := range []string{
		"kernels", "devices", "scaling --gpus 1,2 --sizes 4096", "selftest --kernels loop --cases 2 --seed 1",
		"files ../../examples/data/a.npy", "tune --sizes 8 --time 5ms",
	} {
		list := strings.Fields(args)
		stdout, stderr, code := run(t.Context(), append(slices.Clone(list), "--format", "json")...)
		var objects []map[string]json.RawMessage
		if err := json.Unmarshal([]byte(stdout), &objects); code != 0 || err != nil || len(objects) == 0 {
			t.Errorf("%s: exit code %d, %v, %d rows, %q", args, code, err, len(objects), stderr)
			continue
		}
		stdout, stderr, code = run(t.Context(), append(slices.Clone(list), "--format", "csv")...)
		rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
		if code != 0 || err != nil || len(rows) != len(objects)+1 {
			t.Errorf("%s: exit code %d, %v, %d rows in CSV, want %d; %q", args, code, err, len(rows)-1, len(objects), stderr)
			continue
		}
		for key := range objects[0] {
			named := func(title string) bool { return title == key || strings.HasPrefix(title, key+"_") }
			if key != strings.ToLower(key) || !slices.ContainsFunc(rows[0], named) {
				t.Errorf("%s: JSON has the field %q, CSV has %q", args, key, rows[0])
			}
		}
	}
}
