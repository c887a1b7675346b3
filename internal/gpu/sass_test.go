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
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
	"tilework/internal/gpu/sm90"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// TestSumsAwaited checks the machine code that ptxas generates for the float64 kernels: no DMMA may
// start before the DMMA that writes its accumulator has finished. ptxas 12.4 to 13.0 omits this
// wait in some loops. Without TILEWORK_FULL, the seed selects half of the layouts for each tile.
func TestSumsAwaited(t *testing.T) {
	assemble, seed := ptxas.Assembler(t), testrand.Seed(t)
	for _, s := range kernel.MMA.Tiles {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			for name, p := range testkit.Layouts(t, dtype.F64, 128, 128, 256) {
				if kernel.MMA.Check(p, s, kernel.Align{}, nil) != nil {
					return
				}
				if !testkit.Full() && !testrand.OneIn(2, seed, s, name) {
					continue
				}
				file := assemble(kernel.MMA, kernel.MMA.For(kernel.MMA.Config(p, s), ptx.Target{SM: 90, Suffix: "a"}))
				if file == "" {
					continue
				}
				code := machineCode(t, file)
				if !slices.ContainsFunc(code, func(s sass) bool { return s.op() == opDMMA }) {
					t.Fatalf("%s: no DMMA among %d instructions", name, len(code))
				}
				for i, early := range earlySums(code) {
					t.Errorf("%s, instruction at %#x: %s", name, i*16, early)
				}
			}
		})
	}
}

// TestDescriptorsUniform checks that ptxas computes the matrix descriptors of wgmma in uniform
// registers. Copies from other registers between the instructions of wgmma slow down the tensor
// cores, most of all for 8-bit floats.
func TestDescriptorsUniform(t *testing.T) {
	assemble := ptxas.Assembler(t)
	for _, x := range []struct {
		in, out dtype.Type
		tile    string
	}{
		{dtype.BF16, dtype.BF16, "128x256x64/2x64/4"},
		{dtype.I8, dtype.I32, "128x256x128/2x64/4"},
		{dtype.F8E4M3, dtype.F32, "128x128x128/4x32/6"},
		{dtype.BF16, dtype.BF16, "128x256x64/2x64/4s"},
		{dtype.F8E4M3, dtype.BF16, "128x256x128/2x64/4s"},
	} {
		t.Run(x.in.String()+" "+x.tile, func(t *testing.T) {
			t.Parallel()
			p, _, err := gemm.New(1, gemm.Dense(x.in, 256, 256), gemm.Dense(x.in, 256, 256).T(), 0,
				gemm.Dense(x.out, 256, 256), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := sm90.WGMMA.ParseTile(x.tile)
			if err != nil {
				t.Fatal(err)
			}
			file := assemble(sm90.WGMMA, sm90.WGMMA.Config(&p, s))
			if file == "" {
				return
			}
			code := machineCode(t, file)
			multiplies := func(s sass) bool {
				return s.op() == opHGMMA || s.op() == opIGMMA || s.op() == opQGMMA
			}
			first := slices.IndexFunc(code, multiplies)
			if first < 0 {
				t.Fatalf("no wgmma among %d instructions", len(code))
			}
			last, copies := first, 0
			for i, s := range code[first:] {
				if multiplies(s) {
					last = first + i
				}
			}
			for _, s := range code[first:last] {
				if s.op() == opR2UR {
					copies++
				}
			}
			if copies > 0 {
				t.Errorf("%d copies to uniform registers in the main loop", copies)
			}
		})
	}
}

// machineCode returns the machine code of the only kernel in a cubin file.
func machineCode(t *testing.T, file string) []sass {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Overwrite the ELF version, because older cubin files have another value there.
	binary.LittleEndian.PutUint32(data[20:], uint32(elf.EV_CURRENT))
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
	t.Fatalf("%s has no .text section", file)
	return nil
}

// sass is a machine instruction of sm_90. NVIDIA does not document the encoding. The fields below
// were inferred by comparing many instructions with the output of nvdisasm.
type sass struct{ Lo, Hi uint64 }

const (
	opDMMA, opBRA, opEXIT     = 0x23f, 0x947, 0x94d
	opHGMMA, opIGMMA, opQGMMA = 0x9f0, 0x9f1, 0x9f3 // wgmma by element type
	opR2UR                    = 0x2ca               // copies a register to a uniform register
	always                    = 7                   // the predicate PT, which is always true

	// settled is the number of cycles after a DMMA from which on ptxas itself reads the accumulator
	// without a wait. On an H200, 35 cycles are too few.
	settled = 64
)

// op returns the opcode.
func (s sass) op() uint64 { return s.Lo & 0xfff }

// predicate returns the number of the predicate register that guards the instruction.
func (s sass) predicate() uint64 { return s.Lo >> 12 & 15 }

// sum returns the first register that the instruction writes.
func (s sass) sum() uint64 { return s.Lo >> 16 & 0xff }

// addsTo returns the first register of the accumulator that a DMMA reads.
func (s sass) addsTo() uint64 { return s.Hi & 0xff }

// cycles returns the number of cycles until the next instruction of the warp issues.
func (s sass) cycles() int { return int(s.Hi >> 41 & 15) }

// barrier returns the scoreboard barrier, 0 to 5, that signals the result. Other values mean none.
func (s sass) barrier() uint64 { return s.Hi >> 46 & 7 }

// waits reports whether the instruction waits for scoreboard barrier b before it issues.
func (s sass) waits(b uint64) bool { return b < 6 && s.Hi>>(52+b)&1 != 0 }

// target returns the destination of a branch, in instructions from the one after the branch.
func (s sass) target() int { return int(int64(s.Lo)>>34<<8|int64(s.Lo>>16&0xff)) / 4 }

// earlySums returns a message for each DMMA that may start too early, by its index in code. It
// starts too early if some path from the DMMA that writes its accumulator neither waits for that
// DMMA's scoreboard barrier nor takes settled cycles.
func earlySums(code []sass) map[int]string {
	early := make(map[int]string)
	for i, from := range code {
		if from.op() != opDMMA {
			continue
		}
		soonest := make(map[int]int) // by instruction, the fewest cycles after from
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
				early[at] = fmt.Sprintf("adds to R%d %d cycles after the DMMA at %#x, which writes it",
					from.sum(), soonest[at], i*16)
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

// TestEarlySums checks that earlySums reports exactly the missing waits, among them one in a loop
// that begins and ends with a DMMA on the same accumulator.
func TestEarlySums(t *testing.T) {
	dmma := func(sum, waits, cycles uint64) sass {
		return sass{always<<12 | sum<<16 | opDMMA, sum | cycles<<41 | 5<<46 | waits<<52}
	}
	noBarrier := func(sum uint64) sass { // without a barrier; the bits above the waits are set
		return sass{always<<12 | sum<<16 | opDMMA, sum | 1<<41 | 7<<46 | 15<<58}
	}
	other := func(cycles uint64) sass { return sass{always << 12, cycles<<41 | 7<<46} }
	back := func(n int64) sass { // a branch to the instruction n before it
		offset := uint64(-(n + 1) * 4)
		return sass{offset>>8<<34 | offset&0xff<<16 | opBRA, offset>>38&0x3ffff | 5<<41 | 7<<46}
	}
	exit := sass{always<<12 | opEXIT, 5<<41 | 7<<46}
	for _, x := range []struct {
		name string
		code []sass
		want int
	}{
		{"the first instruction of the loop waits",
			[]sass{dmma(8, 1<<5, 1), dmma(16, 0, 1), dmma(8, 1<<5, 1), other(11), back(4), exit}, 0},
		{"the first instruction of the loop does not wait",
			[]sass{dmma(8, 1<<1, 1), dmma(16, 0, 1), dmma(8, 1<<5, 1), other(11), back(4), exit}, 1},
		{"enough cycles pass", []sass{dmma(8, 0, 1), other(15), other(15), other(15), other(15), back(5), exit}, 0},
		{"another accumulator", []sass{dmma(8, 0, 1), dmma(16, 0, 1), exit}, 0},
		{"no barrier to wait for", []sass{noBarrier(8), noBarrier(8), exit}, 1},
		{"the next instruction", []sass{dmma(8, 0, 1), dmma(8, 0, 1), exit}, 1},
	} {
		if got := earlySums(x.code); len(got) != x.want {
			t.Errorf("%s: earlySums returns %v, want %d entries", x.name, got, x.want)
		}
	}
}
