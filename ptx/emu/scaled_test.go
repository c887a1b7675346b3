package emu

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"tilework/ptx"
)

// TestSumsAgainstModel compares sums of the emulator's Blackwell arithmetic with those of MMA-Sim,
// bit by bit.
func TestSumsAgainstModel(t *testing.T) {
	text, err := os.ReadFile("testdata/sums-mmasim.txt")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		number := func(s string) uint64 {
			n, err := strconv.ParseUint(s, 16, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return n
		}
		list := func(s string, digits int, decode func(uint64) float64) (values []float64) {
			for ; s != ""; s = s[digits:] {
				values = append(values, decode(number(s[:digits])))
			}
			return values
		}
		element, _ := ptx.ParseType(f[1])
		if f[0] == "mxf4" {
			element = ptx.E2M1
		}
		p := &matrixProduct{kind: ptx.F32, unit: blackwellUnit, minExpScale: minExponents[ptx.UE8M0],
			minExps: [2]int{minExponents[element], minExponents[element]}}
		if f[2] == "f16" {
			p.kind = ptx.F16
		}
		e, d := elementTypes[element], elementTypes[p.kind]
		a, b, c := list(f[3], e.bits/4, e.decode), list(f[4], e.bits/4, e.decode), d.decode(number(f[5]))
		var sum float64
		if f[0] == "plain" {
			sum = p.element(Hopper, a, b, c)
		} else {
			scale := decodeUE8M0
			if f[1] == "ue4m3" {
				scale, p.minExpScale = decodeUE4M3, minExponents[ptx.UE4M3]
			}
			decode := func(bits uint64) float64 { return scale(uint8(bits)) }
			sum = p.scaledElement(Hopper, a, b, c, list(f[6], 2, decode), list(f[7], 2, decode))
		}
		if got, want := d.encode(sum), number(f[8]); got != want {
			t.Errorf("%s\tgot %x", line, got)
		}
		compared++
	}
	if compared < 390 {
		t.Errorf("%d sums compared, want more", compared)
	}
}
