package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework/internal/testkit"
)

type sample struct {
	Rates []float64
	Name  string
}

var value = sample{[]float64{1.5, 1e300}, "H200 <&>"}

func TestPutGet(t *testing.T) {
	dir := t.TempDir()
	c := At(dir)
	var got sample
	if c.Get("a", &got) {
		t.Error("an empty cache returned an entry")
	}
	if err := c.Put("a", value); err != nil {
		t.Fatal(err)
	}
	if !At(dir).Get("a", &got) || fmt.Sprint(got) != fmt.Sprint(value) {
		t.Errorf("got %v, want %v", got, value)
	}
	if c.Get("b", &got) {
		t.Error("Get returned the entry of another key")
	}
	if err := c.Put("a", sample{Name: "newer"}); err != nil || !c.Get("a", &got) || got.Name != "newer" {
		t.Errorf("second Put: %v, %v", got, err)
	}
	if err := c.Put("long", strings.Repeat("x", maxEntry)); err == nil {
		t.Error("Put accepted an entry that is too long")
	}
	if err := c.Put("unordered", math.NaN()); err == nil || c.Get("unordered", new(float64)) {
		t.Errorf("Put of a value without JSON: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, version, "new-*")); len(files) > 0 {
		t.Errorf("temporary files: %v", files)
	}
}

// TestDamaged checks that damaged files are not read as entries.
func TestDamaged(t *testing.T) {
	c := At(t.TempDir())
	if err := c.Put("a", value); err != nil {
		t.Fatal(err)
	}
	path := c.path("a")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got sample
	for n := range good {
		if write(good[:n]); c.Get("a", &got) {
			t.Fatalf("the first %d of %d bytes are read as an entry", n, len(good))
		}
		changed := bytes.Clone(good)
		changed[n] ^= 1
		if write(changed); c.Get("a", &got) && fmt.Sprint(got) != fmt.Sprint(value) {
			t.Fatalf("with byte %d changed, the value is %v", n, got)
		}
	}
	for _, old := range []entry{
		{Version: "v0", Key: "a", Sum: checksum([]byte("{}")), Value: json.RawMessage("{}")},
		{Version: version, Key: "b", Sum: checksum([]byte("{}")), Value: json.RawMessage("{}")},
		{Version: version, Key: "a", Sum: checksum([]byte("7")), Value: json.RawMessage("7")}, // not a sample
	} {
		b, err := json.Marshal(old)
		if err != nil {
			t.Fatal(err)
		}
		if write(b); c.Get("a", &got) {
			t.Errorf("%s is read as an entry", b)
		}
	}
	if write(append(good, bytes.Repeat([]byte{' '}, maxEntry)...)); c.Get("a", &got) {
		t.Error("a file that is too long is read as an entry")
	}
	if err := c.Put("a", value); err != nil || !c.Get("a", &got) {
		t.Errorf("Put over a damaged file: %v", err)
	}
}

// TestUnwritable checks a cache that cannot be written and one that is off.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got sample
	c := At(file) // not a directory
	if err := c.Put("a", value); err == nil || c.Get("a", &got) {
		t.Errorf("a file as the directory: %v", err)
	}
	locked := At(file)
	if unlock, err := locked.Lock(t.Context(), nil); err != nil || len(locked.Problems()) != 1 {
		t.Errorf("Lock: %v, problems %q", err, locked.Problems())
	} else {
		unlock()
	}
	ran := 0
	c.Exclusive(func() { ran++ })
	var off *Cache
	off.Exclusive(func() { ran++ })
	if err := off.Put("a", value); err != nil || off.Get("a", &got) || ran != 2 {
		t.Errorf("off: %v, %d ran", err, ran)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for setting, want := range map[string]string{"off": "", dir: filepath.Join(dir, version)} {
		t.Setenv(EnvVar, setting)
		got := ""
		if c := Open(); c != nil {
			got = c.dir
		}
		if got != want {
			t.Errorf("%s=%s: %q, want %q", EnvVar, setting, got, want)
		}
	}
	t.Setenv(EnvVar, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	t.Setenv("LocalAppData", "")
	if c := Open(); c != nil {
		t.Errorf("without a cache directory: %v", c)
	}
}

// TestProcesses starts several processes that need the same measurement. Only one of them must
// measure.
func TestProcesses(t *testing.T) {
	const child = "TILEWORK_TEST_CACHE_CHILD"
	if dir := os.Getenv(child); dir != "" {
		measureOnce(t, At(dir))
		return
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), child+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	log, err := os.ReadFile(filepath.Join(dir, "measured"))
	if err != nil || string(log) != "once\n" {
		t.Errorf("measurements: %q, %v, want one", log, err)
	}
}

func measureOnce(t *testing.T, c *Cache) {
	c.Exclusive(func() {
		var got sample
		if c.Get("a", &got) {
			return
		}
		f, err := os.OpenFile(filepath.Join(c.dir, "..", "measured"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(f, "once")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // until the other processes wait
		if err := c.Put("a", value); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSection checks that All and Clear of a section do not affect other entries, and that Problems
// lists damaged entries.
func TestSection(t *testing.T) {
	c := At(t.TempDir())
	section := c.Section("some")
	for _, x := range []struct {
		in  *Cache
		key string
	}{{c, "a"}, {section, "b"}, {section, "c"}} {
		if err := x.in.Put(x.key, value); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() (all []string) {
		section.All(func(key string, v []byte) {
			var got sample
			if json.Unmarshal(v, &got) != nil || fmt.Sprint(got) != fmt.Sprint(value) {
				t.Errorf("%s: %s", key, v)
			}
			all = append(all, key)
		})
		slices.Sort(all)
		return all
	}
	if got := keys(); fmt.Sprint(got) != "[b c]" || len(c.Problems()) > 0 {
		t.Errorf("entries %v, problems %v", got, c.Problems())
	}
	if err := os.Truncate(section.path("b"), 20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := keys(); fmt.Sprint(got) != "[c]" {
			t.Errorf("with b truncated: %v", got)
		}
	}
	if got := c.Problems(); len(got) != 1 || !strings.HasPrefix(got[0], section.path("b")+": damaged: ") {
		t.Errorf("problems: %q", got)
	}
	if err := errors.Join(section.Remove("c"), section.Remove("c"),
		os.WriteFile(filepath.Join(section.Dir(), "new-1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if n, err := section.Clear(); n != 1 || err != nil {
		t.Errorf("removed %d: %v", n, err)
	}
	var got sample
	if left, err := os.ReadDir(section.Dir()); err != nil || len(left) > 0 || !c.Get("a", &got) {
		t.Errorf("remaining files: %v, %v", left, err)
	}
	var off *Cache
	n, err := off.Section("some").Clear()
	off.All(func(string, []byte) { t.Error("a cache that is off has an entry") })
	if n != 0 || err != nil || off.Dir() != "" || off.Problems() != nil || off.Remove("a") != nil {
		t.Errorf("off: %d, %v", n, err)
	}
}

// TestLock checks that Lock waits until its context ends, and calls waiting once.
func TestLock(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("no file locks on " + runtime.GOOS)
	}
	c := At(t.TempDir())
	unlock, err := c.Lock(t.Context(), func() { t.Error("Lock waits for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	if _, err := c.Lock(ctx, func() { waits++; cancel() }); !errors.Is(err, context.Canceled) || waits != 1 {
		t.Errorf("%v after %d waits", err, waits)
	}
	again, err := c.Lock(t.Context(), unlock)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// TestDecodeIsLinear checks for each kind of token that the bytes that decode allocates grow with
// the length of the entry, up to the longest one.
func TestDecodeIsLinear(t *testing.T) {
	for _, c := range []struct{ start, token, end string }{
		{`{"key":"`, "x", `"}`}, {`{"key":"`, `\u0041`, `"}`}, {`{"key":"`, "\xff", `"}`}, {`{"`, "x", `":1}`},
		{`{`, `"key":"",`, `"key":""}`}, {`{`, `"x":1,`, `"x":1}`}, {`{"value":[`, "1,", "1]}"}, {`{"value":`, "[", ""},
		{`{"value":`, `{"":`, ""}, {`{"value":`, "1", "}"}, {`{"value":`, " ", "1}"}, {"", " ", "{}"}, {"{}", " ", ""},
	} {
		input := func(n int) string {
			n -= len(c.start) + len(c.end)
			return c.start + strings.Repeat(c.token, n/len(c.token)) + c.end
		}
		lengths := []int{maxEntry / 8, maxEntry / 4, maxEntry / 2, maxEntry}
		testkit.CheckLinear(t, c.start+c.token+"…", lengths, 64, input, func(text string) uint64 {
			return testkit.Allocated(func() { decode([]byte(text)) }) // with or without an error
		})
	}
}

// TestLongFile checks that a file longer than an entry costs no more than the longest entry.
func TestLongFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long")
	for _, n := range testkit.Lengths() {
		if err := os.WriteFile(path, make([]byte, n+1), 0o600); err != nil {
			t.Fatal(err)
		}
		took := testkit.Allocated(func() {
			if _, _, err := read(path); err == nil {
				t.Errorf("a file of %d bytes is an entry", n+1)
			}
		})
		if took > 8*maxEntry {
			t.Errorf("%d bytes allocated for a file of %d, want at most %d", took, n+1, 8*maxEntry)
		}
	}
}

// TestClearFails checks that the error of Clear has a line for each entry that cannot be removed,
// and that eight times as many lines take at most 16 times the memory.
func TestClearFails(t *testing.T) {
	cost := func(entries int) uint64 {
		c := At(t.TempDir())
		for i := range entries {
			if err := os.MkdirAll(filepath.Join(c.dir, fmt.Sprint(i, ".json"), "full"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		text := ""
		took := testkit.Allocated(func() {
			n, err := c.Clear()
			if text = fmt.Sprint(err); n > 0 {
				t.Errorf("%d entries are removed, want none", n)
			}
		})
		if n := strings.Count(text, "\n") + 1; n != entries {
			t.Errorf("%d lines, want %d", n, entries)
		}
		return took
	}
	if few, many := cost(50), cost(400); many > 16*few {
		t.Errorf("%d bytes allocated for 50 lines and %d for 400", few, many)
	}
}

// FuzzDecode checks that decode accepts only files with the right version and checksum.
func FuzzDecode(f *testing.F) {
	good, err := encode("a", value)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":"v1","key":"a","sum":"","value":null}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var key string
		var v []byte
		var err error
		// JSON decoding takes several times the memory of the input.
		testkit.CheckCost(t, len(b), 64, func() { key, v, err = decode(b) })
		if err != nil {
			return
		}
		var e entry
		if err := json.Unmarshal(b, &e); err != nil || e.Key != key || e.Version != version || e.Sum != checksum(v) ||
			len(b) > maxEntry {
			t.Errorf("%q is decoded as the entry of %q: %s", b, key, v)
		}
	})
}
