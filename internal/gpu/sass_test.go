package gpu

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
	"tilework/internal/testkit"
	"tilework/ptx"
)

// TestSumsAwaited: in what ptxas makes of float64's texts no sum is begun before the one that it adds to
// is there. Releases from 12.4 to 13.0 leave that wait out of some loops.
func TestSumsAwaited(t *testing.T) {
	assemble := ptxas.Assembler(t)
	for _, s := range kernel.MMA.Tiles {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			for name, p := range testkit.Layouts(t, dtype.F64, 128, 128, 256) {
				if kernel.MMA.Check(p, s, kernel.Align{}, nil) != nil {
					return
				}
				file := assemble(kernel.MMA, kernel.MMA.For(kernel.MMA.Config(p, s), ptx.Target{SM: 90, Suffix: "a"}))
				if file == "" {
					continue
				}
				code := machineCode(t, file)
				if !slices.ContainsFunc(code, func(s sass) bool { return s.op() == opDMMA }) {
					t.Fatalf("%s: no sum is found in %d instructions", name, len(code))
				}
				for i, early := range earlySums(code) {
					t.Errorf("%s, %#x: %s", name, i*16, early)
				}
			}
		})
	}
}

// machineCode is the code of a file's one kernel.
func machineCode(t *testing.T, file string) []sass {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(data[20:], uint32(elf.EV_CURRENT)) // the release, in older files
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, ".text.") {
			continue
		}
		code := make([]sass, s.Size/16)
		if err := binary.Read(s.Open(), binary.LittleEndian, code); err != nil {
			t.Fatal(err)
		}
		return code
	}
	t.Fatalf("%s has no code", file)
	return nil
}

// sass is an instruction of sm_90, of which some fields are known from what nvdisasm says of many.
type sass struct{ Lo, Hi uint64 }

const (
	opDMMA, opBRA, opEXIT = 0x23f, 0x947, 0x94d
	always                = 7  // the predicate that is true
	settled               = 64 // cycles behind which ptxas itself reads a sum without a wait; 35 are too few on an H200
)

func (s sass) op() uint64          { return s.Lo & 0xfff }
func (s sass) predicate() uint64   { return s.Lo >> 12 & 15 }
func (s sass) sum() uint64         { return s.Lo >> 16 & 0xff } // the first register of what is written
func (s sass) addsTo() uint64      { return s.Hi & 0xff }
func (s sass) cycles() int         { return int(s.Hi >> 41 & 15) } // until the next instruction
func (s sass) barrier() uint64     { return s.Hi >> 46 & 7 }       // that the result raises, of six, or none
func (s sass) waits(b uint64) bool { return b < 6 && s.Hi>>(52+b)&1 != 0 }

// target is how many instructions behind the next one a branch goes on.
func (s sass) target() int { return int(int64(s.Lo)>>34<<8|int64(s.Lo>>16&0xff)) / 4 }

// earlySums says which instructions are reached, by whatever way, before the sum that they add to is known to be
// there: neither is its barrier waited for, nor has it had time.
func earlySums(code []sass) map[int]string {
	early := make(map[int]string)
	for i, from := range code {
		if from.op() != opDMMA {
			continue
		}
		soonest := make(map[int]int) // an instruction's, in cycles behind from
		var follow func(at, cycles int)
		follow = func(at, cycles int) {
			if at < 0 || at >= len(code) || cycles >= settled {
				return
			}
			if was, seen := soonest[at]; seen && was <= cycles {
				return
			}
			soonest[at] = cycles
			now := code[at]
			cycles += max(now.cycles(), 1)
			switch {
			case now.waits(from.barrier()):
			case now.op() == opDMMA && now.addsTo() == from.sum():
				early[at] = fmt.Sprintf("R%d is added to %d cycles behind %#x, which writes it", from.sum(), soonest[at], i*16)
			case now.op() == opEXIT && now.predicate() == always:
			case now.op() == opBRA:
				follow(at+1+now.target(), cycles)
				if now.predicate() != always {
					follow(at+1, cycles)
				}
			default:
				follow(at+1, cycles)
			}
		}
		follow(i+1, max(from.cycles(), 1))
	}
	return early
}

// TestEarlySums: the wait is missed where the loop that begins with a sum ends with it, and there alone.
func TestEarlySums(t *testing.T) {
	dmma := func(sum, waits, cycles uint64) sass {
		return sass{always<<12 | sum<<16 | opDMMA, sum | cycles<<41 | 5<<46 | waits<<52}
	}
	unsaid := func(sum uint64) sass { // with no barrier, and bits behind the waits that are none
		return sass{always<<12 | sum<<16 | opDMMA, sum | 1<<41 | 7<<46 | 15<<58}
	}
	other := func(cycles uint64) sass { return sass{always << 12, cycles<<41 | 7<<46} }
	back := func(n int64) sass { // to n instructions before it
		offset := uint64(-(n + 1) * 4)
		return sass{offset>>8<<34 | offset&0xff<<16 | opBRA, offset>>38&0x3ffff | 5<<41 | 7<<46}
	}
	exit := sass{always<<12 | opEXIT, 5<<41 | 7<<46}
	for _, x := range []struct {
		name string
		code []sass
		want int
	}{
		{"a wait in the loop's first", []sass{dmma(8, 1<<5, 1), dmma(16, 0, 1), dmma(8, 1<<5, 1), other(11), back(4), exit}, 0},
		{"none there", []sass{dmma(8, 1<<1, 1), dmma(16, 0, 1), dmma(8, 1<<5, 1), other(11), back(4), exit}, 1},
		{"time enough", []sass{dmma(8, 0, 1), other(15), other(15), other(15), other(15), back(5), exit}, 0},
		{"another sum", []sass{dmma(8, 0, 1), dmma(16, 0, 1), exit}, 0},
		{"nothing to wait for", []sass{unsaid(8), unsaid(8), exit}, 1},
		{"at once", []sass{dmma(8, 0, 1), dmma(8, 0, 1), exit}, 1},
	} {
		if got := earlySums(x.code); len(got) != x.want {
			t.Errorf("%s: %v, want %d", x.name, got, x.want)
		}
	}
}
