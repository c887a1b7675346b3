package dot

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
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
		parse := func(s string) uint64 {
			n, err := strconv.ParseUint(s, 16, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return n
		}
		list := func(s string, digits int, decode func(uint64) float64) (values []float64) {
			for ; s != ""; s = s[digits:] {
				values = append(values, decode(parse(s[:digits])))
			}
			return values
		}
		element, _ := ptx.ParseType(f[1])
		if f[0] == "mxf4" {
			element = ptx.E2M1
		}
		format := number.Of(element)
		p := &Product{Unit: Blackwell, A: format, B: format, Result: number.F32, Scale: number.UE8M0}
		if f[2] == "f16" {
			p.Result = number.F16
		}
		digits := format.Bits / 4
		a, b, c := list(f[3], digits, format.Decode), list(f[4], digits, format.Decode), p.Result.Decode(parse(f[5]))
		var sum float64
		if f[0] == "plain" {
			sum = p.Element(false, a, b, c)
		} else {
			if f[1] == "ue4m3" {
				p.Scale = number.UE4M3
			}
			sum = p.Scaled(false, a, b, c, list(f[6], 2, p.Scale.Decode), list(f[7], 2, p.Scale.Decode))
		}
		if got, want := p.Result.Encode(sum), parse(f[8]); got != want {
			t.Errorf("%s\tgot %x", line, got)
		}
		compared++
	}
	if compared < 390 {
		t.Errorf("%d sums compared, want more", compared)
	}
}
