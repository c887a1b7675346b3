package site

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/matio"
	"tilework/internal/testkit/browser"
)

// TestOwn runs PTX from nvcc with a missing barrier, and opens the address of the run anew.
func TestOwn(t *testing.T) {
	text, err := os.ReadFile("../../../examples/data/broken.ptx")
	if err != nil {
		t.Fatal(err)
	}
	b, url := open(t)
	visit(b, url+"#own", ready["own"])
	fill := func(value string) {
		b.Eval(fmt.Sprintf(`(() => {
			const text = document.querySelector("#own-ptx");
			text.value = %q;
			text.dispatchEvent(new Event("change"));
		})()`, value), nil)
	}
	fill("int main()")
	b.Wait(`document.querySelector("#own-result .notice")?.textContent.includes("your.ptx:1")`)
	fill(string(text))
	b.Wait(`document.querySelectorAll("#own-form .argument").length === 6`)
	b.Eval(`(() => {
		const set = (label, value) => {
			const e = document.querySelector("#own-form [aria-label='" + label + "']");
			e.value = value;
			e.dispatchEvent(new Event("change"));
		};
		for (const side of ["x", "y"]) {
			set("Grid, " + side, 2);
			set("Block, " + side, 16);
		}
	})()`, nil)
	b.Click("#own-form .run .primary")
	const race = `document.querySelector("#own-result .finding.error")?.textContent.includes("matmul.cu:23")`
	b.Wait(race)
	b.Wait(`!document.querySelector("#own-form .run .primary").disabled && location.hash.startsWith("#own?z=")`)
	var address string
	b.Eval(`location.href`, &address)
	visit(b, address, race)

	// An address whose launch has other fields, or does not fit its PTX, is refused.
	const fits, form = "The address has a kernel or arguments that its PTX does not have.",
		"The address is damaged: want one that this page made."
	for _, test := range []struct {
		field, want string
		value       any
	}{
		{"entry", fits, "other"}, {"args", fits, []any{}},
		{"entry", form, 5}, {"args", form, []any{map[string]any{"kind": "none"}}},
		{"grid", form, []any{2, 2}}, {"block", form, []any{1, 2, 0.5}}, {"shared", form, nil}, {"speed", form, 1},
	} {
		before, z, _ := strings.Cut(address, "z=")
		launch := unpack(t, z)
		launch[test.field] = test.value
		visit(b, before+"z="+pack(t, launch), fmt.Sprintf(`!document.querySelector("#own-form .run") &&
			document.querySelector("#own-result .notice")?.textContent === %q`, test.want))
	}
}

// pack and unpack store an object in an address, as the page does.
func pack(t *testing.T, object map[string]any) string {
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(packed.Bytes())
}

func unpack(t *testing.T, z string) (object map[string]any) {
	packed, err := base64.RawURLEncoding.DecodeString(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(packed))).Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestOwnFile drops a matrix as an .npy file, written here as NumPy writes it, and reads the file
// of the result. A file that is no .npy file is chosen first and refused in the words of the
// command.
func TestOwnFile(t *testing.T) {
	a := matio.Array{Type: "f4", Shape: []int{40, 40}, Data: make([]byte, 4*40*40)}
	for i := range 40 {
		dtype.F32.Set(a.Data, 41*i, float64(i+1)) // a diagonal
	}
	folder := t.TempDir()
	bad := filepath.Join(folder, "bad.npy")
	if err := os.WriteFile(bad, []byte("1,2,3"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, url := open(t)
	visit(b, url+"#own", ready["own"])
	b.Eval(`(() => {
		const kind = document.querySelector("#own-form [aria-label='A, kind']");
		kind.value = "file";
		kind.dispatchEvent(new Event("change"));
	})()`, nil)
	const input = `#own-form [aria-label='A, file']`
	b.Choose(input, bad)
	b.Wait(`document.querySelector("#own-form .shape.npy")?.textContent.includes("bad.npy")`)
	b.Click("#own-form .run .primary")
	b.Wait(`document.querySelector("#own-result .notice")?.textContent.startsWith("A: bad.npy: malformed: file starts")`)
	drop(b, "#own-form .shape.npy", "a.npy", a.Encode())
	b.Wait(`document.querySelector("#own-form .shape.npy")?.textContent.includes("a.npy")`)
	b.Click("#own-form .run .primary")
	b.Wait(`document.querySelector("#own-result .verdict.good") && document.querySelector("#own-result .download")`)
	b.Do("Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": folder}, nil)
	b.Click("#own-result .download")
	result := filepath.Join(folder, "C.npy")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(result); err == nil {
			break
		}
	}
	c, err := matio.ReadArray(t.Context(), result, matio.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		for j := range 40 { // row i of B, whose elements count from 1 to 9, times i+1
			if got, want := dtype.F32.At(c.Data, 40*i+j), float64((i+1)*((40*i+j)%9+1)); got != want {
				t.Fatalf("C[%d][%d] is %v, want %v", i, j, got, want)
			}
		}
	}
}

// TestOwnKeepsButton checks that the form stays when pasted text loses the focus. If it were
// replaced while the mouse is pressed on its button, the click would be lost.
func TestOwnKeepsButton(t *testing.T) {
	b, url := open(t)
	visit(b, url+"#own", ready["own"])
	text, err := os.ReadFile("../testdata/compilers/nvcc.ptx")
	if err != nil {
		t.Fatal(err)
	}
	paste(b, string(text))
	b.Wait(`document.querySelector("#own-form select")?.selectedOptions[0].textContent === "matmul"`)
	var replaced bool
	b.Eval(`(async () => {
		let replaced = false;
		new MutationObserver(() => replaced = true).observe(document.querySelector("#own-form"), {childList: true});
		document.querySelector("#own-ptx").dispatchEvent(new Event("change"));
		await new Promise(done => setTimeout(done, 1000));
		return replaced;
	})()`, &replaced)
	if replaced {
		t.Error("the form is replaced, although the text is the one that was read")
	}
}

// paste copies a text and pastes it over the PTX.
func paste(b *browser.Tab, text string) {
	press := func(key, command string) {
		b.Do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "modifiers": 2, // Ctrl
			"commands": []string{command}}, nil)
	}
	b.Eval(fmt.Sprintf(`(() => {
		const source = document.createElement("textarea");
		source.id = "source";
		source.value = %q;
		document.body.append(source);
		source.focus();
		source.select();
	})()`, text), nil)
	press("c", "copy")
	b.Eval(`(() => {
		document.querySelector("#source").remove();
		const field = document.querySelector("#own-ptx");
		field.focus();
		field.select();
	})()`, nil)
	press("v", "paste")
}

// drop drops a file on an element.
func drop(b *browser.Tab, selector, name string, content []byte) {
	b.Eval(fmt.Sprintf(`(() => {
		const bytes = Uint8Array.from(atob(%q), c => c.charCodeAt(0));
		const dataTransfer = new DataTransfer();
		dataTransfer.items.add(new File([bytes], %q));
		document.querySelector(%q).dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
	})()`, base64.StdEncoding.EncodeToString(content), name, selector), nil)
}

// TestOwnCompilers pastes, drops or chooses PTX of each compiler and runs it with the launch that
// the page suggests. A barrier that is removed then gives a race at the line of the source.
func TestOwnCompilers(t *testing.T) {
	product := func(row, col int) (sum float64) {
		for k := range 32 {
			sum += digit(row, k, 32) * digit(k, col, 32)
		}
		return sum
	}
	scan := func(_, col int) (sum float64) {
		for i := range col + 1 {
			sum += digit(0, i, 1)
		}
		return sum
	}
	softmax := func(row, col int) float64 {
		sum := 0.0
		for i := range 32 {
			sum += math.Exp(digit(row, i, 32))
		}
		return math.Exp(digit(row, col, 32)) / sum
	}
	folder, err := filepath.Abs("../testdata/compilers")
	if err != nil {
		t.Fatal(err)
	}
	b, url := open(t)
	for _, c := range []struct {
		file, kernel string
		input        func(file, text string)
		arguments    int
		want         func(row, col int) float64
		without      int // the barrier that is removed then
		race         string
	}{
		{"nvcc.ptx", "matmul", func(_, text string) { paste(b, text) }, 6, product, 1, "matmul.cu:10"},
		{"clang.ptx", "matmul", func(file, text string) { drop(b, "#own-ptx", file, []byte(text)) }, 6, product, 1,
			"matmul.cu:10"},
		{"numba-scan.ptx", "scan", func(file, _ string) {
			b.Choose(`[aria-label="Open a file with PTX"]`, filepath.Join(folder, file))
		}, 2, scan, 0, "Fault: race"},
		{"triton.ptx", "softmax_kernel", func(_, text string) { paste(b, text) }, 3, softmax, 1, "triton_kernels.py:48"},
	} {
		content, err := os.ReadFile(filepath.Join(folder, c.file))
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		visit(b, url+"#own", ready["own"])
		c.input(c.file, text)
		b.Wait(fmt.Sprintf(`document.querySelector("#own-form select")?.selectedOptions[0].textContent === %q`, c.kernel))
		if c.kernel == "softmax_kernel" { // a block for each row
			b.Eval(`(() => {
				const grid = document.querySelector("#own-form [aria-label='Grid, x']");
				grid.value = 32;
				grid.dispatchEvent(new Event("change"));
			})()`, nil)
		}
		b.Click("#own-form .run .primary")
		b.Wait(`document.querySelector("#own-result .verdict") && document.querySelector("#own-listing .line")`)
		var seen struct {
			Verdict             string
			Findings, Arguments int
			Values              [][]string
		}
		b.Eval(`({Verdict: document.querySelector("#own-result .verdict").className,
			Findings: document.querySelectorAll("#own-result .finding").length,
			Arguments: document.querySelectorAll("#own-form .argument").length,
			Values: [...document.querySelectorAll("#own-result .output tr")].map(r => [...r.children].map(e => e.textContent))})`, &seen)
		if seen.Verdict != "verdict good" || seen.Findings > 0 || seen.Arguments != c.arguments || len(seen.Values) == 0 {
			t.Errorf("%s: got %+v, want %d arguments and no finding", c.file, seen, c.arguments)
		}
		for row, values := range seen.Values {
			for col, text := range values {
				got, err := strconv.ParseFloat(text, 64)
				if want := c.want(row, col); err != nil || math.Abs(got-want) > 1e-5*want {
					t.Errorf("%s: element %d, %d is %s, want %v", c.file, row, col, text, want)
				}
			}
		}
		b.Size(390, 844, "light")
		var needed int
		b.Eval(`document.documentElement.scrollWidth`, &needed)
		if b.Size(1400, 1000, "light"); needed > 390 {
			t.Errorf("%s: the page is %d pixels wide on a phone", c.file, needed)
		}
		const barrier = "\tbar.sync \t0;\n"
		parts := strings.SplitN(text, barrier, c.without+2)
		paste(b, strings.Join(parts[:c.without+1], barrier)+parts[c.without+1])
		b.Wait(`document.querySelector("#own-form .argument") && !document.querySelector("#own-result .verdict")`)
		b.Click("#own-form .run .primary")
		b.Wait(fmt.Sprintf(`document.querySelector("#own-result .finding.error")?.textContent.includes(%q)`, c.race))
	}
}
