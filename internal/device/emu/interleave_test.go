package emu

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"tilework/internal/device/cuda"
	"tilework/ptx"
)

// interleaveReadings lists possible meanings of the strides of a tensor of channels, width, height
// and images if slices of channels are interleaved: bytes between pixels, rows, slices and images.
// The manuals do not say it. slice is the bytes of a slice.
var interleaveReadings = map[string]func(strides []int, slice, height int) (pixel, row, slices, image int){
	"rows, slices, images": func(s []int, slice, _ int) (int, int, int, int) { return slice, s[0], s[1], s[2] },
	"pixels, rows, images": func(s []int, _, height int) (int, int, int, int) { return s[0], s[1], s[1] * height, s[2] },
}

// TestGPUTensorInterleave loads boxes of a tensor with interleaved slices on a GPU and logs where
// each 16 bytes in shared memory come from, so that the emulator can do the same. It fails if no
// reading of the strides explains all of them.
func TestGPUTensorInterleave(t *testing.T) {
	gpu, err := cuda.Open(0)
	if err != nil {
		if os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer gpu.Close()
	in := make([]byte, 16<<10)
	for at := 0; at < len(in); at += 2 {
		binary.LittleEndian.PutUint16(in[at:], uint16(at/16))
	}
	const width, height = 4, 3
	explained := map[string]int{}
	cases := 0
	for _, slice := range []int{16, 32} {
		for _, channels := range []int{slice / 2, slice} { // one slice, two slices
			for _, strides := range [][]int{{slice * width, slice * width * height, 2 * slice * width * height},
				{slice, slice * width, 2 * slice * width * height}} {
				tm := &ptx.TensorMap{Element: ptx.U16, Dims: []int{slice, width, height, 2}, Strides: strides,
					Box: []int{channels, width, height, 1}, Interleave: slice}
				if slice == 32 {
					tm.Swizzle = 32
				}
				// The transaction count may be another than that of the box: stop waiting after a while.
				text := strings.NewReplacer("WAIT:	mbarrier", "mov.u32 %i, 0;\nWAIT:	add.u32 %i, %i, 1;\n"+
					"setp.gt.u32 %q1, %i, 1000;\n@%q1 bra LATE;\nmbarrier", "	@!%q2 bra WAIT;", "	@!%q2 bra WAIT;\nLATE:").Replace(
					loadBox(tm, []int{0, 1, 0, 1}, nil, 0))
				c := &hopperCase{text: text, threads: 32, shared: boxShared, in: in, out: boxShared, tensor: tm}
				got, err := c.run(t, gpu)
				if err != nil {
					t.Errorf("interleave %d, %d channels, strides %v: %v", slice, channels, strides, err)
					continue
				}
				var pieces []string
				for at := range tm.BoxBytes() / 16 {
					pieces = append(pieces, fmt.Sprint(binary.LittleEndian.Uint16(got[16*at:])))
				}
				t.Logf("interleave %d, %d channels, strides %v: 16-byte pieces %s", slice, channels, strides,
					strings.Join(pieces, " "))
				cases++
				for name, reading := range interleaveReadings {
					pixel, row, slices, image := reading(strides, slice, height)
					var want []string
					for s := range channels * 2 / slice {
						for y := range height {
							for x := range width {
								for half := range slice / 16 {
									from := image + s*slices + y*row + (x+1)*pixel + 16*half
									if slice == 32 { // swizzled in shared memory
										from ^= len(want) / 8 % 2 * 16
									}
									if x+1 >= width {
										want = append(want, "0")
									} else {
										want = append(want, fmt.Sprint(from/16))
									}
								}
							}
						}
					}
					if strings.Join(want, " ") == strings.Join(pieces, " ") {
						explained[name]++
					}
				}
			}
		}
	}
	for name, n := range explained {
		if n == cases {
			t.Logf("all loads agree with strides of %s", name)
			return
		}
	}
	t.Errorf("no reading of the strides explains all %d loads: %v", cases, explained)
}
