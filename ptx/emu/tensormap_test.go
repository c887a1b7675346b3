package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tilework/ptx"
)

// TestReplaceTensorMap sets each field of a tensor map in shared memory, copies the map to
// global memory, and compares it with the encoding of the expected map.
func TestReplaceTensorMap(t *testing.T) {
	from := ptx.TensorMap{Element: ptx.F32, Base: 0x1000, Dims: []int{64, 32}, Strides: []int{256}, Box: []int{16, 8}}
	to := ptx.TensorMap{Element: ptx.BF16, Base: 0x20000, Dims: []int{96, 48, 5}, Strides: []int{512, 8192},
		Box: []int{32, 4, 2}, Swizzle: 64, Steps: []int{1, 3, 1}, Interleave: 16, FillNaN: true}
	const replace = "@%%q tensormap.replace.tile.%s.shared::cta.b1024.%s;\n"
	var body strings.Builder
	body.WriteString(`.shared .align 128 .b8 map[128]; .reg .pred %q; .reg .b32 %a, %v; .reg .b64 %w;
	mov.u32 %a, map; mad.lo.u32 %a, %t0, 4, %a; mad.wide.u32 %p, %t0, 4, %buf;
	ld.global.b32 %v, [%p]; st.shared.b32 [%a], %v; bar.sync 0;
	setp.eq.u32 %q, %t0, 0; mov.b64 %w, 0x20000; mov.b32 %v, 48;
`)
	for _, field := range []string{
		"global_address | b64 [map], %w", "rank | b32 [map], 2", "elemtype | b32 [map], 10", "swizzle_mode | b32 [map], 2",
		"box_dim | b32 [map], 0, 32", "box_dim | b32 [map], 1, 4", "box_dim | b32 [map], 2, 2",
		"global_dim | b32 [map], 0, 96", "global_dim | b32 [map], 1, %v", "global_dim | b32 [map], 2, 5",
		"global_stride | b64 [map], 0, 512", "global_stride | b64 [map], 1, 8192", "element_stride | b32 [map], 0, 1",
		"element_stride | b32 [map], 1, 3", "element_stride | b32 [map], 2, 1",
		"interleave_layout | b32 [map], 1", "fill_mode | b32 [map], 1",
	} {
		name, rest, _ := strings.Cut(field, " | ")
		fmt.Fprintf(&body, replace, name, rest)
	}
	body.WriteString(`bar.sync 0;
	tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%buf+128], [map], 128;`)
	words := func(m *ptx.TensorMap) []uint32 {
		b, err := EncodeTensorMap(m)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]uint32, 32)
		for k := range out {
			out[k] = uint32(b[4*k]) | uint32(b[4*k+1])<<8 | uint32(b[4*k+2])<<16 | uint32(b[4*k+3])<<24
		}
		return out
	}
	text := func(body string) string {
		return strings.Replace(kernelSource(body), ".target sm_90", ".target sm_90a", 1)
	}
	buf := append(words(&from), make([]uint32, 32)...)
	for _, start := range [][]uint32{words(&from), make([]uint32, 32)} { // a kernel can build a map from zeros
		got, _, err := runModule(t, text(body.String()), append(start, make([]uint32, 32)...), Launch{Block: Dim3{32, 1, 1}})
		if err != nil {
			t.Fatal(err)
		}
		if want := append(start, words(&to)...); !slices.Equal(got, want) {
			t.Errorf("got %x, want %x", got, want)
		}
	}
	for _, c := range []struct{ body, want string }{
		{"st.global.b32 [%buf+128], 1; tensormap.replace.tile.rank.global.b1024.b32 [%buf+128], 1;",
			"the address is not that of a tensor map"},
		{"tensormap.replace.tile.element_stride.global.b1024.b32 [%buf], 0, 9;", "does not support 9 as the element_stride"},
		{"tensormap.replace.tile.rank.global.b1024.b32 [%buf], 5;", "does not support 5 as the rank"},
	} {
		_, _, err := runModule(t, text(c.body), buf, Launch{Block: Dim3{1, 1, 1}})
		if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a misuse: %s", c.body, err, c.want)
		}
	}
	_, _, err := runModule(t, text("tensormap.replace.tile.rank.global.b1024.b32 [%buf+192], 1;"), buf,
		Launch{Block: Dim3{1, 1, 1}})
	if !errors.Is(err, ErrAccess) {
		t.Errorf("a tensor map beyond the end of memory: %v, want an invalid access", err)
	}
	im2col := ptx.TensorMap{Element: ptx.F32, Base: 0x1000, Dims: []int{64, 32, 2}, Strides: []int{256, 8192},
		Box: []int{16, 8}, Lower: []int{-1}, Upper: []int{0}}
	_, _, err = runModule(t, text("tensormap.replace.tile.rank.global.b1024.b32 [%buf], 1;"), words(&im2col),
		Launch{Block: Dim3{1, 1, 1}})
	if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "the tensor map is for im2col mode") {
		t.Errorf("a field of a tensor map for im2col mode: %v, want a misuse", err)
	}
	im2col.Interleave = 16
	if _, err := EncodeTensorMap(&im2col); !errors.Is(err, ErrLaunch) || !errors.Is(err, ptx.ErrUnsupported) {
		t.Errorf("interleaved slices in im2col mode: %v, want a refusal", err)
	}
	m, err := ptx.Parse("k", text("tensormap.replace.tile.elemtype.global.b1024.b32 [%buf], 8;"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(m); !errors.Is(err, ptx.ErrUnsupported) || !strings.Contains(err.Error(), "with the value 8") {
		t.Errorf("elemtype 8: %v, want a refusal", err)
	}
}
