package ptx

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// corpus returns the PTX that nvcc generated from the kernels in testdata/nvcc, by file name.
func corpus(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/nvcc/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	texts := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(b)
	}
	return texts
}

func TestCorpusVerifies(t *testing.T) {
	for name, text := range corpus(t) {
		m, err := Parse(name, text)
		if err == nil {
			err = Verify(m)
		}
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if need := m.Need(); need.Version > m.Version || !need.supportedBy(m.Target) {
			t.Errorf("%s: requires %v, %v, more than its own %v, %v", name, need.Version, need.Target, m.Version, m.Target)
		}
		for _, f := range m.Funcs() {
			for k, r := range f.Registers {
				if r.Index != k {
					t.Errorf("%s: %s: register %s has index %d, want %d", name, f.Name, r.Name, r.Index, k)
				}
			}
		}
	}
}

func TestCorpusRoundTrip(t *testing.T) {
	for name, text := range corpus(t) {
		m, err := Parse(name, text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		checkRoundTrip(t, m)
	}
}

// checkRoundTrip prints m, parses the output and compares the result with m, except for positions
// and bindings.
func checkRoundTrip(t testing.TB, m *Module) {
	t.Helper()
	text := m.String()
	again, err := Parse("printed", text)
	if err != nil {
		t.Fatalf("printed module does not parse: %v\n%s", err, text)
	}
	strip(reflect.ValueOf(m))
	strip(reflect.ValueOf(again))
	if !reflect.DeepEqual(m, again) {
		t.Fatalf("module differs after a round trip: got\n%s\nwant\n%s", again, text)
	}
}

// strip clears positions, bindings and the fields that Print leaves out. Empty slices become nil.
func strip(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			strip(v.Elem())
		}
	case reflect.Slice:
		if v.Len() == 0 && v.CanSet() {
			v.SetZero()
		}
		for k := range v.Len() {
			strip(v.Index(k))
		}
	case reflect.Struct:
		for k := range v.NumField() {
			switch f := v.Field(k); v.Type().Field(k).Name {
			case "Pos", "Sym", "Form", "Registers", "InlinedAt":
				f.SetZero()
			case "binding":
				v.Addr().Interface().(*Instr).binding = nil
			default:
				strip(f)
			}
		}
	}
}

// TestTrailingNUL parses text as NVRTC returns it.
func TestTrailingNUL(t *testing.T) {
	if _, err := Parse("k", header+".entry k() { ret; }\n\x00"); err != nil {
		t.Error(err)
	}
	if _, err := Parse("k", header+".entry k() { \x00 ret; }"); err == nil {
		t.Error("a NUL inside of the text was accepted")
	}
}

func TestFiles(t *testing.T) {
	m, err := Parse("k", corpus(t)["matmul.sm_90.lineinfo.ptx"])
	if err != nil {
		t.Fatal(err)
	}
	files, lines := m.Files(), map[string]int{}
	for _, f := range m.Funcs() {
		f.Body.Walk(func(s Stmt) {
			if l, ok := s.(*Loc); ok {
				lines[filepath.Base(files[l.File])]++
			}
		})
	}
	if lines["matmul.cu"] == 0 {
		t.Errorf("no .loc refers to matmul.cu; lines per file: %v", lines)
	}
}

func TestParseLarge(t *testing.T) {
	line := "\tfma.rn.f32 %f1, %f2, 0f3F800000, %f3; // one of many\n"
	var b strings.Builder
	b.WriteString(header + ".visible .entry k()\n{\n\t.reg .f32 %f<4>;\n")
	for b.Len() < 4<<20 {
		b.WriteString(line)
	}
	b.WriteString("\tret;\n}\n")
	m, err := Parse("large", b.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(m); err != nil {
		t.Fatal(err)
	}
}

const header = ".version 8.0\n.target sm_90a\n.address_size 64\n"

func BenchmarkParse(b *testing.B) {
	text := corpus(b)["half.sm_90.G.ptx"]
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse("k", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	text := corpus(b)["half.sm_90.G.ptx"]
	m, err := Parse("k", text)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := Verify(m); err != nil {
			b.Fatal(err)
		}
	}
}
