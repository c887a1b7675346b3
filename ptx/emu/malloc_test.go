package emu

import (
	"errors"
	"strings"
	"testing"
)

// TestDeviceMalloc allocates memory in each thread, exchanges it between threads and frees it.
func TestDeviceMalloc(t *testing.T) {
	module := func(body string) string {
		return strings.Replace(kernelSource(".reg .b64 %m, %n; .reg .b32 %x; .shared .b64 sh[32]; .reg .b32 %a;\n"+body),
			".visible", `.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible`, 1)
	}
	got, _, err := runModule(t, module(`call (%m), malloc, (16);
	st.b32 [%m+12], %t0;
	mov.u32 %a, sh; mad.lo.u32 %a, %t0, 8, %a; st.shared.b64 [%a], %m;
	bar.sync 0;
	xor.b32 %x, %t0, 5; mov.u32 %a, sh; mad.lo.u32 %a, %x, 8, %a; ld.shared.b64 %n, [%a];
	ld.global.b32 %x, [%n+12];
	mad.wide.u32 %p, %t0, 4, %buf; st.global.b32 [%p], %x;
	bar.sync 0;
	call free, (%m); call free, (0);`), make([]uint32, 32), Launch{Block: Dim3{32, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range got {
		if v != uint32(k^5) {
			t.Errorf("thread %d read %d, want %d", k, v, k^5)
		}
	}
	for _, c := range []struct {
		body string
		want error
	}{
		{"call (%m), malloc, (16); call free, (%m); st.b32 [%m], 0;", ErrAccess},
		{"call (%m), malloc, (16); call free, (%m); call free, (%m);", ErrMisuse},
		{"call (%m), malloc, (0x4000000000000000); st.b32 [%m], 0;", ErrAccess}, // the address 0
	} {
		_, _, err := runModule(t, module(c.body), make([]uint32, 1), Launch{Block: Dim3{1, 1, 1}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.body, err, c.want)
		}
	}
}
