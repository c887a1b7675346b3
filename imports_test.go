package tilework_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers lists the packages from the bottom up. A package may import only packages of the groups
// before its own. An unlisted package fails the test, so that new packages are placed deliberately.
var layers = [][]string{
	{"internal/names", "internal/regular", "internal/ints", "internal/sentinel"},
	{"dtype", "ptx", "internal/table", "internal/memo", "internal/mapping", "internal/lint", "internal/release",
		"internal/phrase", "internal/relay", "internal/testkit/testrand", "internal/fit"},
	{"ptx/emu/internal/number"},
	{"ptx/emu/internal/dot"},
	{"ranks", "internal/gemm", "ptx/build", "ptx/emu", "internal/device"},
	{"internal/device/timeline"},
	{"internal/program"},
	{"internal/testkit", "internal/program/programtest", "internal/split", "internal/host", "internal/cache",
		"internal/ref", "internal/matio", "internal/cpu/asm", "internal/model", "ptx/emu/check", "internal/gpu/frag",
		"internal/backend"},
	{"internal/dl", "internal/testkit/browser"},
	{"internal/nccl", "internal/cpu", "internal/ref/reftest", "internal/verify", "gemmtest", "internal/peers",
		"internal/peers/pytorch", "internal/device/emu", "internal/device/cuda", "internal/device/faulty",
		"internal/gpu/kernel", "internal/gpu/planted"},
	{"internal/device/devicetest", "internal/gpu/sm90", "internal/gpu/ptxas"},
	{"internal/gpu/choose", "internal/cpu/block"},
	{"internal/gpu/exec"},
	{"internal/gpu/stream", "internal/gpu/trial", "internal/verify/gpu"},
	{"internal/gpu/gputest", "internal/explain", "internal/dispatch/auto", "internal/dispatch/tuned"},
	{"internal/gpu", "internal/study"},
	{"internal/multi", "internal/multi/scaling"},
	{"internal/dispatch"},
	{"internal/resident", "internal/team"},
	{"internal/bench", "internal/bench/baseline"},
	{"internal/tune"},
	{"internal/call"},
	{""}, // package tilework itself
	{"internal/report"},
	{"gonumblas", "matfile", "internal/study/site"},
	{"cmd/tilework", "examples/data", "examples/mul", "examples/gonum", "examples/resident", "examples/kernel",
		"examples/batches", "examples/team"},
}

// aboveGPU lists the packages that no package of internal/gpu may import: those that check or
// compare results, read files, open a device or belong to the CPU.
var aboveGPU = []string{"internal/ref", "internal/verify", "internal/verify/gpu", "internal/matio", "internal/peers",
	"internal/host", "internal/cpu", "internal/cpu/asm", "internal/device/emu", "internal/device/cuda"}

// forbidden lists imports that the layers would allow but the design does not. A backend does not
// import the packages that check it or compare it with others, and internal/matio and
// internal/peers import no backend.
var forbidden = map[string][]string{
	"internal/cpu":           {"internal/ref", "internal/verify", "internal/matio", "internal/peers", "gemmtest"},
	"internal/gpu/frag":      {"dtype", "internal/gemm", "internal/device", "ptx/emu"},
	"internal/gpu/kernel":    aboveGPU,
	"internal/gpu/sm90":      aboveGPU,
	"internal/gpu/choose":    aboveGPU,
	"internal/gpu/exec":      aboveGPU,
	"internal/gpu/stream":    aboveGPU,
	"internal/gpu/trial":     aboveGPU,
	"internal/device":        {"dtype"},
	"internal/device/faulty": {"dtype", "internal/gemm", "ptx/build", "ptx/emu"},
	"internal/device/emu":    {"dtype", "internal/gemm", "ptx/build"},
	"internal/device/cuda":   {"dtype", "internal/gemm", "ptx/build", "ptx/emu"},
	"ptx/emu":                {"ptx/build"},
	"gemmtest":               {"internal/host", "internal/matio", "internal/cpu/asm"},
	"internal/verify": {"internal/host", "internal/cache", "internal/backend", "internal/device",
		"internal/gpu/frag", "ptx/build"},
	"internal/verify/gpu": {"internal/gpu/choose", "internal/backend", "internal/cpu", "internal/device/emu",
		"internal/device/cuda", "internal/peers"},
	"internal/bench/baseline": {"internal/cpu", "internal/gpu/choose", "internal/gpu/stream", "internal/dispatch",
		"internal/peers", "internal/device/emu", "internal/device/cuda"},
	"internal/bench": {"internal/cpu", "internal/gpu/stream", "internal/dispatch", "internal/peers",
		"internal/device/emu", "internal/device/cuda"},
	"internal/matio": {"internal/host"},
	"internal/peers": {"internal/ref", "internal/matio", "internal/cpu/asm"},
	"":               {"internal/matio", "internal/peers", "gemmtest"},
	"matfile":        {"internal/dispatch", "internal/cpu", "internal/gpu", "internal/device"},
	"gonumblas":      {"dtype", "internal/gemm", "internal/cpu", "internal/dispatch"}, // the public API, and blocks
}

// outside lists the modules outside the standard library that the library may import. The command
// may import others.
var outside = []string{"golang.org/x/sys", "github.com/ebitengine/purego"}

// TestCommandUsesMatfile checks that the command reads, lists and writes matrices with package
// matfile, and not with the package below it.
func TestCommandUsesMatfile(t *testing.T) {
	paths, err := filepath.Glob("cmd/tilework/*.go")
	if err != nil {
		t.Fatal(err)
	}
	uses := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if below := regexp.MustCompile(`\bmatio\.(Read|Decode|List|Write|Encode)\(`).Find(text); below != nil {
			t.Errorf("%s: %s…: want the function of matfile", path, below)
		}
		uses += bytes.Count(text, []byte("matfile."))
	}
	if uses == 0 {
		t.Error("the command does not use package matfile")
	}
}

// TestImportsRunOneWay checks the imports of all packages against layers, forbidden and outside.
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
				if strings.Contains(path, "purego") && pkg != "internal/dl" {
					t.Errorf("package %q imports %s: want internal/dl, which checks the loader's search path", pkg, path)
				}
				if strings.Contains(strings.Split(path, "/")[0], ".") && at < floor("internal/report") &&
					!slices.ContainsFunc(outside, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
					t.Errorf("package %q imports %s, want only standard, local and listed modules", pkg, path)
				}
			case floor(dep) >= at:
				t.Errorf("%q imports %q, which is not in a lower layer", pkg, dep)
			case slices.Contains(forbidden[pkg], dep):
				t.Errorf("%q imports %q, which is forbidden", pkg, dep)
			}
		}
	}
}
