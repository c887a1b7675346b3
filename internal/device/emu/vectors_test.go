package emu

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/ptx"
)

// hopperCases returns all recorded cases. Their names are unique.
func hopperCases() (all []*hopperCase) {
	for _, m := range matrixCases() {
		all = append(all, m.build())
	}
	return append(all, tensorCases()...)
}

// matrixCases returns cases for wgmma.mma_async with every type and every supported layout.
func matrixCases() (all []*matrixCase) {
	add := func(m matrixCase) {
		m.seed = uint64(len(all) + 1)
		all = append(all, &m)
	}
	// kMajor and mnMajor return layouts of both operands. Their strides are chosen so that a
	// misinterpreted descriptor selects different elements.
	kMajor := func(swizzle int) [2]layout {
		pitch := map[int]int{0: 128, 32: 256, 64: 512, 128: 1024}[swizzle]
		return [2]layout{
			{start: 1024, leading: 2048 + 128, stride: pitch, swizzle: swizzle},
			{start: 2048, leading: 4096 + 256, stride: 2 * pitch, swizzle: swizzle},
		}
	}
	mnMajor := func(swizzle int) [2]layout {
		return [2]layout{
			{start: 1024, leading: 4096, stride: 1024, swizzle: swizzle},
			{start: 0, leading: 2048, stride: 4096, swizzle: swizzle},
		}
	}
	kinds := []struct {
		d, a, b string
		k       int
	}{
		{"f32", "f16", "f16", 16}, {"f16", "f16", "f16", 16}, {"f32", "bf16", "bf16", 16}, {"f32", "tf32", "tf32", 8},
		{"f32", "e4m3", "e4m3", 32}, {"f32", "e5m2", "e4m3", 32}, {"f16", "e4m3", "e5m2", 32},
		{"s32", "s8", "s8", 32}, {"s32", "u8", "s8", 32}, {"s32", "b1", "b1", 256},
	}
	for n, k := range kinds {
		base := matrixCase{n: 16, k: k.k, d: k.d, a: k.a, b: k.b}
		name := strings.Join([]string{k.d, k.a, k.b}, " ")
		for _, swizzle := range []int{0, 32, 64, 128} {
			m := base
			m.name, m.layouts = fmt.Sprintf("%s K-major, swizzle %d", name, swizzle), [][2]layout{kMajor(swizzle)}
			m.signs = [2]int{n & 1, n >> 1 & 1}
			if n > 2 && swizzle%64 != 0 {
				continue // layouts depend on bytes only, so two swizzles suffice for the other types
			}
			add(m)
			if k.a == "f16" && k.d == "f32" || k.a == "bf16" {
				m.layouts = [][2]layout{mnMajor(swizzle)}
				m.name, m.trans = fmt.Sprintf("%s MN-major, swizzle %d", name, swizzle), [2]int{1, 1}
				add(m)
			}
		}
		m := base
		m.n, m.registers, m.layouts = 24, true, [][2]layout{kMajor(128)}
		if k.d == "s32" {
			m.n = 32
		}
		m.name = name + " A in registers"
		add(m)
		m = base
		m.n, m.fresh, m.numbers = 64, true, sizes
		if k.k == 256 || k.d == "s32" {
			m.suffix = map[bool]string{true: "satfinite"}[k.a != "b1"]
		}
		m.layouts = [][2]layout{{{leading: 128, stride: 256}, {leading: 128, stride: 256}}}
		m.name = name + " inexact"
		add(m)
		m.fresh = false
		m.name += ", accumulate"
		for step := range 3 {
			at := 2048 * (step + 1)
			m.layouts = append(m.layouts,
				[2]layout{{start: at, leading: 128, stride: 256}, {start: at, leading: 128, stride: 256}})
		}
		add(m)
	}
	// The second K step starts within the rows of a swizzled matrix.
	add(matrixCase{name: "second K step", n: 8, k: 16, d: "f32", a: "bf16", b: "bf16", layouts: [][2]layout{{
		{start: 32, leading: 16, stride: 1024, swizzle: 128}, {start: 32, leading: 16, stride: 512, swizzle: 64}}}})
	// Swizzle patterns that do not start at a multiple of 1024 bytes, with and without base offset.
	for base := range 2 {
		add(matrixCase{name: fmt.Sprintf("unaligned start, base offset %d", base), n: 8, k: 16, d: "f32", a: "bf16",
			b: "bf16", layouts: [][2]layout{{
				{start: 128, leading: 16, stride: 1024, swizzle: 128, base: base}, {start: 128, leading: 16, stride: 1024,
					swizzle: 128, base: base}}}})
	}
	add(matrixCase{name: "largest", n: 256, k: 16, d: "f32", a: "bf16", b: "bf16", fresh: true, numbers: sizes,
		layouts: [][2]layout{{
			{stride: 1024, swizzle: 128}, {stride: 512, leading: 16, swizzle: 64}}}})
	for _, k := range kinds {
		if k.d == "s32" {
			continue
		}
		m := matrixCase{n: 64, k: k.k, d: k.d, a: k.a, b: k.b, fresh: true, numbers: subnormal}
		m.name = strings.Join([]string{k.d, k.a, k.b, "subnormal"}, " ")
		m.layouts = [][2]layout{{{leading: 128, stride: 256}, {leading: 128, stride: 256}}}
		add(m)
		m.fresh = false
		m.name += ", accumulate"
		add(m)
	}
	return all
}

// tensorBox is a box that a case copies with TMA.
type tensorBox struct {
	name    string
	elem    ptx.Type
	dims    []int
	strides []int
	box     []int
	swizzle int
	at      []int
	to      int // offset in shared memory
}

// tensorCases returns cases for TMA loads and stores.
func tensorCases() []*hopperCase {
	return boxCases([]tensorBox{
		{"1d", ptx.U8, []int{3000}, nil, []int{256}, 0, []int{80}, 0},
		{"2d", ptx.BF16, []int{200, 40}, []int{416}, []int{64, 8}, 0, []int{32, 5}, 128},
		{"2d, swizzle 128", ptx.BF16, []int{200, 40}, []int{416}, []int{64, 24}, 128, []int{32, 5}, 1024},
		{"2d, swizzle 64", ptx.F16, []int{200, 40}, []int{416}, []int{32, 24}, 64, []int{32, 5}, 1024},
		{"2d, swizzle 32", ptx.U16, []int{200, 40}, []int{416}, []int{16, 24}, 32, []int{32, 5}, 1024},
		{"2d, swizzle 128, unaligned", ptx.BF16, []int{200, 40}, []int{416}, []int{64, 24}, 128, []int{32, 5}, 384},
		{"2d, short rows of swizzle 128", ptx.BF16, []int{200, 40}, []int{416}, []int{16, 24}, 128, []int{32, 5}, 1024},
		{"2d, short rows of swizzle 64", ptx.BF16, []int{200, 40}, []int{416}, []int{8, 24}, 64, []int{32, 5}, 1024},
		{"2d, past the end", ptx.F32, []int{50, 20}, []int{208}, []int{32, 16}, 128, []int{40, 10}, 0},
		{"2d, past the end, no swizzle", ptx.F32, []int{49, 20}, []int{208}, []int{32, 16}, 0, []int{40, 10}, 0},
		{"2d, past the end, bytes", ptx.U8, []int{77, 20}, []int{112}, []int{64, 16}, 64, []int{48, 10}, 0},
		{"2d, past the end, halves", ptx.BF16, []int{75, 20}, []int{160}, []int{16, 16}, 32, []int{64, 10}, 0},
		{"2d, before the start", ptx.S32, []int{50, 20}, []int{208}, []int{32, 16}, 0, []int{-8, -3}, 0},
		{"2d, fully out of bounds", ptx.F32, []int{50, 20}, []int{208}, []int{32, 16}, 0, []int{52, 0}, 0},
		{"tf32", ptx.TF32, []int{60, 20}, []int{240}, []int{32, 16}, 128, []int{4, 1}, 0},
		{"3d", ptx.F64, []int{20, 6, 5}, []int{160, 960}, []int{8, 4, 3}, 64, []int{4, 4, 3}, 2048},
		{"4d", ptx.U8, []int{64, 6, 5, 4}, []int{80, 480, 2400}, []int{32, 3, 2, 2}, 32, []int{-16, 2, 4, 1}, 512},
		{"5d", ptx.U64, []int{6, 5, 4, 3, 3}, []int{48, 240, 960, 2880}, []int{4, 3, 2, 2, 2}, 0, []int{2, 3, -1, 2, 1},
			0},
	})
}

// modeCases returns cases for the modes of TMA whose output was not recorded: NaNs outside of the
// tensor, steps, interleaved slices, and im2col mode.
func modeCases() []*hopperCase {
	return append(im2colCases(), boxCases([]tensorBox{
		{"2d, past the end, filled with NaNs", ptx.F32, []int{50, 20}, []int{208}, []int{32, 16}, 128, []int{40, 10}, 0},
		{"2d, before the start, filled with NaNs", ptx.F16, []int{50, 20}, []int{208}, []int{32, 16}, 64, []int{-8, -3}, 0},
		{"2d, bf16, filled with NaNs", ptx.BF16, []int{50, 20}, []int{208}, []int{32, 16}, 0, []int{-8, 10}, 0},
		{"2d, tf32, filled with NaNs", ptx.TF32, []int{50, 20}, []int{208}, []int{32, 16}, 128, []int{40, 10}, 0},
		{"1d, f64, filled with NaNs", ptx.F64, []int{50}, nil, []int{32}, 0, []int{40}, 0},
		{"2d, steps 1x3", ptx.BF16, []int{200, 40}, []int{416}, []int{64, 25}, 128, []int{32, 5}, 1024},
		{"2d, steps 4x2", ptx.F32, []int{50, 20}, []int{208}, []int{32, 16}, 0, []int{40, 9}, 0},
		{"3d, steps 1x2x3, past the end, filled with NaNs", ptx.F64, []int{20, 6, 5}, []int{160, 960}, []int{8, 4, 5}, 64,
			[]int{4, 3, 1}, 2048},
		{"3d, steps 1x8x2, before the start", ptx.U8, []int{64, 30, 5}, []int{80, 2400}, []int{32, 20, 5}, 32,
			[]int{-16, -3, -1}, 512},
		{"4d, interleave 16", ptx.F16, []int{16, 4, 3, 2}, []int{256, 1024, 3072}, []int{5, 2, 3, 1}, 0,
			[]int{9, 1, 0, 1}, 0},
		{"4d, interleave 32, past the end", ptx.U8, []int{7, 4, 3, 2}, []int{224, 896, 2688}, []int{5, 3, 2, 2}, 32,
			[]int{4, 2, 2, 1}, 1024},
		{"3d, interleave 16, before the start, filled with NaNs", ptx.F32, []int{9, 4, 3}, []int{144, 576}, []int{8, 4, 3}, 0,
			[]int{-2, -1, 1}, 0},
	})...)
}

// im2colCases returns loads in im2col mode.
func im2colCases() (all []*hopperCase) {
	for n, c := range []struct {
		name        string
		tensor      ptx.TensorMap
		at, offsets []int
	}{
		{"3d", ptx.TensorMap{Element: ptx.BF16, Dims: []int{32, 20, 3}, Strides: []int{64, 1280}, Box: []int{16, 30},
			Lower: []int{-2}, Upper: []int{-3}}, []int{8, 10, 0}, []int{4}},
		{"4d, swizzle 128", ptx.TensorMap{Element: ptx.F32, Dims: []int{32, 4, 5, 3}, Strides: []int{128, 512, 2560},
			Box: []int{32, 40}, Swizzle: 128, Lower: []int{-1, -1}, Upper: []int{-1, -1}}, []int{0, 2, 3, 1}, []int{2, 0}},
		{"4d, stride 2, past the end, filled with NaNs", ptx.TensorMap{Element: ptx.F16, Dims: []int{24, 9, 7, 2},
			Strides: []int{48, 432, 3024}, Box: []int{32, 35}, Swizzle: 64, Steps: []int{1, 2, 3, 1}, Lower: []int{-1, -2},
			Upper: []int{0, 1}, FillNaN: true}, []int{8, 3, 1, 0}, []int{1, 2}},
		{"4d, step of the images", ptx.TensorMap{Element: ptx.U8, Dims: []int{16, 5, 5, 8}, Strides: []int{16, 80, 400},
			Box: []int{16, 100}, Steps: []int{1, 1, 1, 2}, Lower: []int{0, 0}, Upper: []int{0, 0}}, []int{0, 4, 4, 1},
			[]int{0, 0}},
		{"5d", ptx.TensorMap{Element: ptx.U32, Dims: []int{8, 4, 3, 5, 2}, Strides: []int{32, 128, 384, 1920},
			Box: []int{4, 50}, Steps: []int{1, 1, 2, 1, 1}, Lower: []int{-1, 0, -1}, Upper: []int{0, 1, -2}},
			[]int{4, 3, 2, 1, 0}, []int{1, 0, 2}},
	} {
		all = append(all, &hopperCase{name: "load im2col " + c.name, text: loadBox(&c.tensor, c.at, c.offsets, 0),
			threads: 32, shared: boxShared, in: noise(uint64(200+n), 16<<10), out: boxShared, tensor: &c.tensor})
	}
	return all
}

// boxShared is the size of the shared memory of cases that copy boxes.
const boxShared = 8 << 10

// commas joins numbers with commas.
func commas(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// loadBox returns a kernel that loads a box to offset to of shared memory, with offsets in im2col
// mode, and writes all shared memory to the output.
func loadBox(tm *ptx.TensorMap, at, offsets []int, to int) string {
	mode, last := "tile", ""
	if tm.Im2col() {
		mode, last = "im2col", ", {"+commas(offsets)+"}"
	}
	return kernel("", fillShared(boxShared, 32)+fmt.Sprintf(`	.shared .align 8 .b64 bar;
	setp.ne.u32 %%q0, %%t, 0;
	@%%q0 bra READY;
	mbarrier.init.shared.b64 [bar], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 _, [bar], %d;
	mov.u32 %%a, s;
	cp.async.bulk.tensor.%dd.shared::cluster.global.%s.mbarrier::complete_tx::bytes [%%a+%d], [%%map, {%s}], [bar]%s;
READY:	bar.sync 0;
WAIT:	mbarrier.try_wait.parity.shared.b64 %%q2, [bar], 0;
	@!%%q2 bra WAIT;
`, tm.BoxBytes(), len(tm.Dims), mode, to, commas(at), last)+dumpShared(boxShared, 32), true)
}

// boxCases returns a load of each box, and a store of those that can be stored.
func boxCases(boxes []tensorBox) (all []*hopperCase) {
	for n, b := range boxes {
		tm := &ptx.TensorMap{Element: b.elem, Dims: b.dims, Strides: b.strides, Box: b.box, Swizzle: b.swizzle,
			FillNaN: strings.HasSuffix(b.name, "filled with NaNs")}
		if _, steps, ok := strings.Cut(b.name, "steps "); ok {
			steps, _, _ = strings.Cut(steps, ",")
			for step := range strings.SplitSeq(steps, "x") {
				tm.Steps = append(tm.Steps, int(step[0]-'0'))
			}
		}
		if _, slice, ok := strings.Cut(b.name, "interleave "); ok {
			fmt.Sscan(slice[:2], &tm.Interleave)
		}
		in := noise(uint64(100+n), 16<<10)
		if b.elem == ptx.TF32 {
			in = tf32Elements(seeded(uint64(100 + n)))
		}
		all = append(all,
			&hopperCase{name: "load " + b.name, text: loadBox(tm, b.at, nil, b.to), threads: 32, shared: boxShared,
				in: in, out: boxShared, tensor: tm})
		if b.elem == ptx.TF32 || slices.Min(b.at) < 0 { // these boxes cannot be stored
			continue
		}
		store := fillShared(boxShared, 32) + fmt.Sprintf(`	setp.ne.u32 %%q0, %%t, 0;
	@%%q0 bra DONE;
	mov.u32 %%a, s;
	cp.async.bulk.tensor.%dd.global.shared::cta.tile.bulk_group [%%map, {%s}], [%%a+%d];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
DONE:
`, len(b.dims), commas(b.at), b.to)
		all = append(all,
			&hopperCase{name: "store " + b.name, text: kernel("", store, true), threads: 32, shared: boxShared, in: in,
				out: 16 << 10, tensor: tm, store: true})
	}
	return all
}

// tf32Elements returns float32 numbers, many of them halfway between two tf32 numbers, and special
// values: infinities, NaNs, and the largest and smallest magnitudes.
func tf32Elements(rng *rand.Rand) []byte {
	b := elements(rng, 16<<10, "f32", sizes)
	special := []uint32{0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001, 0x7f7fffff, 0xff7fefff, 0x00000001, 0x00001000,
		0x80003000, 0x00001001}
	for at := 0; at < len(b); at += 4 {
		word := binary.LittleEndian.Uint32(b[at:])
		switch {
		case at%20 == 0:
			word = word&^0x1fff | 0x1000
		case at%28 == 4:
			word = special[at/28%len(special)]
		}
		binary.LittleEndian.PutUint32(b[at:], word)
	}
	return b
}

const vectorFile = "testdata/hopper-h200.txt"

// TestHopperVectors checks that wgmma and TMA in the emulator give the same bytes as an H200. If
// the machine has a GPU, the cases also run there. TILEWORK_CAPTURE names a folder to which the
// GPU's outputs and the lines of vectorFile are written.
func TestHopperVectors(t *testing.T) {
	captured := map[string]string{}
	if text, err := os.ReadFile(vectorFile); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, sum, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
				captured[name] = sum
			}
		}
	}
	var gpu device.Device
	if d, err := cuda.Open(0); err == nil {
		gpu = d
		defer d.Close()
	} else if os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
		t.Fatal(err)
	}
	folder := os.Getenv("TILEWORK_CAPTURE")
	emulated := open(t, Options{Seed: 1})
	for n, c := range hopperCases() {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.run(t, emulated)
			if err != nil {
				t.Error(err)
			} else if digest(got) != captured[c.name] {
				t.Errorf("the emulator's output differs from the recorded digest %q", captured[c.name])
			}
			if gpu == nil {
				return
			}
			want, err := c.run(t, gpu)
			if err != nil {
				t.Fatalf("on the GPU: %v", err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the emulator's output differs from the GPU's")
			}
			if folder != "" {
				name := filepath.Join(folder, fmt.Sprintf("%03d", n))
				err := errors.Join(os.WriteFile(name+".bin", want, 0o666),
					os.WriteFile(name+".txt", []byte(c.name+": "+digest(want)+"\n"), 0o666))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestGPUTensorModes checks that modes of TMA in the emulator give the same bytes as a GPU.
func TestGPUTensorModes(t *testing.T) {
	emulated := open(t, Options{Seed: 1})
	gpu, err := cuda.Open(0)
	switch {
	case err == nil:
		defer gpu.Close()
	case os.Getenv("TILEWORK_REQUIRE_GPU") != "":
		t.Fatal(err)
	}
	for _, c := range modeCases() {
		got, err := c.run(t, emulated)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if gpu == nil {
			continue
		}
		want, err := c.run(t, gpu)
		if err != nil {
			t.Errorf("%s on the GPU: %v", c.name, err)
		} else if !bytes.Equal(got, want) {
			at := 0
			for got[at] == want[at] {
				at++
			}
			at &^= 7
			t.Errorf("%s: got % x from byte %d on, the GPU gives % x", c.name, got[at:][:16], at, want[at:][:16])
		}
	}
}

// digest returns the first 8 bytes of the SHA-256 of b in hexadecimal.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
