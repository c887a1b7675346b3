package gpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"tilework/internal/gemm"
)

// TestAssembles: NVIDIA's own assembler takes the texts, and the registers that it
// finds them do not spill.
func TestAssembles(t *testing.T) {
	ptxas := os.Getenv("TILEWORK_PTXAS")
	if ptxas == "" {
		path, err := exec.LookPath("ptxas")
		if err != nil {
			t.Skip("no ptxas: set TILEWORK_PTXAS or PATH to assemble the kernels")
		}
		ptxas = path
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out")
	used := regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads[\s\S]*Used (\d+) registers`)
	assembled := map[string]bool{}
	configs(t, func(k *Kernel, p *gemm.Problem, c Config) {
		// One text for each kernel, types and shape, and in full the product of
		// transposes: the rest is the same instructions in other places.
		kind := fmt.Sprintln(k.Name, c.In, c.Out, c.Shape, c.SM, c.TransA && c.TransB)
		if testing.Short() && c.In != c.Out || assembled[kind] || c.TransA != c.TransB || p.M == 33 {
			return
		}
		assembled[kind] = true
		m, err := k.Emit(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in, []byte(m.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(ptxas, "-v", "-arch="+m.Target.String(), "-o", out, in).CombinedOutput()
		if err != nil {
			t.Errorf("%s, %v: %v\n%s", k.Name, c, err, said)
			return
		}
		found := used.FindSubmatch(said)
		if found == nil {
			t.Fatalf("ptxas said %s", said)
		}
		t.Logf("%s, %v: %s registers", k.Name, c, found[3])
		if string(found[1]) != "0" || string(found[2]) != "0" {
			t.Errorf("%s, %v: spills %s bytes", k.Name, c, found[1])
		}
	})
}
