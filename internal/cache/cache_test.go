package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func TestKeeps(t *testing.T) {
	dir := t.TempDir()
	c := At(dir)
	var got sample
	if c.Get("a", &got) {
		t.Error("an empty cache has an entry")
	}
	if err := c.Put("a", value); err != nil {
		t.Fatal(err)
	}
	if !At(dir).Get("a", &got) || fmt.Sprint(got) != fmt.Sprint(value) {
		t.Errorf("got %v, want %v", got, value)
	}
	if c.Get("b", &got) {
		t.Error("the entry of one key is that of another")
	}
	if err := c.Put("a", sample{Name: "newer"}); err != nil || !c.Get("a", &got) || got.Name != "newer" {
		t.Errorf("written anew: %v, %v", got, err)
	}
	if err := c.Put("long", strings.Repeat("x", maxEntry)); err == nil {
		t.Error("an entry that cannot be read again is written")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, version, "new-*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// TestDamaged: no file that is not as it was written is an entry, whatever became of it.
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
			t.Fatalf("the first %d of %d bytes are taken for all", n, len(good))
		}
		changed := bytes.Clone(good)
		changed[n] ^= 1
		if write(changed); c.Get("a", &got) && fmt.Sprint(got) != fmt.Sprint(value) {
			t.Fatalf("with byte %d changed the value is %v", n, got)
		}
	}
	for _, old := range []entry{
		{Version: "v0", Key: "a", Sum: checksum([]byte("{}")), Value: json.RawMessage("{}")},
		{Version: version, Key: "b", Sum: checksum([]byte("{}")), Value: json.RawMessage("{}")},
		{Version: version, Key: "a", Sum: checksum([]byte("7")), Value: json.RawMessage("7")}, // no sample
	} {
		b, err := json.Marshal(old)
		if err != nil {
			t.Fatal(err)
		}
		if write(b); c.Get("a", &got) {
			t.Errorf("%s is taken", b)
		}
	}
	if write(append(good, bytes.Repeat([]byte{' '}, maxEntry)...)); c.Get("a", &got) {
		t.Error("a file that is too long is taken")
	}
	if err := c.Put("a", value); err != nil || !c.Get("a", &got) {
		t.Errorf("written over a damaged file: %v", err)
	}
}

// TestNoPlace: where nothing can be kept, nothing is, and work goes on.
func TestNoPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got sample
	c := At(file) // no directory
	if err := c.Put("a", value); err == nil || c.Get("a", &got) {
		t.Errorf("in a file: %v", err)
	}
	ran := 0
	c.Alone(func() { ran++ })
	var off *Cache
	off.Alone(func() { ran++ })
	if err := off.Put("a", value); err != nil || off.Get("a", &got) || ran != 2 {
		t.Errorf("off: %v, %d ran", err, ran)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for setting, want := range map[string]string{"off": "", dir: filepath.Join(dir, version)} {
		t.Setenv(Variable, setting)
		got := ""
		if c := Open(); c != nil {
			got = c.dir
		}
		if got != want {
			t.Errorf("%s=%s: %q, want %q", Variable, setting, got, want)
		}
	}
	t.Setenv(Variable, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	t.Setenv("LocalAppData", "")
	if c := Open(); c != nil {
		t.Errorf("without a home: %v", c)
	}
}

// TestProcesses: of several processes that want the same measurement at once, one
// measures.
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
		t.Errorf("measured: %q, %v", log, err)
	}
}

func measureOnce(t *testing.T, c *Cache) {
	c.Alone(func() {
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
		time.Sleep(50 * time.Millisecond) // for the others to come
		if err := c.Put("a", value); err != nil {
			t.Fatal(err)
		}
	})
}

// TestShelf: a shelf's entries are listed and cleared without the others, and what cannot
// be read is told.
func TestShelf(t *testing.T) {
	c := At(t.TempDir())
	shelf := c.Shelf("some")
	for _, x := range []struct {
		in  *Cache
		key string
	}{{c, "a"}, {shelf, "b"}, {shelf, "c"}} {
		if err := x.in.Put(x.key, value); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() (all []string) {
		shelf.All(func(key string, v []byte) {
			var got sample
			if json.Unmarshal(v, &got) != nil || fmt.Sprint(got) != fmt.Sprint(value) {
				t.Errorf("%s: %s", key, v)
			}
			all = append(all, key)
		})
		slices.Sort(all)
		return all
	}
	if got := keys(); fmt.Sprint(got) != "[b c]" || len(c.Trouble()) > 0 {
		t.Errorf("entries %v, trouble %v", got, c.Trouble())
	}
	if err := os.Truncate(shelf.path("b"), 20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := keys(); fmt.Sprint(got) != "[c]" {
			t.Errorf("with half of b: %v", got)
		}
	}
	if got := c.Trouble(); len(got) != 1 || !strings.HasPrefix(got[0], shelf.path("b")+": damaged: ") {
		t.Errorf("trouble: %q", got)
	}
	if err := errors.Join(shelf.Remove("c"), shelf.Remove("c"), os.WriteFile(filepath.Join(shelf.Dir(), "new-1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if n, err := shelf.Clear(); n != 1 || err != nil {
		t.Errorf("cleared %d: %v", n, err)
	}
	var got sample
	if left, err := os.ReadDir(shelf.Dir()); err != nil || len(left) > 0 || !c.Get("a", &got) {
		t.Errorf("left: %v, %v", left, err)
	}
	var off *Cache
	n, err := off.Shelf("some").Clear()
	off.All(func(string, []byte) { t.Error("an entry of none") })
	if n != 0 || err != nil || off.Dir() != "" || off.Trouble() != nil || off.Remove("a") != nil {
		t.Errorf("off: %d, %v", n, err)
	}
}

// TestLock: it is waited for as long as the caller likes, who is told.
func TestLock(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("files are not locked on " + runtime.GOOS)
	}
	c := At(t.TempDir())
	unlock, err := c.Lock(t.Context(), func() { t.Error("waits for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	waits := 0
	if _, err := c.Lock(ctx, func() { waits++ }); !errors.Is(err, context.DeadlineExceeded) || waits != 1 {
		t.Errorf("%v after %d waits", err, waits)
	}
	time.AfterFunc(20*time.Millisecond, unlock)
	again, err := c.Lock(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// FuzzDecode: whatever a file holds, it is an entry only if its key, version and sum
// say so.
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
		// A number of the list becomes eight bytes, its comma and digit are read twice.
		testkit.Cheap(t, len(b), 64, func() { key, v, err = decode(b) })
		if err != nil {
			return
		}
		var e entry
		if err := json.Unmarshal(b, &e); err != nil || e.Key != key || e.Version != version || e.Sum != checksum(v) || len(b) > maxEntry {
			t.Errorf("%q is read as the entry of %q: %s", b, key, v)
		}
	})
}
