package model

import (
	"math"
	"strings"
	"testing"
)

// TestModelsComplete checks that every row is complete and has exactly the rates of its
// architecture's units.
func TestModelsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Models() {
		if m.Arch == nil {
			t.Errorf("%s: the architecture is not in the table", m.Name)
			continue
		}
		if m.Name == "" || m.Name != strings.ToLower(m.Name) || m.Device == "" || m.SMs < 1 || m.ClockHz < 5e8 ||
			m.ClockHz > 4e9 ||
			m.MemBytes < 1<<30 || m.MemBandwidth < 1e11 || m.L2Bytes < 1<<20 || m.L2Bytes > 1<<28 || m.Generic() {
			t.Errorf("incomplete or implausible: %+v", m)
		}
		for _, name := range []string{m.Name, strings.ToLower(m.Device)} {
			if seen[name] {
				t.Errorf("%q names two rows", name)
			}
			seen[name] = true
		}
		sm := m.Arch.SM
		has := Peaks{FP64: 1, FP32: 1, FP16: 1, INT8: 1}
		if sm >= 80 {
			has[TF32], has[BF16] = 1, 1
		}
		if sm >= 89 {
			has[FP8] = 1
		}
		if sm == 80 || sm == 90 || sm == 100 {
			has[FP64Tensor] = 1
		}
		for r := range numRates {
			if (m.Peak[r] > 0) != (has[r] > 0) {
				t.Errorf("%s: %v is %g, but units for %v: %v", m.Name, r, m.Peak[r], r, has[r] > 0)
			}
			if got, err := m.PeakRate(r); (err == nil) != (has[r] > 0) || got != m.Peak[r] {
				t.Errorf("%s: PeakRate(%v) = %g, error %v", m.Name, r, got, err)
			}
		}
	}
}

// TestPeaksAgree checks that the figures of a data sheet are consistent, to find typing errors.
func TestPeaksAgree(t *testing.T) {
	near := func(m *Model, what string, got, want float64) {
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %s is %.4g, want %.4g according to the other figures", m.Name, what, got, want)
		}
	}
	for _, m := range Models() {
		p := m.Peak
		// Programming Guide, throughput of native arithmetic instructions: 32-bit
		// multiply-adds per clock and SM.
		units := 128.0
		if m.Arch.SM < 86 {
			units = 64
		}
		near(m, "fp32", p[FP32], float64(m.SMs)*m.ClockHz*units*2)
		if p[INT8] < 1.99*p[FP16] {
			t.Errorf("%s: int8 is %.4g, want at least twice fp16", m.Name, p[INT8])
		}
		if m.Arch.SM >= 80 {
			near(m, "bf16", p[BF16], p[FP16])
			near(m, "tf32", p[TF32], p[BF16]/2)
		}
		if m.Arch.SM >= 89 {
			near(m, "fp8", p[FP8], 2*p[FP16])
		}
		switch m.Arch.SM {
		case 80, 90:
			near(m, "fp64-tensor", p[FP64Tensor], 2*p[FP64])
			near(m, "fp64-tensor", p[FP64Tensor], p[FP32])
		case 100:
			near(m, "fp64", p[FP64], p[FP32]/2)
		case 75:
			near(m, "fp64", p[FP64], p[FP32]/32)
		default:
			near(m, "fp64", p[FP64], p[FP32]/64)
		}
	}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"h200", "h200"}, {"H200", "h200"}, {"NVIDIA H200", "h200"}, {"tesla t4", "t4"},
		{"a100-sxm-80gb", "a100-sxm-80gb"}, {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
		{"sm_90", "sm_90"}, {"sm_90a", "sm_90"}, {"SM_100F", "sm_100"}, {"sm_121", "sm_121"},
	} {
		m, err := Lookup(c.name)
		if err != nil || m.Name != c.want || m.Arch == nil || m.Generic() != strings.HasPrefix(c.want, "sm_") {
			t.Errorf("Lookup(%q) = %+v, %v, want %s", c.name, m, err, c.want)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"", "unknown GPU"}, {"h300", "h200, b200"}, {"sm_42", "sm_121"}, {"sm_90aa", "unknown"}, {"sm_9", "unknown"},
		{"h100", "h100-sxm, h100-pcie, h100-nvl"}, {"A100-PCIe", "a100-pcie-40gb, a100-pcie-80gb"},
	} {
		if m, err := Lookup(c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Lookup(%q) = %v, %v, want an error with %q", c.name, m, err, c.want)
		}
	}
}

func TestRateNames(t *testing.T) {
	for r := range numRates {
		if got, err := ParseRate(r.String()); err != nil || got != r || r.String() == "" {
			t.Errorf("ParseRate(%q) = %v, %v", r, got, err)
		}
	}
	if _, err := ParseRate("fp33"); err == nil || !strings.Contains(err.Error(), "fp64-tensor") {
		t.Errorf("fp33: got %v, want an error that lists the rates", err)
	}
	if got := numRates.String(); got != "Rate(8)" {
		t.Errorf("got name %q of an invalid rate", got)
	}
}

func lookup(t *testing.T, name string) *Model {
	t.Helper()
	m, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRoofline(t *testing.T) {
	h200 := lookup(t, "h200")
	const n = 8192
	for _, c := range []struct {
		name       string
		r          Rate
		ops, bytes float64
		want       Roof
	}{
		// Two float32 loads per multiply-add, as in the naive kernel.
		{"naive", FP32, 2 * n * n * n, 8 * n * n * n, Roof{8 * n * n * n / 4.8e12, Memory, 0.25, 66.9 / 4.8, 1.2e12}},
		{"tile 16", FP32, 4e12, 1e12, Roof{1e12 / 4.8e12, Memory, 4, 66.9 / 4.8, 19.2e12}},
		{"each matrix once", BF16, 2 * n * n * n, 6 * n * n, Roof{2 * n * n * n / 989.4e12, Compute, n / 3.0, 989.4 / 4.8,
			989.4e12}},
		{"at the ridge", FP32, 66.9e12, 4.8e12, Roof{1, Compute, 66.9 / 4.8, 66.9 / 4.8, 66.9e12}},
		{"copy", FP32, 0, 4.8e12, Roof{1, Memory, 0, 66.9 / 4.8, 0}},
		{"in registers", FP32, 66.9e12, 0, Roof{1, Compute, math.Inf(1), 66.9 / 4.8, 66.9e12}},
		{"nothing", FP32, 0, 0, Roof{0, Memory, 0, 66.9 / 4.8, 0}},
	} {
		got, err := Roofline(h200, c.r, c.ops, c.bytes)
		if err != nil || got.Bound != c.want.Bound {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
		for _, v := range [][2]float64{{got.Seconds, c.want.Seconds}, {got.Intensity, c.want.Intensity},
			{got.Ridge, c.want.Ridge}, {got.Attain, c.want.Attain}} {
			if v[0] != v[1] && !(math.Abs(v[0]-v[1]) <= 1e-12*math.Abs(v[1])) {
				t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
			}
		}
	}
	for _, c := range []struct {
		m          *Model
		r          Rate
		ops, bytes float64
		want       string
	}{
		{lookup(t, "t4"), FP8, 1, 1, "t4 has no fp8 rate"},
		{lookup(t, "sm_90"), FP32, 1, 1, "sm_90 is an architecture and has no peak rates"},
		{h200, numRates, 1, 1, "no Rate(8) rate"},
		{h200, FP32, -1, 1, "-1 operations"},
		{h200, FP32, 1, math.NaN(), "NaN bytes"},
		{h200, FP32, math.Inf(1), 1, "+Inf operations"},
	} {
		if got, err := Roofline(c.m, c.r, c.ops, c.bytes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Roofline(%s, %v, %v, %v) = %+v, %v, want an error with %q", c.m.Name, c.r, c.ops, c.bytes, got, err,
				c.want)
		}
	}
}

func TestWaves(t *testing.T) {
	h200 := lookup(t, "h200")
	for _, c := range []struct {
		grid, perSM int
		want        Waves
	}{
		{132, 1, Waves{132, 1, 132, 1}},
		{133, 1, Waves{132, 2, 1, 133.0 / 264}},
		{264, 1, Waves{132, 2, 132, 1}},
		{1, 8, Waves{1056, 1, 1, 1.0 / 1056}},
		{4096, 8, Waves{1056, 4, 928, 4096.0 / 4224}},
		{math.MaxInt, 32, Waves{4224, math.MaxInt/4224 + 1, math.MaxInt % 4224, 1}},
	} {
		got, err := h200.Waves(c.grid, c.perSM)
		if err != nil || got != c.want {
			t.Errorf("Waves(%d, %d) = %+v, %v, want %+v", c.grid, c.perSM, got, err, c.want)
		}
	}
	for _, c := range []struct {
		m           *Model
		grid, perSM int
		want        string
	}{
		{h200, 0, 1, "want at least 1"},
		{h200, 1, 0, "0 blocks on an SM of sm_90: want 1 to 32"},
		{h200, 1, math.MaxInt, "want 1 to 32"},
		{lookup(t, "sm_80"), 1, 1, "no number of SMs"},
	} {
		if _, err := c.m.Waves(c.grid, c.perSM); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Waves(%d, %d) on %s: got %v, want an error with %q", c.grid, c.perSM, c.m.Name, err, c.want)
		}
	}
}
