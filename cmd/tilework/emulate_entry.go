package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tilework/internal/names"
	"tilework/ptx/emu"
)

// entryNames are the names of a program's kernels.
type entryNames struct {
	entries  []string            // those that the emulator can run, sorted
	refused  map[string]error    // the others
	bySource map[string][]string // all, by their names in the source code
}

func entriesOf(p *emu.Program) *entryNames {
	k := &entryNames{p.Entries(), p.Refused(), map[string][]string{}}
	for _, name := range slices.Concat(k.entries, slices.Sorted(maps.Keys(k.refused))) {
		source := sourceName(name)
		k.bySource[source] = append(k.bySource[source], name)
	}
	return k
}

// has reports whether the emulator can run the kernel.
func (k *entryNames) has(name string) bool {
	_, ok := slices.BinarySearch(k.entries, name)
	return ok
}

// chooseEntry returns the name of the kernel that the launch names, also as in the source code.
func (l *kernelLaunch) chooseEntry(file string, kernels *entryNames) (string, error) {
	entries, refused := kernels.entries, kernels.refused
	if l.Entry != "" && !kernels.has(l.Entry) && refused[l.Entry] == nil {
		switch same := kernels.bySource[l.Entry]; len(same) {
		case 0:
		case 1:
			l.Entry = same[0]
		default:
			return "", l.wrong("entry", fmt.Errorf("%s: %s has several kernels of this name, want one of %s", l.Entry, file,
				strings.Join(same, ", ")))
		}
	}
	if err := refused[l.Entry]; err != nil {
		return "", l.wrong("entry", fmt.Errorf("%s: the emulator cannot run this kernel: %w", l.Entry, err))
	}
	switch {
	case len(entries) == 0:
		return "", fmt.Errorf("%s has no kernel (.entry)", file)
	case l.Entry != "" && !kernels.has(l.Entry):
		return "", l.wrong("entry", fmt.Errorf("of %s: %w", file, names.Unknown("kernel", l.Entry, entries)))
	case l.Entry != "":
		return l.Entry, nil
	case len(entries) == 1:
		return entries[0], nil
	}
	more := ""
	if len(refused) > 0 {
		more = fmt.Sprintf(" (%d %s cannot run: see --list)", len(refused), plural("other", len(refused)))
	}
	want := "--entry with"
	if l.place != "" {
		want = "an entry,"
	}
	return "", l.in(fmt.Errorf("%s has %d kernels: want %s one of %s%s",
		file, len(entries), want, strings.Join(entries, ", "), more))
}

// sourceName returns the name of a C++ function that the compiler has mangled, without its
// namespaces: scale for _Z5scaleIfEvPT_i, and for _ZN4math5scaleEPfi.
func sourceName(mangled string) string {
	name := ""
	rest, ok := strings.CutPrefix(mangled, "_Z")
	rest = strings.TrimLeft(rest, "LN") // static, and in a namespace
	for ok {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || digits+n > len(rest) {
			break
		}
		name, rest = rest[digits:digits+n], rest[digits+n:]
	}
	return name
}
