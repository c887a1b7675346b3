package explain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// architectures are the columns of the table of registers: those of the table of GPUs.
func architectures() (all []int) {
	for _, m := range model.Models() {
		all = append(all, m.Arch.SM)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// singles returns the product of float32 for which the registers of k are recorded.
func singles(t *testing.T, k *kernel.Kernel, m, n, depth int) *gemm.Problem {
	t.Helper()
	p := problem(t, dtype.F32, m, n, depth, false, false)
	if k.Tensor {
		q, err := p.WithPrecision(gemm.TF32)
		if err != nil {
			t.Fatal(err)
		}
		p = &q
	}
	return p
}

// recordedRows calls do for each row of the table: a kernel with a tile.
func recordedRows(t *testing.T, do func(k *kernel.Kernel, s kernel.Tile)) {
	t.Helper()
	for _, name := range []string{"naive", "tiled", "blocked", "mma", "wgmma"} {
		k, err := choose.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string][]string{"naive": {"8", "16", "32"}, "tiled": {"2", "4", "8", "16", "32"}}[name]
		m, err := model.Lookup("h200") // which runs all tiles
		if err != nil {
			t.Fatal(err)
		}
		tiles, err := Tiles(k, singles(t, k, 64, 64, 64), m)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; len(texts) < len(tiles) && name != "naive" && name != "tiled"; i++ {
			texts = append(texts, tiles[i].String())
		}
		for _, text := range texts {
			s, err := k.ParseTile(text)
			if err != nil {
				t.Fatal(err)
			}
			do(k, s)
		}
	}
}

// TestRegisters compares the table of registers with ptxas, by the number of blocks that an SM
// holds. Unless TILEWORK_FULL is set, it assembles one kernel in thirty.
func TestRegisters(t *testing.T) {
	ptxas := testkit.Ptxas(t)
	seed, update := testrand.Seed(t), os.Getenv("TILEWORK_UPDATE") != ""
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "kernel\ttile")
	for _, sm := range architectures() {
		fmt.Fprintf(w, "\tsm_%d", sm)
	}
	assemble := assembler(t, ptxas)
	recordedRows(t, func(k *kernel.Kernel, s kernel.Tile) {
		fmt.Fprintf(w, "\n%s\t%v", k.Name, s)
		for _, sm := range architectures() {
			if target := (ptx.Target{SM: sm, Suffix: k.Target().Suffix}); !target.Has(k.Target()) {
				fmt.Fprint(w, "\t-")
			} else if update || testkit.Full() || testrand.OneIn(30, seed, k.Name, s, sm) {
				fmt.Fprint(w, "\t", assemble(k, s, target))
			}
		}
	})
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil || !update {
		return
	}
	if err := os.WriteFile("registers.txt", []byte(table.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// assembler returns a function that returns a cell of the table of registers. It reports numbers of
// blocks that differ from the recorded ones.
func assembler(t *testing.T, ptxas string) func(k *kernel.Kernel, s kernel.Tile, target ptx.Target) string {
	used := regexp.MustCompile(`Used (\d+) registers`)
	in, known := filepath.Join(t.TempDir(), "kernel.ptx"), map[string]int{}
	registers := func(j *job, target ptx.Target) int {
		text := j.module.String()
		if n, ok := known[target.String()+text]; ok {
			return n
		}
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := exec.Command(ptxas, "-v", "-arch="+target.String(), "-o", os.DevNull, in).CombinedOutput()
		found := used.FindSubmatch(output)
		if err != nil || found == nil {
			t.Fatalf("%s, %v: %v\n%s", j.kernel.Name, j.config, err, output)
		}
		n, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		known[target.String()+text] = n
		return n
	}
	return func(k *kernel.Kernel, s kernel.Tile, target ptx.Target) string {
		var list []int
		for _, size := range [][3]int{{64, 64, 64}, {64, 64, 63}, {64, 63, 64}, {63, 63, 63}, {62, 62, 62}} {
			j, err := newJob(k, s, singles(t, k, size[0], size[1], size[2]), target, 1)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, registers(j, target))
			if j.registersOf(target.SM) > 0 {
				sameBlocks(t, j, target, list[len(list)-1])
			}
		}
		if most := slices.Max(list[1:]); most != list[0] {
			return fmt.Sprintf("%d/%d", list[0], most)
		}
		return fmt.Sprint(list[0])
	}
}

// sameBlocks checks that an SM holds at least as many blocks with n registers per thread as with
// the recorded number, and exactly as many if rows are aligned.
func sameBlocks(t *testing.T, j *job, target ptx.Target, n int) {
	t.Helper()
	m, err := model.Lookup(fmt.Sprint("sm_", target.SM))
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(registers int) int {
		f, err := fitOf(m, j, &Launch{}, Options{Registers: registers})
		if err != nil {
			return 0 // too much shared memory for this architecture
		}
		return f.Occupancy.Blocks
	}
	got, want := blocks(j.registersOf(target.SM)), blocks(n)
	if got > want || rowsAligned(&j.problem) && got != want {
		t.Errorf("%s, %v on %v: got %d blocks per SM, want %d, for %d registers per thread: make the table again",
			j.kernel.Name, j.config, target, got, want, n)
	}
}
