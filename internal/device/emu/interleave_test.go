package emu

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/ptx"
)

// interleavedBoxes lists loads of boxes with interleaved slices. pieces are the numbers, in global
// memory, of the first pieces of 16 bytes that a Hopper GPU wrote to shared memory: more than a row
// of the box.
var interleavedBoxes = []struct {
	slice, row int
	strides    []int
	pieces     string
}{
	{16, 8, []int{64, 192, 384}, "28 29 30 31 32 33 34 35 32 33 34 35"},
	{16, 8, []int{16, 64, 384}, "25 26 27 28 29 30 31 32 26 27 28 29"},
	{16, 16, []int{64, 192, 384}, "28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 32 33 34 35 36 37 38 39"},
	{16, 16, []int{16, 64, 384}, "25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 26 27 28 29 30 31 32 33"},
	{32, 16, []int{128, 384, 768}, "56 57 58 59 60 61 62 63 65 64 67 66 69 68 71 70 72 73 74 75 76 77 78 79"},
	{32, 16, []int{32, 128, 768}, "50 51 52 53 54 55 56 57 59 58 61 60 63 62 65 64 66 67 68 69 70 71 72 73"},
	{32, 32, []int{128, 384, 768}, "56 57 58 59 60 61 62 63 65 64 67 66 69 68 71 70 72 73 74 75 76 77 78 79 " +
		"81 80 83 82 85 84 87 86 88 89 90 91 92 93 94 95 97 96 99 98 101 100 103 102"},
	{32, 32, []int{32, 128, 768}, "50 51 52 53 54 55 56 57 59 58 61 60 63 62 65 64 66 67 68 69 70 71 72 73 " +
		"75 74 77 76 79 78 81 80 82 83 84 85 86 87 88 89 91 90 93 92 95 94 97 96"},
}

// TestInterleavedSlices checks where the slices of interleaved tensors are in shared memory, in the
// emulator and on a GPU if the machine has one. The manuals do not say it.
func TestInterleavedSlices(t *testing.T) {
	devices := map[string]device.Device{"emulator": open(t, Options{Seed: 1})}
	if gpu, err := cuda.Open(0); err == nil {
		defer gpu.Close()
		devices["GPU"] = gpu
	} else if os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
		t.Fatal(err)
	}
	in := make([]byte, 16<<10)
	for at := 0; at < len(in); at += 2 {
		binary.LittleEndian.PutUint16(in[at:], uint16(at/16))
	}
	for _, b := range interleavedBoxes {
		tm := &ptx.TensorMap{Element: ptx.U16, Dims: []int{b.slice, 4, 3, 2}, Strides: b.strides, Box: []int{b.row, 4, 1, 1},
			Interleave: b.slice}
		if b.slice == 32 {
			tm.Swizzle = 32
		}
		c := &hopperCase{text: loadBox(tm, []int{0, 1, 0, 1}, nil, 0), threads: 32, shared: boxShared, in: in, out: boxShared,
			tensor: tm}
		for name, d := range devices {
			got, err := c.run(t, d)
			if err != nil {
				t.Errorf("%s: %+v: %v", name, b, err)
				continue
			}
			var pieces []string
			for at := range strings.Count(b.pieces, " ") + 1 {
				pieces = append(pieces, fmt.Sprint(binary.LittleEndian.Uint16(got[16*at:])))
			}
			if strings.Join(pieces, " ") != b.pieces {
				t.Errorf("%s: %+v: pieces %v", name, b, pieces)
			}
		}
	}
}
