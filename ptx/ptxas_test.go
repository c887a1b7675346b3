package ptx

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// tableRelease is the release of NVIDIA's assembler that the tests compare the table with. Other
// releases accept other instructions.
const tableRelease = "13.5"

// findPtxas returns the path of NVIDIA's assembler. It skips the test if TILEWORK_PTXAS names none.
func findPtxas(t *testing.T) string {
	t.Helper()
	path := testkit.Ptxas(t)
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(version, []byte("release "+tableRelease+",")) {
		t.Fatalf("TILEWORK_PTXAS=%s prints %q: want release %s", path, version, tableRelease)
	}
	return path
}

// ptxas assembles text. While lines are rejected, it removes them and assembles again. It returns
// the assembler's message for each rejected line, or an error if the assembler fails without
// naming a line. It keeps the line of noCode.
func ptxas(t *testing.T, path string, target Target, text string) (map[int]string, error) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out")
	lines := strings.Split(text, "\n")
	rejected := map[int]string{}
	for {
		if err := os.WriteFile(in, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := exec.Command(path, "-arch="+target.String(), "-O0", "-o", out, in).CombinedOutput()
		if err == nil {
			return rejected, nil
		}
		before, checked := len(rejected), false
		for _, m := range lineError.FindAllSubmatch(output, -1) {
			n, _ := strconv.Atoi(string(m[1]))
			if n < 1 || n > len(lines) || lines[n-1] == "" {
				continue
			}
			if strings.Contains(lines[n-1], noCode.Op) {
				checked = true
				continue
			}
			rejected[n] = string(bytes.TrimSpace(m[2]))
		}
		for n := range rejected {
			lines[n-1] = ""
		}
		inMacro := bytes.Contains(output, []byte("<macro")) // an error in code that replaces some instruction
		if checked && !inMacro && len(rejected) == before {
			return rejected, nil
		}
		if len(rejected) == before {
			return nil, fmt.Errorf("ptxas -arch=%v: %v\n%s", target, err, output)
		}
	}
}

// assembles returns the error of the assembler about text, or nil.
func assembles(t *testing.T, path string, target Target, text string) error {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(path, "-arch="+target.String(), "-O0", "-o", out, in).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %s", err, output)
	}
	return nil
}

// noCode is an unknown instruction. It keeps the assembler from generating code, which takes most
// of its time, after it has checked the other instructions.
var noCode = &Instr{Op: "checked"}

var lineError = regexp.MustCompile(`in\.ptx, line (\d+); (?:error|fatal) *: (.*)`)

// archOf returns the architecture to assemble for: target if it has a suffix, and otherwise the
// oldest architecture that the assembler supports and that can run code for target.
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

// samples returns instructions of every form, grouped by their requirements.
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
				continue // Bind rejects the combination of modifiers, which rows cannot express
			}
			if i.Form != f {
				t.Errorf("%s: %v matches %s instead", f.Text, i, i.Form.Text)
			}
			if f.Op == "call" {
				continue // needs declarations; the corpus covers calls
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

// assemble assembles instrs in one module with the given requirements. It returns the assembler's
// message for each rejected instruction, by index, and for other lines, by negated line number.
func (s *sampler) assemble(t *testing.T, path string, need Need, instrs []*Instr) map[int]string {
	t.Helper()
	text := s.module(need, instrs).String()
	first := strings.Count(text[:strings.Index(text, "\n\t"+instrs[0].String())], "\n") + 2
	lines, err := ptxas(t, path, archOf(t, path, need.Target), text)
	rejected := map[int]string{}
	switch {
	case err != nil && len(instrs) == 1:
		return map[int]string{0: err.Error()}
	case err != nil:
		// An instruction makes the assembler fail without naming a line: bisect.
		half := len(instrs) / 2
		rejected = s.assemble(t, path, need, instrs[:half])
		for k, msg := range s.assemble(t, path, need, instrs[half:]) {
			if k >= 0 {
				k += half
			}
			rejected[k] = msg
		}
		return rejected
	}
	for line, msg := range lines {
		if k := line - first; k >= 0 && k < len(instrs) {
			rejected[k] = fmt.Sprintf("%v: %s", instrs[k], msg)
		} else {
			rejected[-line] = msg // a declaration
		}
	}
	return rejected
}

// assembleSamples is like assemble, for instructions whose registers were declared for another
// module. It generates them again.
func assembleSamples(t *testing.T, path string, need Need, instrs []*Instr) map[int]string {
	t.Helper()
	s := newSampler(1)
	again := make([]*Instr, len(instrs))
	for k, i := range instrs {
		for again[k] == nil || Bind(again[k]) != nil { // the operands are random
			again[k] = s.instr(i.Form, i.slots)
		}
	}
	return s.assemble(t, path, need, again)
}

// TestTableAgainstPtxas assembles samples of every form with the lowest version and target that
// the table claims to suffice.
func TestTableAgainstPtxas(t *testing.T) {
	t.Parallel()
	path := findPtxas(t)
	for need, instrs := range samples(t, testkit.Cases(20, 60)) {
		t.Run(fmt.Sprintf("%v/%v", need.Version, need.Target), func(t *testing.T) {
			t.Parallel()
			for k, msg := range assembleSamples(t, path, need, instrs) {
				if k < 0 {
					t.Errorf("line %d: %s", -k, msg)
				} else {
					t.Errorf("%s\n\tform %s", msg, instrs[k].Form.Text)
				}
			}
		})
	}
}

// TestNeedsAgainstPtxas assembles samples with the next lower version, and with the next lower
// target. The assembler must reject them, or the requirements in the table are too high.
func TestNeedsAgainstPtxas(t *testing.T) {
	t.Parallel()
	path := findPtxas(t)
	for need, instrs := range samples(t, testkit.Cases(10, 30)) {
		for _, low := range below(need) {
			t.Run(fmt.Sprintf("%v/%v below %v/%v", low.Version, low.Target, need.Version, need.Target), func(t *testing.T) {
				t.Parallel()
				rejected := assembleSamples(t, path, low, instrs)
				for k, i := range instrs {
					if rejected[k] == "" {
						t.Errorf("%v assembles, want it rejected\n\tform %s", i, i.Form.Text)
					}
				}
			})
		}
	}
}

// TestSpecialRegistersAgainstPtxas reads each special register with its lowest version and
// target, and checks that the next lower ones are rejected.
func TestSpecialRegistersAgainstPtxas(t *testing.T) {
	t.Parallel()
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
		for _, msg := range s.assemble(t, path, need, []*Instr{i}) {
			t.Errorf("%v with %v, %v: %s", i, need.Version, need.Target, msg)
		}
		for _, low := range below(need) {
			if len(s.assemble(t, path, low, []*Instr{i})) == 0 {
				t.Errorf("%v assembles with %v, %v, want it rejected", i, low.Version, low.Target)
			}
		}
	}
}

// below returns the requirements that are one step lower than need in version or in target, if
// such a PTX exists.
func below(need Need) []Need {
	var lower []Need
	least, _ := need.Target.MinVersion()
	previous := Need{}
	for _, row := range targets {
		if row.Version < need.Version && row.Version >= least {
			previous.Version = max(previous.Version, row.Version)
		}
		if row.Target.Suffix == "" && row.Version <= need.Version && !need.supportedBy(row.Target) {
			if row.SM > previous.Target.SM {
				previous.Target = row.Target
			}
		}
	}
	if previous.Version > 0 {
		lower = append(lower, Need{Version: previous.Version, Target: need.Target})
	}
	if previous.Target.SM > 0 {
		lower = append(lower, Need{Version: need.Version, Target: previous.Target})
	}
	return lower
}

// TestOperandsAgainstPtxas replaces operands by registers of other types, immediates, sinks and
// special registers. Instructions that Verify accepts must assemble. Verify may reject more than
// the assembler, which for example accepts a predicate in a vector.
func TestOperandsAgainstPtxas(t *testing.T) {
	t.Parallel()
	path := findPtxas(t)
	const chunk = 250
	trials := testkit.Cases(1000, 3000)
	s := newSampler(testrand.Seed(t))
	need := Need{Version: 85, Target: Target{90, "a"}}
	var tried []*Instr
	for len(tried) < trials {
		i := s.perturbed()
		if i != nil && Verify(s.module(need, []*Instr{i})) == nil {
			tried = append(tried, i)
		}
	}
	for at := 0; at < trials; at += chunk {
		instrs := tried[at:min(at+chunk, trials)]
		for k, msg := range s.assemble(t, path, need, instrs) {
			switch {
			case k < 0:
				t.Errorf("line %d: %s", -k, msg)
			case strings.Contains(msg, "signal:"):
				t.Logf("the assembler crashes on %v", instrs[k])
			case !odd(instrs[k]):
				t.Errorf("%s\n\tform %s", msg, instrs[k].Form.Text)
			}
		}
	}
}

// odd reports whether the assembler may reject i against its own rules: it rejects some
// immediates where it accepts a register, in places where compilers do not use them.
func odd(i *Instr) bool {
	constant := slices.ContainsFunc(i.Args, func(o Operand) bool {
		_, ok := o.(*Imm)
		return ok
	})
	return constant && (i.Op == "cvt" && i.Has("tf32") || i.Op == "setp" || i.Op == "createpolicy")
}
