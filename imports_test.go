package tilework_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers is the house from the ground up: a package may import those of the
// groups before its own, and of its own group only where that says so below.
// Everything that is not listed here fails the test, so that a new package finds
// its place on purpose.
var layers = [][]string{
	{"dtype", "ptx", "internal/table"},
	{"internal/gemm", "ptx/build", "ptx/emu", "internal/device"},
	{"internal/testkit", "internal/host", "internal/cache", "internal/device/devicetest", "internal/ref", "internal/matio", "internal/cpu/asm", "internal/model", "ptx/emu/check", "internal/gpu/frag"},
	{"internal/cpu", "internal/gpu", "gemmtest", "internal/peers", "internal/device/emu", "internal/device/cuda", "internal/device/faulty"},
	{"internal/dispatch", "internal/explain", "internal/gpu/gputest"},
	{"internal/resident"},
	{"internal/bench"},
	{"internal/tune"},
	{""}, // package tilework itself
	{"internal/report"},
	{"gonumblas"},
	{"cmd/tilework", "examples/data", "examples/mul", "examples/gonum", "examples/resident", "examples/kernel"},
}

// forbidden are imports that the layers would allow and the design does not:
// what multiplies does not know what checks or compares it, and files and peers
// know no backend.
var forbidden = map[string][]string{
	"internal/cpu":           {"internal/ref", "internal/matio", "internal/peers", "gemmtest"},
	"internal/gpu":           {"internal/ref", "internal/matio", "internal/peers", "internal/host", "internal/cpu/asm"},
	"internal/gpu/frag":      {"dtype", "internal/gemm", "internal/device", "ptx/emu"},
	"internal/device":        {"dtype"},
	"internal/device/faulty": {"dtype", "internal/gemm", "ptx/build", "ptx/emu"},
	"internal/device/emu":    {"dtype", "internal/gemm", "ptx/build"},
	"internal/device/cuda":   {"dtype", "internal/gemm", "ptx/build", "ptx/emu"},
	"ptx/emu":                {"ptx/build"},
	"gemmtest":               {"internal/host", "internal/matio", "internal/cpu/asm"},
	"internal/bench":         {"internal/cpu", "internal/gpu", "internal/dispatch", "internal/peers", "internal/device/emu", "internal/device/cuda"},
	"internal/matio":         {"internal/host"},
	"internal/peers":         {"internal/ref", "internal/matio", "internal/cpu/asm"},
	"":                       {"internal/matio", "internal/peers", "gemmtest"},
	"gonumblas":              {"dtype", "internal/gemm", "internal/cpu", "internal/dispatch"}, // it knows the face only
}

// outside are the modules that the library itself may use; the command may use
// more.
var outside = []string{"golang.org/x/sys", "github.com/ebitengine/purego"}

func TestImportsRunOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	const module = "tilework"
	local := func(path string) (string, bool) {
		if path == module {
			return "", true
		}
		return strings.CutPrefix(path, module+"/")
	}
	floor := func(pkg string) int {
		return slices.IndexFunc(layers, func(group []string) bool { return slices.Contains(group, pkg) })
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg, ok := local(fields[0])
		if !ok {
			t.Fatalf("go list printed %q", line)
		}
		at := floor(pkg)
		if at < 0 {
			t.Errorf("package %q has no layer: add it to the list", pkg)
			continue
		}
		for _, path := range fields[1:] {
			dep, ok := local(path)
			switch {
			case !ok:
				if strings.Contains(strings.Split(path, "/")[0], ".") && at < floor("internal/report") &&
					!slices.ContainsFunc(outside, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
					t.Errorf("the library's package %q imports %s", pkg, path)
				}
			case floor(dep) >= at:
				t.Errorf("%q imports %q, which is not below it", pkg, dep)
			case slices.Contains(forbidden[pkg], dep):
				t.Errorf("%q imports %q, which it must not know", pkg, dep)
			}
		}
	}
}
