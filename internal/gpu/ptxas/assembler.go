package ptxas

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"tilework/internal/gpu/kernel"
)

// assembler is a function that has ptxas assemble a kernel's text for a configuration, and names the file
// of what it makes of it, or none.
func Assembler(t *testing.T) func(k *kernel.Kernel, c kernel.Config) string {
	t.Helper()
	ptxas := os.Getenv("TILEWORK_PTXAS")
	if ptxas == "" {
		path, err := exec.LookPath("ptxas")
		if err != nil {
			t.Skip("no ptxas: set TILEWORK_PTXAS or PATH to assemble the kernels")
		}
		ptxas = path
	}
	dir := t.TempDir()
	used := regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads[\s\S]*Used (\d+) registers`)
	return func(k *kernel.Kernel, c kernel.Config) string {
		m, err := k.Emit(c)
		if err != nil {
			t.Error(err)
			return ""
		}
		text := []byte(m.String())
		in := filepath.Join(dir, fmt.Sprintf("%x.ptx", sha256.Sum256(text)))
		out := in + ".cubin"
		if err := os.WriteFile(in, text, 0o600); err != nil {
			t.Error(err)
			return ""
		}
		said, err := exec.Command(ptxas, "-v", "-arch="+m.Target.String(), "-o", out, in).CombinedOutput()
		if err != nil {
			t.Errorf("%s, %v: %v\n%s", k.Name, c, err, said)
			return ""
		}
		found := used.FindSubmatch(said)
		if found == nil {
			t.Errorf("ptxas said %s", said)
			return ""
		}
		t.Logf("%s, %v: %s registers", k.Name, c, found[3])
		// Warnings C75xx: setmaxnreg is not obeyed, or wgmma waits for each product.
		if bytes.Contains(said, []byte("C75")) || bytes.Contains(said, []byte("Potential Performance Loss")) {
			t.Errorf("%s, %v: ptxas warns: %s", k.Name, c, said)
		}
		if string(found[1]) != "0" || string(found[2]) != "0" {
			t.Errorf("%s, %v: spills %s bytes", k.Name, c, found[1])
		}
		return out
	}
}
