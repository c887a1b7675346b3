package main

import (
	"slices"
	"strings"
	"testing"
)

// TestDims parses valid and invalid dimensions.
func TestDims(t *testing.T) {
	for _, c := range []struct {
		kind dims
		text string
		want []int
	}{
		{blockDims, "256", []int{256}},
		{blockDims, "16x8", []int{16, 8}},
		{blockDims, "16,8", []int{16, 8}},
		{blockDims, "4x2x2147483647", []int{4, 2, 2147483647}},
		{blockDims, "4,2,1", []int{4, 2, 1}},
		{matrixDims, "64x32", []int{64, 32}},
		{matrixDims, "64,32", []int{64, 32}},
	} {
		if got, err := c.kind.parse(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	for _, c := range []struct {
		kind dims
		text string
	}{
		{blockDims, ""}, {blockDims, "x"}, {blockDims, "16x"}, {blockDims, ",16"}, {blockDims, "16x8,2"},
		{blockDims, "1x1x1x1"}, {blockDims, "0"},
		{blockDims, "-1"}, {blockDims, "+1"}, {blockDims, "1.5"}, {blockDims, "16 x 16"}, {blockDims, "2147483648"},
		{blockDims, "sixteen"},
		{matrixDims, "64"}, {matrixDims, "64x32x16"},
	} {
		got, err := c.kind.parse(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.text+": ") ||
			!strings.HasSuffix(err.Error(), "want "+c.kind.example) {
			t.Errorf("%q: %v, %v, want an error with %q", c.text, got, err, c.kind.example)
		}
	}
}

// TestDimensionsInEachCommand checks that occupancy and emulate accept both separators.
func TestDimensionsInEachCommand(t *testing.T) {
	nvccFolder(t)
	for _, c := range []struct{ args, dims string }{
		{"occupancy --gpu t4 --threads ", "16x16"},
		{"emulate matmul.ptx --entry " + tiledEntry + " --force --block 16,16 --arg a.npy --arg b.npy --arg " +
			"out:f32:48,48:c.npy --arg s32:48 --arg s32:48 --arg s32:48 --grid ", "3x3"},
		{"emulate matmul.ptx --entry " + tiledEntry + " --force --grid 3x3 --arg a.npy --arg b.npy --arg " +
			"out:f32:48x48:c.npy --arg s32:48 --arg s32:48 --arg s32:48 --block ", "16x16"},
	} {
		var first string
		for _, spelling := range []string{c.dims, strings.ReplaceAll(c.dims, "x", ",")} {
			stdout, stderr, code := run(t.Context(), strings.Fields(c.args+spelling)...)
			stdout, _, _ = strings.Cut(stdout, " in ") // the time that emulate takes
			if first == "" {
				first = stdout
			}
			if code != 0 || stdout == "" || stdout != first {
				t.Errorf("%s%s: exit code %d, %s, %q, want %q", c.args, spelling, code, stderr, stdout, first)
			}
		}
	}
}
