package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
)

// TestGuide compares the table with the CUDA C++ Programming Guide 13, "Technical Specifications
// per Compute Capability", and for 10.3 and 12.1, which the guide omits, with cuda_occupancy.h of
// CUDA 13.
func TestGuide(t *testing.T) {
	guide := []struct{ sm, blocks, warps, threads, sharedKB, blockKB int }{
		{75, 16, 32, 1024, 64, 64},
		{80, 32, 64, 2048, 164, 163},
		{86, 16, 48, 1536, 100, 99},
		{87, 16, 48, 1536, 164, 163},
		{89, 24, 48, 1536, 100, 99},
		{90, 32, 64, 2048, 228, 227},
		{100, 32, 64, 2048, 228, 227},
		{103, 32, 64, 2048, 228, 227},
		{110, 24, 48, 1536, 228, 227},
		{120, 24, 48, 1536, 100, 99},
		{121, 24, 48, 1536, 100, 99},
	}
	if len(guide) != len(arches) {
		t.Errorf("the test has %d architectures, the table has %d", len(guide), len(arches))
	}
	for _, want := range guide {
		a := archOf(t, want.sm)
		got := want
		got.blocks, got.warps, got.threads = a.MaxBlocksPerSM, a.MaxWarpsPerSM(), a.MaxThreadsPerSM
		got.sharedKB, got.blockKB = a.SharedPerSM>>10, a.SharedPerBlockOptIn>>10
		if got != want {
			t.Errorf("%v: got %+v, want %+v as in the guide", a, got, want)
		}
		if a.Title == "" || a.RegistersPerSM != 64<<10 || a.MaxRegsPerThread != 255 || a.MaxThreadsPerBlock != 1024 ||
			a.SharedPerBlock != 48<<10 || a.Banks != 32 || a.SectorBytes != 32 {
			t.Errorf("%v: got %+v, want the common limits of the guide", a, a)
		}
	}
	if _, err := Lookup("sm_70"); err == nil || !strings.Contains(err.Error(), "sm_70") ||
		!strings.Contains(err.Error(), "sm_121") {
		t.Errorf("sm_70: got %v, want an error that lists the architectures", err)
	}
}

// archOf returns the row of a compute capability, given as 90 for 9.0.
func archOf(t *testing.T, sm int) *Arch {
	t.Helper()
	m, err := Lookup(fmt.Sprintf("sm_%d", sm))
	if err != nil {
		t.Fatal(err)
	}
	return m.Arch
}

// letters formats the blocks and the binding resources in the notation of the tables below.
func letters(o Occupancy) string {
	s := fmt.Sprint(o.Blocks)
	for _, r := range o.Binding {
		s += map[Resource]string{Threads: "t", Registers: "r", Shared: "s", Blocks: "b"}[r]
	}
	return s
}

// TestCalculator compares the results with NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA
// 13.0, with an opt-in of the launch's shared memory): the number of blocks, and which of threads
// (t), registers (r), shared memory (s) and blocks (b) bind. A dash means no block.
func TestCalculator(t *testing.T) {
	launches := []Launch{
		{256, 2048, 0}, {1024, 8192, 32}, {256, 16384, 96}, {128, 33000, 168}, {384, 200000, 168},
		{100, 0, 40}, {33, 0, 24}, {256, 66048, 128}, {1024, 0, 65}, {512, 49152, 64},
	}
	answers := map[int]string{
		75:  "4t 1t  2r 1s  -   8t   16tb -   - 1s",
		80:  "8t 2tr 2r 3r  -   12r  32tb 2rs - 2r",
		86:  "6t 1t  2r 3rs -   12tr 16b  1s  - 2rs",
		87:  "6t 1t  2r 3r  -   12tr 16b  2rs - 2r",
		89:  "6t 1t  2r 3rs -   12tr 24tb 1s  - 2rs",
		90:  "8t 2tr 2r 3r  1rs 12r  32tb 2r  - 2r",
		100: "8t 2tr 2r 3r  1rs 12r  32tb 2r  - 2r",
		103: "8t 2tr 2r 3r  1rs 12r  32tb 2r  - 2r",
		110: "6t 1t  2r 3r  1rs 12tr 24tb 2r  - 2r",
		120: "6t 1t  2r 3rs -   12tr 24tb 1s  - 2rs",
		121: "6t 1t  2r 3rs -   12tr 24tb 1s  - 2rs",
	}
	for _, a := range arches {
		want := strings.Fields(answers[a.SM])
		if len(want) != len(launches) {
			t.Errorf("%v: the table has %d results for %d launches", a, len(want), len(launches))
			continue
		}
		for i, l := range launches {
			got := "-"
			if o, err := a.Occupancy(l); err == nil {
				got = letters(o)
			}
			if got != want[i] {
				t.Errorf("%v, %v: got %s, want %s as in the calculator", a, l, got, want[i])
			}
		}
	}
}

// TestDevice compares the results with those of a driver:
// cuOccupancyMaxActiveBlocksPerMultiprocessor of driver 580 on an H200, for kernels with various
// numbers of registers.
func TestDevice(t *testing.T) {
	hopper := archOf(t, 90)
	for _, c := range []struct {
		l    Launch
		want int
	}{
		{Launch{608, 0, 8}, 3},
		{Launch{704, 0, 8}, 2},
		{Launch{399, 15973, 26}, 4},
		{Launch{992, 17082, 26}, 2},
		{Launch{81, 0, 32}, 21},
		{Launch{640, 0, 32}, 3},
		{Launch{481, 0, 40}, 3},
		{Launch{876, 84400, 40}, 1},
		{Launch{96, 15249, 48}, 13},
		{Launch{416, 7818, 48}, 3},
		{Launch{202, 0, 56}, 5},
		{Launch{448, 0, 56}, 2},
		{Launch{224, 17747, 72}, 4},
		{Launch{704, 133897, 72}, 1},
		{Launch{160, 187645, 80}, 1},
		{Launch{253, 9652, 80}, 3},
		{Launch{32, 0, 96}, 20},
		{Launch{320, 0, 96}, 2},
		{Launch{56, 14531, 128}, 8},
		{Launch{284, 12461, 128}, 1},
		{Launch{70, 11841, 168}, 4},
		{Launch{224, 92846, 168}, 1},
		{Launch{96, 19437, 254}, 2},
		{Launch{233, 7995, 254}, 1},
	} {
		o, err := hopper.Occupancy(c.l)
		if err != nil || o.Blocks != c.want {
			t.Errorf("%v: got %d blocks (error %v), want %d as from the driver", c.l, o.Blocks, err, c.want)
		}
	}
}

// TestTextbook checks exercises with an SM of 48 KB, 2,048 threads and 16 blocks.
func TestTextbook(t *testing.T) {
	for _, c := range []struct {
		name                                    string
		threads, sharedBytes, blocks, registers int
		l                                       Launch
		want                                    string
	}{
		{"tile 16", 2048, 48 << 10, 16, 0, Launch{256, 2 << 10, 0}, "8t"},
		{"tile 32", 2048, 48 << 10, 16, 0, Launch{1024, 8 << 10, 0}, "2t"},
		{"tile 8", 2048, 48 << 10, 16, 0, Launch{64, 512, 0}, "16b"},
		{"half the threads", 1024, 48 << 10, 16, 0, Launch{256, 2 << 10, 0}, "4t"},
		{"large block", 2048, 48 << 10, 16, 0, Launch{256, 16 << 10, 0}, "3s"},
		{"registers", 2048, 48 << 10, 16, 64 << 10, Launch{256, 2 << 10, 40}, "6r"},
		{"two bind", 2048, 16 << 10, 16, 0, Launch{256, 2 << 10, 0}, "8ts"},
		{"no warps", 2048, 0, 0, 0, Launch{100, 1 << 20, 255}, "20t"},
		{"no rounding", 2048, 0, 0, 1000, Launch{10, 0, 33}, "3r"},
	} {
		a, err := Textbook(c.threads, c.sharedBytes, c.blocks, c.registers)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		o, err := a.Occupancy(c.l)
		if err != nil || letters(o) != c.want {
			t.Errorf("%s: got %s (error %v), want %s", c.name, letters(o), err, c.want)
		}
	}
	for _, c := range []struct {
		limits [4]int
		want   string
	}{
		{[4]int{0, 1, 1, 1}, "0 threads"},
		{[4]int{math.MaxInt, 1, 1, 1}, "threads"},
		{[4]int{1, -1, 1, 1}, "shared memory"},
		{[4]int{1, 1, -1, 1}, "blocks"},
		{[4]int{1, 1, 1, math.MaxInt / 8}, "registers"},
	} {
		if _, err := Textbook(c.limits[0], c.limits[1], c.limits[2], c.limits[3]); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("Textbook%v: got error %v, want one about %s", c.limits, err, c.want)
		}
	}
}

func TestLaunchErrors(t *testing.T) {
	hopper := archOf(t, 90)
	small, err := Textbook(256, 1024, 4, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a    *Arch
		l    Launch
		want string
	}{
		{hopper, Launch{0, 0, 0}, "a block with 0 threads: want at least 1"},
		{hopper, Launch{-5, 0, 0}, "a block with -5 threads: want at least 1"},
		{hopper, Launch{1089, 0, 0}, "a block with 1,089 (33×33) threads: want at most 1,024"},
		{hopper, Launch{1025, 0, 0}, "a block with 1,025 threads: want at most 1,024"},
		{hopper, Launch{32, -1, 0}, "-1 bytes of shared memory"},
		{hopper, Launch{32, 232449, 0}, "232,449 bytes of shared memory: want at most 232,448 on sm_90"},
		{hopper, Launch{32, 0, 256}, "256 registers: want at most 255 on sm_90"},
		{hopper, Launch{32, 0, -1}, "-1 registers"},
		{hopper, Launch{1024, 0, 65}, "too many registers for one block on sm_90"},
		{small, Launch{512, 0, 0}, "too many threads for one block on textbook SM: each block needs 512 threads; the SM " +
			"holds 256"},
		{small, Launch{32, 2048, 0}, "2,048 bytes of shared memory: want at most 1,024 on textbook SM"},
		{small, Launch{256, 0, 17}, "too many registers for one block on textbook SM: each block needs 256 × 17 = 4,352 " +
			"registers; the SM has 4,096"},
	} {
		_, err := c.a.Occupancy(c.l)
		if err == nil || !strings.Contains(err.Error()+" ", c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v on %v: got error %v, want %q", c.l, c.a, err, c.want)
		}
	}
}

func randomLaunch(r *rand.Rand, a *Arch) Launch {
	return Launch{1 + r.IntN(a.MaxThreadsPerBlock), r.IntN(a.SharedPerBlockOptIn + 1), r.IntN(a.MaxRegsPerThread + 1)}
}

// TestMonotone checks that a larger launch never gets more blocks, and that blocks never exceed the
// SM's resources.
func TestMonotone(t *testing.T) {
	r := testrand.New(t)
	for range 20000 {
		a := arches[r.IntN(len(arches))]
		l := randomLaunch(r, a)
		o, err := a.Occupancy(l)
		if err == nil {
			shared := o.Blocks * (l.SharedBytes + a.SharedReserved)
			if o.Blocks < 1 || o.Blocks > a.MaxBlocksPerSM || o.Warps > a.MaxWarpsPerSM() ||
				o.Threads*l.RegsPerThread > a.RegistersPerSM ||
				l.SharedBytes > 0 && shared > a.SharedPerSM || o.Fraction <= 0 || o.Fraction > 1 || len(o.Binding) == 0 {
				t.Fatalf("%v on %v: %+v exceeds the SM", l, a, o)
			}
		}
		more := l
		switch r.IntN(3) {
		case 0:
			more.Threads += 1 + r.IntN(64)
		case 1:
			more.SharedBytes += 1 + r.IntN(4096)
		case 2:
			more.RegsPerThread += 1 + r.IntN(16)
		}
		if p, errMore := a.Occupancy(more); errMore == nil && (err != nil || p.Blocks > o.Blocks) {
			t.Fatalf("%v: %v has %d blocks, but %v has %d (error %v)", a, l, o.Blocks, more, p.Blocks, err)
		}
	}
}

// TestLargest checks that the result suffices and that one more does not.
func TestLargest(t *testing.T) {
	r := testrand.New(t)
	for range 3000 {
		a := arches[r.IntN(len(arches))]
		l := randomLaunch(r, a)
		blocks := 1 + r.IntN(6)
		for _, c := range []struct {
			r Resource
			v *int
		}{{Threads, &l.Threads}, {Registers, &l.RegsPerThread}, {Shared, &l.SharedBytes}} {
			was := *c.v
			most, ok := a.Largest(l, c.r, blocks)
			fits := func(v int) bool {
				*c.v = v
				o, err := a.Occupancy(l)
				return err == nil && o.Blocks >= blocks
			}
			if !ok {
				most = 0 // not a number of threads, and unknown registers
				if c.r == Shared && fits(0) || c.r != Shared && fits(1) {
					t.Fatalf("%v: %d blocks of %v fit with less %s, but Largest found no amount", a, blocks, l, c.r)
				}
			} else if !fits(most) || fits(most+1) {
				t.Fatalf("%v: got %d as the largest %s for %d blocks of %v", a, most, c.r, blocks, l)
			}
			*c.v = was
		}
	}
	if a, err := Textbook(2048, 0, 16, 0); err != nil {
		t.Error(err)
	} else if v, ok := a.Largest(Launch{Threads: 256}, Shared, 2); ok {
		t.Errorf("unlimited shared memory: got %d, want none", v)
	}
	if v, ok := arches[0].Largest(Launch{Threads: 256}, Blocks, 2); ok {
		t.Errorf("got %d blocks per block, want none", v)
	}
}

func TestText(t *testing.T) {
	course, err := Textbook(2048, 48<<10, 16, 0)
	if err != nil {
		t.Fatal(err)
	}
	hopper := archOf(t, 90)
	for _, c := range []struct {
		a    *Arch
		l    Launch
		want string
	}{
		{course, Launch{256, 2048, 0}, `
A block of 256 threads, 2,048 bytes of shared memory,
on a textbook SM with 2,048 threads, 49,152 bytes of shared memory, 16 blocks.

  threads        8 blocks   ← binds  each block needs 256 threads; the SM holds 2,048
  shared memory  24 blocks           each block needs 2,048 bytes; the SM has 49,152
  blocks         16 blocks           the SM holds at most 16 blocks, however small

8 blocks per SM, bound by threads: 2,048 threads of 2,048, occupancy 100 %.
While one block waits at a barrier, another can work.
`},
		{hopper, Launch{1000, 50000, 61}, `
A block of 1,000 threads, 50,000 bytes of shared memory, 61 registers per thread,
on an SM of sm_90 (Hopper) with 2,048 threads, 65,536 registers, 233,472 bytes of shared memory, 32 blocks.

  threads        2 blocks            each block of 1,000 threads needs 1,024, whole warps of 32; the SM holds 2,048
  registers      1 block    ← binds  each warp needs 32 × 61 = 1,952 registers, 2,048 in units of 256; each of the SM's 4 partitions has 16,384, so the SM holds 32 warps; a block has 32
  shared memory  4 blocks            each block needs 50,000 bytes and 1,024 for the system, 51,072 in units of 128; the SM has 233,472 (the kernel must request more than 49,152)
  blocks         32 blocks           the SM holds at most 32 blocks, however small

1 block per SM, bound by registers: 1,000 threads of 2,048, occupancy 48.83 %.
NVIDIA's tools count warps: 32 of 64, 50 %. The last warp of each block has 8 threads of 32.
Only one block fits: while its threads wait at a barrier, the SM is idle.
Two would fit with at most 512 threads per block, or with at most 32 registers per thread.
`},
	} {
		o, err := c.a.Occupancy(c.l)
		if err != nil {
			t.Error(err)
		} else if got := "\n" + o.Text(); got != c.want {
			t.Errorf("got:%s\nwant:%s", got, c.want)
		}
	}
}

// TestFraction checks that occupancy is the fraction of threads, and that only all threads are 100
// %.
func TestFraction(t *testing.T) {
	exercise, err := Textbook(1024, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	large, err := Textbook(99_999_999, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	turing, hopper := archOf(t, 75), archOf(t, 90)
	for _, c := range []struct {
		a       *Arch
		threads int
		want    string
		warps   float64
	}{
		{exercise, 800, "800 threads of 1,024, occupancy 78.12 %.", 800. / 1024},
		{turing, 800, "800 threads of 1,024, occupancy 78.12 %.", 25. / 32},
		{turing, 100, "800 threads of 1,024, occupancy 78.12 %.", 1},
		{turing, 33, "528 threads of 1,024, occupancy 51.56 %.", 1},
		{turing, 1023, "1,023 threads of 1,024, occupancy 99.9 %.", 1},
		{turing, 1024, "1,024 threads of 1,024, occupancy 100 %.", 1},
		{hopper, 1, "32 threads of 2,048, occupancy 1.562 %.", 0.5},
		{large, 7, "99,999,998 threads of 99,999,999, occupancy 99.99 %.", 99_999_998. / 99_999_999},
	} {
		o, err := c.a.Occupancy(Launch{Threads: c.threads})
		if err != nil {
			t.Fatal(err)
		}
		text := o.Text()
		if !strings.Contains(text, c.want) || o.WarpFraction != c.warps ||
			strings.Contains(text, "tools count warps") != (o.WarpFraction != o.Fraction) {
			t.Errorf("%d threads on %v: got warp fraction %v, want %q and %v\n%s", c.threads, c.a, o.WarpFraction, c.want,
				c.warps, text)
		}
	}
	r := testrand.New(t)
	for range 2000 {
		a := arches[r.IntN(len(arches))]
		o, err := a.Occupancy(randomLaunch(r, a))
		if err == nil && strings.Contains(o.Text(), "occupancy 100 %") != (o.Threads == a.MaxThreadsPerSM) {
			t.Fatalf("%d of %d threads:\n%s", o.Threads, a.MaxThreadsPerSM, o.Text())
		}
	}
}
