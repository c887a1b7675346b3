//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package dl

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestSearchPath checks that every entry that does not begin with a slash is refused, even if no
// folder has that name.
func TestSearchPath(t *testing.T) {
	for path, want := range map[string]string{ // the refused entry, quoted, or nothing
		"": "", "/usr/lib": "", "/usr/lib:/opt/lib;/usr/lib64": "", "/opt/$LIB": "", "/usr/local/nvidia/lib64": "",
		":": `""`, "/usr/lib:": `""`, ":/usr/lib": `""`, "/a::/b": `""`, "/a;": `""`, "/a\n/b\n": `""`,
		".": `"."`, "lib": `"lib"`, "/usr/lib:lib[": `"lib["`, "/usr/lib;./lib": `"./lib"`, " /usr/lib": `" /usr/lib"`,
		"$LIB": `"$LIB"`, "/a:${ORIGIN}/b": `"${ORIGIN}/b"`, "$PLATFORM": `"$PLATFORM"`, "/a\nlib": `"lib"`,
	} {
		for _, variable := range []string{"FIRST", "SECOND"} {
			err := checkSearchPath([]string{"FIRST", "SECOND"}, func(name string) string {
				return map[string]string{variable: path}[name]
			})
			if want == "" && err != nil {
				t.Errorf("%s=%q: %v", variable, path, err)
			}
			text := variable + " has the relative entry " + want
			if want != "" && (!errors.Is(err, ErrSearchPath) || !strings.Contains(err.Error(), text)) {
				t.Errorf("%s=%q: got error %v, want one about the entry %s", variable, path, err, want)
			}
		}
	}
}

// TestOpenNeedsSafeSearch checks that no library is opened, also by an absolute path, if the search
// path is unsafe.
func TestOpenNeedsSafeSearch(t *testing.T) {
	defer func(before error) { errSearchPath = before }(errSearchPath)
	errSearchPath = checkSearchPath([]string{"PATH"}, func(string) string { return ":" })
	for _, file := range []string{FileName("m", "6"), "/nowhere/libnone.so"} {
		if _, err := Open(file, Local); !errors.Is(err, ErrSearchPath) {
			t.Errorf("%s: got error %v, want %v", file, err, ErrSearchPath)
		}
	}
	s := &Source{Env: "TILEWORK_TEST_LIBRARY", Stems: []string{"m"}, Versions: []string{"6"}}
	if _, err := s.Load(""); !errors.Is(err, ErrSearchPath) {
		t.Errorf("search: got error %v, want %v", err, ErrSearchPath)
	}
}

// TestSearchDirs checks that the folders of wheels are found in an environment of any name.
func TestSearchDirs(t *testing.T) {
	env := filepath.Join(t.TempDir(), "env[")
	wheel := filepath.Join(env, "lib", "python3.13", "site-packages", "nvidia", "nccl", "lib")
	if err := os.MkdirAll(wheel, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VIRTUAL_ENV", env)
	if dirs := searchDirs(); runtime.GOOS == "linux" && !slices.Contains(dirs, wheel) {
		t.Errorf("got folders %q, want %s too", dirs, wheel)
	}
}
