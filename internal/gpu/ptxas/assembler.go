// Package ptxas assembles kernels with NVIDIA's ptxas in tests.
package ptxas

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// Sampler returns a function that assembles as that of [Assembler] does. Unless TILEWORK_FULL is
// set, it assembles one in six kernels, which TILEWORK_SEED selects: ptxas takes minutes for all.
func Sampler(t *testing.T) func(k *kernel.Kernel, c kernel.Config) {
	t.Helper()
	assemble, seed := Assembler(t), testrand.Seed(t)
	return func(k *kernel.Kernel, c kernel.Config) {
		if testkit.Full() || testrand.OneIn(6, seed, k.Name, c) {
			assemble(k, c)
		}
	}
}

// maxSpill is the number of bytes per thread that ptxas may spill. It stores one or two values that
// the main loop does not use before the loop, and loads them after it, once per block.
const maxSpill = 8

// Assembler returns a function that assembles the PTX of a kernel's configuration and returns the
// name of the cubin file, or "" on failure. The function reports errors, performance warnings and
// spills of more than [maxSpill] bytes to t. Assembler skips the test unless TILEWORK_PTXAS names
// an assembler.
func Assembler(t *testing.T) func(k *kernel.Kernel, c kernel.Config) string {
	t.Helper()
	ptxas, dir := testkit.Ptxas(t), t.TempDir()
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
		output, err := exec.Command(ptxas, "-v", "-arch="+m.Target.String(), "-o", out, in).CombinedOutput()
		if err != nil {
			t.Errorf("%s, %v: %v\n%s", k.Name, c, err, output)
			return ""
		}
		found := used.FindSubmatch(output)
		if found == nil {
			t.Errorf("ptxas printed %q: want spills and registers", output)
			return ""
		}
		t.Logf("%s, %v: %s registers", k.Name, c, found[3])
		// Warnings C75xx: ptxas ignores setmaxnreg, or serializes wgmma.
		if bytes.Contains(output, []byte("C75")) || bytes.Contains(output, []byte("Potential Performance Loss")) {
			t.Errorf("%s, %v: ptxas warns: %s", k.Name, c, output)
		}
		if stores, err := strconv.Atoi(string(found[1])); err != nil || stores > maxSpill {
			t.Errorf("%s, %v: spills %s bytes (stores), %s bytes (loads)", k.Name, c, found[1], found[2])
		}
		return out
	}
}
