package ptx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Version is a PTX ISA version, encoded as ten times the major number plus the minor number: 80
// is `.version 8.0`.
type Version int

// String returns v in the notation of .version, such as "8.0".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v/10, v%10) }

// ParseVersion parses a version such as "8.0".
func ParseVersion(s string) (Version, bool) {
	major, minor, ok := strings.Cut(s, ".")
	if !ok || len(minor) != 1 || len(major) == 0 || len(major) > 2 {
		return 0, false
	}
	v, err := strconv.ParseUint(major+minor, 10, 16)
	return Version(v), err == nil
}

// Target is a GPU architecture, or the architecture that an instruction requires.
type Target struct {
	SM int // 90 is sm_90
	// Suffix is "a" for features that only this architecture has ("sm_90a"), "f" for those that
	// only its family has, and otherwise empty.
	Suffix string
}

// String returns t in the notation of .target, such as "sm_90a".
func (t Target) String() string { return fmt.Sprintf("sm_%d%s", t.SM, t.Suffix) }

// ParseTarget parses a target such as "sm_90a".
func ParseTarget(s string) (Target, bool) {
	digits, ok := strings.CutPrefix(s, "sm_")
	if !ok {
		return Target{}, false
	}
	suffix := ""
	if n := len(digits); n > 0 && (digits[n-1] == 'a' || digits[n-1] == 'f') {
		digits, suffix = digits[:n-1], digits[n-1:]
	}
	sm, err := strconv.ParseUint(digits, 10, 12)
	return Target{SM: int(sm), Suffix: suffix}, err == nil
}

// Has reports whether code compiled for t can use features that require need. The family of a need
// with the suffix "f" consists of the architectures with the same first digits, such as sm_100 and
// sm_103.
func (t Target) Has(need Target) bool {
	switch need.Suffix {
	case "":
		return t.SM >= need.SM
	case "f":
		return t.Suffix != "" && t.SM/10 == need.SM/10 && t.SM >= need.SM
	}
	return t == need
}

// targets lists the supported architectures, oldest first, each with the first version of PTX
// that supports it (manual: "ptx-module-directives-target"). The list starts with PTX 2.3 and
// sm_20, the first with 64-bit addresses.
var targets = []struct {
	Target
	Version Version
}{
	{Target{SM: 20}, 23}, {Target{SM: 21}, 23},
	{Target{SM: 30}, 30}, {Target{SM: 32}, 40}, {Target{SM: 35}, 31}, {Target{SM: 37}, 41},
	{Target{SM: 50}, 40}, {Target{SM: 52}, 41}, {Target{SM: 53}, 42},
	{Target{SM: 60}, 50}, {Target{SM: 61}, 50}, {Target{SM: 62}, 50},
	{Target{SM: 70}, 60}, {Target{SM: 72}, 61}, {Target{SM: 75}, 63},
	{Target{SM: 80}, 70}, {Target{SM: 86}, 71}, {Target{SM: 87}, 74}, {Target{SM: 88}, 90}, {Target{SM: 89}, 78},
	{Target{SM: 90}, 78}, {Target{SM: 90, Suffix: "a"}, 80},
	{Target{SM: 100}, 86}, {Target{SM: 100, Suffix: "a"}, 86}, {Target{SM: 100, Suffix: "f"}, 88},
	{Target{SM: 103}, 88}, {Target{SM: 103, Suffix: "a"}, 88}, {Target{SM: 103, Suffix: "f"}, 88},
	{Target{SM: 110}, 90}, {Target{SM: 110, Suffix: "a"}, 90}, {Target{SM: 110, Suffix: "f"}, 90},
	{Target{SM: 120}, 87}, {Target{SM: 120, Suffix: "a"}, 87}, {Target{SM: 120, Suffix: "f"}, 88},
	{Target{SM: 121}, 88}, {Target{SM: 121, Suffix: "a"}, 88}, {Target{SM: 121, Suffix: "f"}, 88},
}

// MinVersion returns the first version of PTX that supports t. ok is false if t is not a
// supported architecture.
func (t Target) MinVersion() (v Version, ok bool) {
	for _, row := range targets {
		if row.Target == t {
			return row.Version, true
		}
	}
	return 0, false
}

// Need is a requirement: the lowest version and architecture that support a feature.
type Need struct {
	Version Version
	Target  Target
	// Others holds later architectures that support a feature that Target and its family have.
	Others [3]Target
}

// parseNeed parses a requirement, such as "8.6" and "sm_100f|sm_110f".
func parseNeed(version, targets string) (n Need, err error) {
	var ok bool
	if n.Version, ok = ParseVersion(version); !ok {
		return n, fmt.Errorf("bad version %q", version)
	}
	for i, text := range strings.Split(targets, "|") {
		t, ok := ParseTarget(text)
		switch {
		case !ok || i > len(n.Others):
			return n, fmt.Errorf("bad targets %q", targets)
		case i == 0:
			n.Target = t
		default:
			n.Others[i-1] = t
		}
	}
	return n, nil
}

// need is like parseNeed for requirements that are constants. It panics on an error.
func need(version, targets string) Need {
	n, err := parseNeed(version, targets)
	if err != nil {
		panic(fmt.Sprintf("ptx: %s, %s: %v", version, targets, err))
	}
	return n
}

// supportedBy reports whether code compiled for t can use the feature.
func (n Need) supportedBy(t Target) bool {
	return t.Has(n.Target) || slices.ContainsFunc(n.Others[:], func(o Target) bool { return o.SM > 0 && t.Has(o) })
}

// targets lists the architectures, such as "sm_90a, sm_100f or sm_120f".
func (n Need) targets() string {
	text := n.Target.String()
	for i, o := range n.Others {
		switch {
		case o.SM == 0:
		case i+1 < len(n.Others) && n.Others[i+1].SM > 0:
			text += ", " + o.String()
		default:
			text += " or " + o.String()
		}
	}
	return text
}

// and returns the requirement of code that uses the features of both n and m.
func (n Need) and(m Need) Need {
	n.Version = max(n.Version, m.Version)
	switch {
	case m.Target == n.Target && m.Others != n.Others:
		n.Others = [3]Target{}
	case m.Target.SM > n.Target.SM,
		m.Target.SM == n.Target.SM && (m.Target.Suffix == "a" || n.Target.Suffix == ""):
		n.Target, n.Others = m.Target, m.Others
	}
	return n
}
