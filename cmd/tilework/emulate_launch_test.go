package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/matio"
	"tilework/internal/testkit"
	ptxemu "tilework/ptx/emu"
)

// columnsFolder changes to a temporary folder with the files of the example columns.json.
func columnsFolder(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a.npy", "columns.ptx", "columns.json"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "examples", "data", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// TestEmulateScript runs two launches. The second reads the results of the first.
func TestEmulateScript(t *testing.T) {
	columnsFolder(t)
	stdout, stderr, code := run(t.Context(), "emulate", "columns.ptx", "--script", "columns.json")
	for _, want := range []string{"columns.json: launch 1: ", "columns.json: launch 2: "} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Fatalf("exit code %d, %q, %q, want %q", code, stdout, stderr, want)
		}
	}
	in, err := matio.ReadArray(t.Context(), "a.npy", matio.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := matio.ReadArray(t.Context(), "centred.npy", matio.ReadOptions{})
	if err != nil || !slices.Equal(out.Shape, []int{256, 512}) {
		t.Fatalf("centred.npy is %+v, %v", out, err)
	}
	for j := range 512 {
		sum := 0.0
		for i := range 256 {
			sum += dtype.F32.At(in.Data, 512*i+j)
		}
		for i := range 256 {
			want := dtype.F32.At(in.Data, 512*i+j) - sum/256
			if got := dtype.F32.At(out.Data, 512*i+j); math.Abs(got-want) > 1e-5 {
				t.Fatalf("element %d, %d is %v, want %v", i, j, got, want)
			}
		}
	}

	stdout, _, code = run(t.Context(), "emulate", "columns.ptx", "--script", "columns.json", "--force", "--format", "json")
	if code != 0 || strings.Count(stdout, `"launch": "columns.json: launch `) != 2 {
		t.Errorf("exit code %d, %s, want two launches", code, stdout)
	}
}

// TestEmulateScriptFindings checks that an error in a launch does not end the script, and that the
// launch that ends it is named.
func TestEmulateScriptFindings(t *testing.T) {
	columnsFolder(t)
	editScript(t, `["memory:x", "memory:sums", "u32:256"]`, `["memory:y", "memory:sums", "u32:256"]`)
	stdout, stderr, code := run(t.Context(), "emulate", "columns.ptx", "--script", "s.json")
	for _, want := range []string{"launch 1: 24752 warp instructions", "1 error", "launch 2: 77824 warp instructions"} {
		if code != 1 || !strings.Contains(stdout, want) || !strings.Contains(stderr, "check failed: 1 error") {
			t.Errorf("exit code %d, %q, %q, want 1 and %q", code, stdout, stderr, want)
		}
	}
	_, stderr, code = run(t.Context(), "emulate", "columns.ptx", "--script", "columns.json", "--max-instructions", "30000",
		"--force")
	if want := "columns.json: launch 2: "; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %q, want 2 and %q", code, stderr, want)
	}
}

// editScript writes columns.json to s.json with a part replaced.
func editScript(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile("columns.json")
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(text), from, to, 1)
	if edited == string(text) {
		t.Fatalf("columns.json does not contain %q", from)
	}
	if err := os.WriteFile("s.json", []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEmulateScriptErrors checks that errors name the file, the launch and the field.
func TestEmulateScriptErrors(t *testing.T) {
	columnsFolder(t)
	for _, test := range []struct{ from, to, want string }{
		{`"grid": "2x256"`, `"grid": "2x"`, "s.json: launch 2: grid 2x: "},
		{`"grid": "2x256"`, `"grids": "2"`,
			`s.json: launch 2: unknown field "grids": want entry, grid, block, cluster, smem, args`},
		{`"grid": "2x256"`, `"grid": 2`, `s.json: launch 2: field grid is a JSON number: want a string, such as "16"`},
		{`"args": ["memory:x", "memory:sums", "u32:256"]`, `"args": "u32:256"`,
			"s.json: launch 1: field args is a JSON string: want a list"},
		{`"block": "256"`, `"smem": "2x"`, "s.json: launch 1: smem 2x: want bytes"},
		{`"entry": "sums"`, `"entry": "sum"`,
			`s.json: launch 1: entry of columns.ptx: unknown kernel "sum" (did you mean "sums"?)`},
		{`"entry": "sums", `, ``, "s.json: launch 1: columns.ptx has 2 kernels: want an entry, one of subtract, sums"},
		{`, "u32:256"]`, `]`, `s.json: launch 1: kernel sums has 3 parameters, found 2 arguments: want one for each, ` +
			`such as "a.npy", "out:f32:64x64:out.npy", "u32:64"`},
		{`"memory:sums"`, `"memory:sum"`, "s.json: launch 1: arg memory:sum (argument 2): unknown memory"},
		{`"u32:256"`, `"f64:256"`, "s.json: launch 1: arg f64:256 (argument 3): parameter rows is a .u32: want"},
		{`"u32:256"`, `"u32:-1"`, `s.json: launch 1: arg u32:-1 (argument 3): "-1" is not a number`},
		{`"memory:sums"`, `"out:f32:512:centred.npy"`,
			"s.json: launch 1: arg out:f32:512:centred.npy (argument 2): memory or"},
		{`"a.npy"`, `"b.npy"`, "s.json: memory x: b.npy: "},
		{`"a.npy"`, `"u32:5"`, "s.json: memory x: u32:5: want a file, out:TYPE:MxN:FILE"},
		{`"scratch:f32:512"`, `"scratch:f31:512"`, "s.json: memory sums: scratch:f31:512: want scratch:TYPE:SIZE"},
		{`"scratch:f32:512"`, `"inout:a.npy:a.npy"`, "s.json: memory x: a.npy: other memory has the same file"},
		{`"launches"`, `"launch"`, `s.json: unknown field "launch": want memory, launches`},
		{`"launches": [`, `"launches": [ [`, "s.json: line "},
		{"\n}\n", "\n} {}\n", "s.json: something follows the JSON object"},
		{"\n}\n", "\n", "s.json: the JSON ends early"},
	} {
		editScript(t, test.from, test.to)
		_, stderr, code := run(t.Context(), "emulate", "columns.ptx", "--script", "s.json", "--force")
		if code != 2 || !strings.Contains(stderr, test.want) {
			t.Errorf("%s instead of %s: exit code %d, %q, want 2 and %q", test.to, test.from, code, stderr, test.want)
		}
	}
	writeText(t, "number.csv", "1,2\n")
	for flags, want := range map[string]string{
		"--script s.json --grid 2": "--script and --grid exclude each other: want only one",
		"--script number.csv":      "number.csv: found a JSON number: want an object",
		"--script none.json":       "none.json: no such file",
		"--entry sums --block 256 --arg memory:x --arg memory:x --arg u32:1": "--arg memory:x (argument 1): no memory has",
	} {
		_, stderr, code := run(t.Context(), append([]string{"emulate", "columns.ptx"}, strings.Fields(flags)...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want 2 and %q", flags, code, stderr, want)
		}
	}
	if _, err := os.Stat("centred.npy"); !os.IsNotExist(err) {
		t.Errorf("centred.npy: %v, want no file", err)
	}
}

// TestScriptIsLinear checks for each kind of item that the bytes that reading a script allocates,
// also to look at files, grow with its length. The program has as many kernels as the script has
// launches.
func TestScriptIsLinear(t *testing.T) {
	t.Chdir(t.TempDir())
	one := matio.Array{Type: "u1", Shape: []int{1, 1}, Data: []byte{1}}
	if err := os.WriteFile("a.npy", one.Encode(), 0o666); err != nil {
		t.Fatal(err)
	}
	unit := testkit.Cases(maxScript/128, maxScript/8)
	const script, args = `{"memory":{"x":"scratch:u8:1"},"launches":[`, `{"entry":"k0","args":["u8:1"`
	for _, c := range []struct{ start, item, end string }{
		{`{"memory":{`, `"m#":"scratch:u8:1",`, `"m":"scratch:u8:1"},"launches":[{"entry":"k0"}]}`},
		{`{"memory":{`, `"m#":"out:u8:1:m#.npy",`, `"m":"scratch:u8:1"},"launches":[{"entry":"k0"}]}`},
		{`{"memory":{`, `"m#":"a.npy",`, `"m":"scratch:u8:1"},"launches":[{"entry":"k0"}]}`},
		{`{"memory":{"`, `m`, `":"scratch:u8:1"},"launches":[{"entry":"k0"}]}`},
		{script, `{"entry":"k#","args":["out:u8:1:c#.npy"]},`, `{"entry":"k0"}]}`},
		{script, `{"entry":"k#","args":["memory:x"]},`, `{"entry":"k0"}]}`},
		{script + args, `,"out:u8:1:c#.npy"`, `]}]}`},
		{script + args, `,"inout:a.npy:c#.npy"`, `]}]}`},
		{script + args, `,"a.npy"`, `]}]}`},
		{script + args, `,"memory:x"`, `]}]}`},
		{script + args + `,"struct:u8:1`, `,u8:1`, `"]}]}`},
		{script + args + `,"scratch:u8:1`, `x1`, `"]}]}`},
		{script + args + `,"tensor:1`, `x1`, `:0:a.npy"]}]}`},
		{script + args + `,"tensor:1:0`, `,nan`, `:a.npy"]}]}`},
	} {
		input := func(length int) string {
			var text strings.Builder
			text.WriteString(c.start)
			for n := 0; text.Len()+2*len(c.item)+len(c.end) < length; n++ {
				text.WriteString(strings.ReplaceAll(c.item, "#", strconv.Itoa(n)))
			}
			return text.String() + c.end
		}
		lengths := []int{unit, 2 * unit, 4 * unit, 8 * unit}
		testkit.CheckLinear(t, c.start+c.item+"…", lengths, 2000, input, func(text string) uint64 {
			var kernels strings.Builder
			kernels.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
			for n := range strings.Count(text, "{") {
				fmt.Fprintf(&kernels, ".entry _Z%dk%dv() { ret; }\n", len(strconv.Itoa(n))+1, n)
			}
			for name, content := range map[string]string{"s.json": text, "k.ptx": kernels.String()} {
				if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			program, err := loadPTX("k.ptx")
			if err != nil {
				t.Fatal(err)
			}
			return testkit.Allocated(func() { readLaunches(t, program) })
		})
	}
}

// readLaunches reads the launches of s.json for kernels of p, up to the first that is not valid.
func readLaunches(t *testing.T, p *ptxemu.Program) error {
	f, uses, mem := emulateFlags{script: "s.json"}, fileUses{}, ptxemu.NewMemory(ptxemu.MemoryOptions{})
	launches, _, err := f.readScript(t.Context(), mem, &uses)
	if err != nil {
		return err
	}
	kernels := entriesOf(p)
	for i := range launches {
		l := &launches[i]
		if _, err := f.parseArgs(t.Context(), mem, l, &uses); err != nil {
			return err
		}
		if _, err := l.chooseEntry("k.ptx", kernels); err != nil {
			return err
		}
	}
	return nil
}
