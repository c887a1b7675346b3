package emu

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tilework/ptx"
)

// TestRefusePerKernel loads a module in which some kernels use unsupported instructions. The others
// run, and a launch of a refused kernel names the instruction.
func TestRefusePerKernel(t *testing.T) {
	const text = `.version 8.0
.target sm_90
.address_size 64
.global .texref image;
.func fetch() { .reg .f32 %f; tex.1d.v4.f32.f32 {%f, %f, %f, %f}, [image, {%f}]; ret; }
.func indirect() { call fetch, (); ret; }
.func plain() { ret; }
.entry good() { call plain, (); ret; }
.entry calls() { call indirect, (); ret; }
.entry unknown() { frob.u32 1; }
.entry drops() { .reg .b64 %rd; discard.global.L2 [%rd], 128; }
`
	m, err := ptx.Parse("k", text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(m)
	if err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(p.Entries(), " "); names != "good" {
		t.Errorf("kernels %q can run, want good", names)
	}
	run := func(entry string) error {
		_, err := p.Run(context.Background(), NewMemory(MemoryOptions{}), Launch{Entry: entry, Grid: Dim3{1, 1, 1},
			Block: Dim3{32, 1, 1}})
		return err
	}
	if err := run("good"); err != nil {
		t.Error(err)
	}
	for entry, want := range map[string]string{
		"calls": `function fetch, which the kernel can call: k:5:31: tex.1d.v4.f32.f32: instruction "tex" is not ` +
			`supported (textures)`,
		"unknown": `k:10:20: frob.u32: instruction "frob" is not supported`,
		"drops":   "k:11:33: emulator: discard.global.L2 (a cache line without its contents) is not supported",
	} {
		err := run(entry)
		if !errors.Is(err, ErrLaunch) || !errors.Is(err, ptx.ErrUnsupported) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", entry, err, want)
		}
		if got := p.Refused()[entry]; got == nil || got.Error() != want {
			t.Errorf("%s is refused because of %v, want %s", entry, got, want)
		}
		if _, err := p.Params(entry); !errors.Is(err, ErrLaunch) {
			t.Errorf("parameters of %s: %v, want an error", entry, err)
		}
	}
}

// TestRefuseModule checks that Load returns an error if no kernel can run or if the module is
// invalid outside of its functions.
func TestRefuseModule(t *testing.T) {
	for text, want := range map[string]string{
		".entry a() { frob; } .entry b() { frob; }": `k:1:58: frob: instruction "frob" is not supported`,
		".local .b32 x; .entry a() { ret; }": "k:1:57: x: a variable outside functions is in .local, want .global, " +
			".const or .shared",
	} {
		m, err := ptx.Parse("k", ".version 8.0 .target sm_90 .address_size 64 "+text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Load(m); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
