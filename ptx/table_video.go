package ptx

import (
	"fmt"
	"regexp"
	"strings"
)

// Current GPUs compute video instructions in software. clang emits those on two halves and four
// bytes for __vadd4 and its like.

// simdVideoOps lists the video instructions on two halves or four bytes.
var simdVideoOps = strings.Fields(
	"vadd2 vadd4 vsub2 vsub4 vavrg2 vavrg4 vabsdiff2 vabsdiff4 vmin2 vmin4 vmax2 vmax4 vset2 vset4")

// videoForms returns the rows of the video instructions. Most have the same forms except for
// comparisons.
func videoForms() string {
	var b strings.Builder
	for _, op := range simdVideoOps {
		if strings.HasPrefix(op, "vset") {
			fmt.Fprintf(&b, `
# simd-video-instructions-%[1]s: d = whether a compares with b, for each half or byte, or the number of them that do plus c
3.0 sm_30 %[1]s.atype=int32.btype=int32.cmp=eq|ne|lt|le|gt|ge{.add} d@:u32, a@:atype, b@:btype, c:u32
`, op)
			continue
		}
		names := "vadd4-vsub4-vavrg4-vabsdiff4-vmin4-vmax4"
		if strings.HasSuffix(op, "2") {
			names = strings.ReplaceAll(names, "4", "2")
		}
		fmt.Fprintf(&b, `
# simd-video-instructions-%[2]s: d = the operation on each half or byte, or the sum of the results plus c
3.0 sm_30 %[1]s.dtype=int32.atype=int32.btype=int32{.sat} d@:dtype, a@:atype, b@:btype, c:u32
3.0 sm_30 %[1]s.dtype=int32.atype=int32.btype=int32.add d@:dtype, a@:atype, b@:btype, c:u32
`, op, names)
	}
	for _, row := range []struct{ ops, section, mods, doc string }{
		{"vadd vsub vabsdiff vmin vmax", "vadd-vsub-vabsdiff-vmin-vmax", "dtype=int32.atype=int32.btype=int32{.sat}",
			"the operation on parts of a and b"},
		{"vshl vshr", "vshl-vshr", "dtype=int32.atype=int32.btype=u32{.sat}.mode=clamp|wrap",
			"a part of a shifted by one of b"},
		{"vset", "vset", "atype=int32.btype=int32.cmp=eq|ne|lt|le|gt|ge", "whether a part of a compares with one of b"},
	} {
		dtype := "dtype"
		if row.ops == "vset" {
			dtype = "u32"
		}
		for _, op := range strings.Fields(row.ops) {
			fmt.Fprintf(&b, `
# scalar-video-instructions-%[2]s: d = %[4]s, combined with c, or merged into c
2.3 sm_20 %[1]s.%[3]s d:%[5]s, a@:atype, b@:btype
2.3 sm_20 %[1]s.%[3]s d@:%[5]s, a@:atype, b@:btype, c:%[5]s
2.3 sm_20 %[1]s.%[3]s.op2=add|min|max d:%[5]s, a@:atype, b@:btype, c:%[5]s
`, op, row.section, row.mods, row.doc, dtype)
		}
	}
	return b.String() + `
# scalar-video-instructions-vmad: d = the product of parts of a and b, plus c, and 1 with .po, shifted right
2.3 sm_20 vmad.dtype=int32.atype=int32.btype=int32{.sat}{.scale=shr7|shr15} d:dtype, -a@:atype, -b@:btype, -c:dtype
2.3 sm_20 vmad.dtype=int32.atype=int32.btype=int32.po{.sat}{.scale=shr7|shr15} d:dtype, a@:atype, b@:btype, c:dtype
`
}

// videoSelectors holds the selectors of halves and bytes by the suffix of the video instruction.
// Those of results are masks in instructions on several halves or bytes.
var videoSelectors = map[string]struct{ result, operand *regexp.Regexp }{
	"":  {regexp.MustCompile("^(b[0-3]|h[01])$"), regexp.MustCompile("^(b[0-3]|h[01])$")},
	"2": {regexp.MustCompile("^h(0|1|10)$"), regexp.MustCompile("^h[0-3]{2}$")},
	"4": {regexp.MustCompile("^b(3?2?1?0|3?2?1|3?2|3)$"), regexp.MustCompile("^b[0-7]{4}$")},
}

// selects reports whether a video instruction has a selector of halves or bytes, for its result or
// for an operand.
func selects(op, selector string, result bool) bool {
	s := videoSelectors[strings.TrimLeft(op, "abcdefghijklmnopqrstuvwxyz")]
	if result {
		return s.result.MatchString(selector)
	}
	return s.operand.MatchString(selector)
}
