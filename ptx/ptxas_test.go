package ptx

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// findPtxas returns NVIDIA's assembler, to compare the table with.
func findPtxas(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("TILEWORK_PTXAS"); path != "" {
		return path
	}
	path, err := exec.LookPath("ptxas")
	if err != nil {
		t.Skip("no ptxas: set TILEWORK_PTXAS or PATH to compare the instruction table with NVIDIA's assembler")
	}
	return path
}

// ptxas assembles text, and text without the lines that it refuses until it
// refuses none. It returns what it said about each line. An error is a refusal of
// no line in particular.
func ptxas(t *testing.T, path string, target Target, text string) (map[int]string, error) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out")
	lines := strings.Split(text, "\n")
	refused := map[int]string{}
	for {
		if err := os.WriteFile(in, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(path, "-arch="+target.String(), "-O0", "-o", out, in).CombinedOutput()
		if err == nil {
			return refused, nil
		}
		before := len(refused)
		for _, m := range lineError.FindAllSubmatch(said, -1) {
			n, _ := strconv.Atoi(string(m[1]))
			if n < 1 || n > len(lines) || lines[n-1] == "" {
				continue
			}
			refused[n] = string(bytes.TrimSpace(m[2]))
		}
		for n := range refused {
			lines[n-1] = ""
		}
		if len(refused) == before {
			return nil, fmt.Errorf("ptxas -arch=%v: %v\n%s", target, err, said)
		}
	}
}

var lineError = regexp.MustCompile(`line (\d+); (?:error|fatal) *: (.*)`)

// archOf is the architecture to assemble for: that of the module, or the oldest
// that the assembler still knows, which runs what older ones do.
func archOf(t *testing.T, path string, target Target) Target {
	t.Helper()
	help, err := exec.Command(path, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var known []int
	for _, m := range regexp.MustCompile(`'sm_(\d+)'`).FindAllSubmatch(help, -1) {
		sm, _ := strconv.Atoi(string(m[1]))
		known = append(known, sm)
	}
	slices.Sort(known)
	if target.Suffix != "" {
		return target
	}
	for _, sm := range known {
		if sm >= target.SM {
			return Target{SM: sm}
		}
	}
	t.Skipf("%s does not know %v or later", path, target)
	return Target{}
}

// samples are instructions of every form, by what they need.
func samples(t *testing.T, perForm int) map[Need][]*Instr {
	t.Helper()
	byNeed := map[Need][]*Instr{}
	for _, f := range Forms() {
		s := newSampler(uint64(f.Index))
		for _, i := range s.expand(f, perForm) {
			if err := Bind(i); err != nil {
				if i.Form == nil {
					t.Errorf("%s: %v", f.Text, err)
				}
				continue // a combination that no row can exclude
			}
			if i.Form != f {
				t.Errorf("%s: %v is taken for %s", f.Text, i, i.Form.Text)
			}
			if f.Op == "call" {
				continue // needs declarations: the corpus has calls
			}
			need := i.Need()
			if v, ok := need.Target.MinVersion(); ok {
				need.Version = max(need.Version, v)
			} else {
				t.Errorf("%s: no such target %v", f.Text, need.Target)
			}
			byNeed[need] = append(byNeed[need], i)
		}
	}
	return byNeed
}

// assemble puts instructions into one module for the given need and returns what the
// assembler says about each that it refuses, by its index, and about other lines,
// by their number negated.
func (s *sampler) assemble(t *testing.T, path string, need Need, instrs []*Instr) map[int]string {
	t.Helper()
	text := s.module(need, instrs).String()
	first := strings.Count(text[:strings.Index(text, "\n\t"+instrs[0].String())], "\n") + 2
	lines, err := ptxas(t, path, archOf(t, path, need.Target), text)
	refused := map[int]string{}
	switch {
	case err != nil && len(instrs) == 1:
		return map[int]string{0: err.Error()}
	case err != nil:
		// One of them spoils all: find it by halves.
		half := len(instrs) / 2
		refused = s.assemble(t, path, need, instrs[:half])
		for k, said := range s.assemble(t, path, need, instrs[half:]) {
			if k >= 0 {
				k += half
			}
			refused[k] = said
		}
		return refused
	}
	for line, said := range lines {
		if k := line - first; k >= 0 && k < len(instrs) {
			refused[k] = fmt.Sprintf("%v: %s", instrs[k], said)
		} else {
			refused[-line] = said // a declaration
		}
	}
	return refused
}

// assembleSamples is assemble on instructions whose registers some other module declares.
func assembleSamples(t *testing.T, path string, need Need, instrs []*Instr) map[int]string {
	t.Helper()
	s := newSampler(1)
	again := make([]*Instr, len(instrs))
	for k, i := range instrs {
		again[k] = s.instr(i.Form, i.slots)
	}
	return s.assemble(t, path, need, again)
}

// TestTableAgainstPtxas assembles samples of every form for the version and the
// target that the table says it needs at least.
func TestTableAgainstPtxas(t *testing.T) {
	path := findPtxas(t)
	for need, instrs := range samples(t, 60) {
		t.Run(fmt.Sprintf("%v/%v", need.Version, need.Target), func(t *testing.T) {
			for k, said := range assembleSamples(t, path, need, instrs) {
				if k < 0 {
					t.Errorf("line %d: %s", -k, said)
				} else {
					t.Errorf("%s\n\tof %s", said, instrs[k].Form.Text)
				}
			}
		})
	}
}

// TestNeedsAgainstPtxas assembles the same samples for the version, then for the
// target, just below: each must be refused, or the table asks for too much.
func TestNeedsAgainstPtxas(t *testing.T) {
	path := findPtxas(t)
	for need, instrs := range samples(t, 30) {
		for _, low := range below(need) {
			t.Run(fmt.Sprintf("%v/%v below %v/%v", low.Version, low.Target, need.Version, need.Target), func(t *testing.T) {
				refused := assembleSamples(t, path, low, instrs)
				for k, i := range instrs {
					if refused[k] == "" {
						t.Errorf("%v: assembles\n\tof %s", i, i.Form.Text)
					}
				}
			})
		}
	}
}

// TestSpecialRegistersAgainstPtxas reads each special register with the least that
// it needs, and one step below.
func TestSpecialRegistersAgainstPtxas(t *testing.T) {
	path := findPtxas(t)
	for name, row := range specials {
		s := newSampler(1)
		read := &Name{Name: name}
		if row.vec {
			read.Member = "x"
		}
		i := &Instr{Op: "mov", Mods: []string{row.typ.String()}, Args: []Operand{s.reg(row.typ, 0), read}}
		need := row.need
		if v, ok := need.Target.MinVersion(); ok {
			need.Version = max(need.Version, v)
		}
		for _, said := range s.assemble(t, path, need, []*Instr{i}) {
			t.Errorf("%v with %v, %v: %s", i, need.Version, need.Target, said)
		}
		for _, low := range below(need) {
			if len(s.assemble(t, path, low, []*Instr{i})) == 0 {
				t.Errorf("%v assembles with %v, %v", i, low.Version, low.Target)
			}
		}
	}
}

// below are the needs that lack one step of the version or of the target, as far
// as there is such a PTX.
func below(need Need) []Need {
	var lower []Need
	least, _ := need.Target.MinVersion()
	previous := Need{}
	for _, row := range targets {
		if row.Version < need.Version && row.Version >= least {
			previous.Version = max(previous.Version, row.Version)
		}
		if row.Target.Suffix == "" && row.Version <= need.Version && !row.Target.Has(need.Target) {
			if row.SM > previous.Target.SM {
				previous.Target = row.Target
			}
		}
	}
	if previous.Version > 0 {
		lower = append(lower, Need{previous.Version, need.Target})
	}
	if previous.Target.SM > 0 {
		lower = append(lower, Need{need.Version, previous.Target})
	}
	return lower
}

// TestOperandsAgainstPtxas puts registers of wrong types, immediates, sinks and
// special registers in operands' places: what Verify lets through must assemble.
// It may refuse more than the assembler does, which takes a predicate in a vector.
func TestOperandsAgainstPtxas(t *testing.T) {
	path := findPtxas(t)
	const trials, chunk = 3000, 250
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newSampler(seed)
	need := Need{85, Target{90, "a"}}
	var tried []*Instr
	for len(tried) < trials {
		i := s.perturbed()
		if i != nil && Verify(s.module(need, []*Instr{i})) == nil {
			tried = append(tried, i)
		}
	}
	for at := 0; at < trials; at += chunk {
		instrs := tried[at:min(at+chunk, trials)]
		for k, said := range s.assemble(t, path, need, instrs) {
			switch {
			case k < 0:
				t.Errorf("line %d: %s", -k, said)
			case strings.Contains(said, "signal:"):
				t.Logf("the assembler crashes on %v", instrs[k])
			case !odd(instrs[k]):
				t.Errorf("%s\n\tof %s", said, instrs[k].Form.Text)
			}
		}
	}
}

// odd reports what the assembler refuses against its own rules: constants where
// their register would do, in places that no compiler puts them.
func odd(i *Instr) bool {
	constant := slices.ContainsFunc(i.Args, func(o Operand) bool {
		_, ok := o.(*Imm)
		return ok
	})
	return constant && (i.Op == "cvt" && i.Has("tf32") || i.Op == "setp" || i.Op == "createpolicy")
}
