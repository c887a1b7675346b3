package host

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestControlGroups reads the limits of control groups of versions 1 and 2 and of their ancestors.
// The reclaimable file cache must not count as used.
func TestControlGroups(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{
		"list": "9:pids:/x\n4:memory:/outer/inner\n0::/a/b\n",
		"memory/outer/inner/memory.usage_in_bytes": "700\n", "memory/outer/inner/memory.limit_in_bytes": "1000\n",
		"memory/outer/inner/memory.stat":     "inactive_file 1\ntotal_inactive_file 200\n",
		"memory/outer/memory.usage_in_bytes": "900\n", "memory/outer/memory.limit_in_bytes": "9223372036854771712\n",
		"a/b/memory.current": "50\n", "a/b/memory.max": "max\n",
		"a/memory.current": "5000\n", "a/memory.max": "4000\n", "a/memory.stat": "anon 5\ninactive_file 2000\n",
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := map[string]uint64{}
	for _, g := range groupsIn(filepath.Join(root, "list"), root) {
		if n, ok := g.free(); ok {
			rel, err := filepath.Rel(root, g.folder)
			if err != nil {
				t.Fatal(err)
			}
			free[rel] = n
		}
	}
	if len(free) != 2 || free["memory/outer/inner"] != 500 || free["a"] != 1000 {
		t.Errorf("free bytes by group: %v", free)
	}
}

// TestEnough checks that the limit named by a process with little address space is enough for a
// process without a limit, which reserves more at its start.
func TestEnough(t *testing.T) {
	// Six threads of a product: the two figures were measured under ulimit -v 1000000, and without a
	// limit.
	const limited, unlimited, started = 973 << 20, 1612 << 20, 6
	if l, want := addressSpace.enough(limited, started, 100), unlimited+runtimeReserve(started)+100; l < want {
		t.Errorf("a limited process wants %d bytes, want at least %d", l, want)
	}
	if l, want := addressSpace.enough(9<<30, started, 100), 9<<30+runtimeReserve(started)+100; l != want {
		t.Errorf("a process that uses 9 GiB wants %d bytes, want %d", l, want)
	}
}

func TestFileSystemOf(t *testing.T) {
	if f, ok := FileSystemOf(t.TempDir()); !ok || f.Free == 0 {
		t.Errorf("%+v, %v", f, ok)
	}
	if f, ok := FileSystemOf("/dev/shm"); ok && (!f.InMemory || f.Memory == 0) {
		t.Errorf("/dev/shm: %+v", f)
	}
	if f, ok := FileSystemOf("/no/such/folder"); ok {
		t.Errorf("FileSystemOf of a missing folder: %+v", f)
	}
}

func TestTightest(t *testing.T) {
	if b, ok := tightest([]budget{{free: 5, of: "a"}, {free: 3, of: "b"}, {free: 4, of: "c"}}); !ok || b.of != "b" {
		t.Errorf("%v, %v", b, ok)
	}
	if _, ok := tightest(nil); ok {
		t.Error("tightest returned true for an empty list")
	}
	if n, ok := Available(); !ok || n == 0 {
		t.Errorf("%d bytes available, %v", n, ok)
	}
	if all := addressBudgets(32); len(all) != 1 || all[0].free == 0 || all[0].free >= 2<<30 {
		t.Errorf("a 32-bit program has %v, want one budget of less than 2 GiB", all)
	}
	if all := addressBudgets(64); all != nil {
		t.Errorf("a 64-bit program has %v, want no limit", all)
	}
	if n, _ := Available(); n > 2*minChecked {
		if err := CheckMemory(minChecked, "the matrix"); err != nil {
			t.Errorf("with %d bytes available: %v", n, err)
		}
	}
	if err := CheckMemory(math.MaxInt, "the matrix"); err == nil {
		t.Error("CheckMemory allows an allocation of math.MaxInt bytes")
	}
}
