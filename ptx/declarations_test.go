package ptx

import (
	"strings"
	"testing"
)

// declarations lists declarations with the message of Verify, or with "" for those that it accepts.
var declarations = []struct{ text, want string }{
	{".global .b32 x[2] = {1, 2}, y, z = 3;", ""},
	{".global .v2 .f32 x[2] = {{1.0, 2.0}, {3.0, 4.0}};", ""},
	{".global .b32 x[2][2] = {{1}, {2, 3}};", ""},
	{".global .b32 x[] = {1, 2};", ""},
	{".global .b32 x = {1};", "x: initial value: more braces than dimensions"},
	{".global .b32 x[2] = 1;", "x: initial value: found 1, want a list in braces"},
	{".global .b32 x[2][3] = {1, 2};", "x: initial value: found 1, want a list in braces"},
	{".global .v2 .f32 x = 1.0;", "x: initial value: found 0d3FF0000000000000, want a list in braces"},
	{".global .b32 x[2] = {1, 2, 3};", "x: initial value: 3 values, want at most 2"},
	{".global .b32 x[] = {};", "x: an array has no elements"},
	{".global .b32 x[0];", "x: an array has no elements"},
	{".extern .shared .b8 x[0];", ""},
	{".global .b8 x[4194304][4194304];", "x: a variable of 1.76e+13 bytes, want at most 1.1e+12"},
	{".global .b32 x[2147483647][2147483647][2147483647];",
		"x: a variable of 3.96e+28 bytes, want at most 1.1e+12"},

	{".global .u64 x[2] = {x, x+8};", ""},
	{".global .u64 x = generic(x)+8;", ""},
	{".global .u32 x = x;", ""},
	{".global .u8 x[2] = {0xFF(generic(x)), 0xFF00(x)};", ""},
	{".func f() { ret; } .global .u64 x = f;", ""},
	{".global .b8 x[2] = {0xFF(generic(x))};",
		"x: initial value: the type of an address is .b8, want .u32 or .u64, or .u8 with a mask"},
	{".global .u64 x = y;", "x: initial value: y is neither a variable nor a function"},
	{".global .s64 x = x;", "x: initial value: the type of an address is .s64, want .u32 or .u64, or .u8 with a mask"},
	{".global .u16 x = 0xFF(x);",
		"x: initial value: the type of an address is .u16, want .u32 or .u64, or .u8 with a mask"},
	{".global .f32 x = x;", "x: initial value: the type of an address is .f32, want .u32 or .u64, or .u8 with a mask"},
	{".global .u8 x = 0xFFFF(x);",
		"x: initial value: mask 0xffff does not select one byte, want 0xFF, 0xFF00 and so on"},
	{".global .u8 x = 0x1FE(x);",
		"x: initial value: mask 0x1fe does not select one byte, want 0xFF, 0xFF00 and so on"},
	{".func f() { ret; } .global .u64 x = f+8;",
		"x: initial value: found f+8, want f alone for the address of a function"},
	{".func f() { ret; } .global .u64 x = generic(f);",
		"x: initial value: found generic(f), want f alone for the address of a function"},
	{".shared .b32 s; .global .u64 x = generic(s);",
		"x: initial value: s is in .shared, want a variable in .global or .const"},

	{".extern .global .b32 x; .visible .global .b32 x = 3;", ""},
	{".visible .global .b32 x = 3; .extern .global .b32 x; .global .u64 y = x;", ""},
	{".extern .global .b32 x[]; .visible .global .b32 x[4];", ""},
	{".extern .global .b32 x; .global .b32 x;", "x is already declared, as a variable"},
	{".extern .global .b32 x; .visible .global .b64 x;", "x is already declared, as a variable"},
	{".extern .global .b32 x[8]; .visible .global .b32 x[4];", "x is already declared, as a variable"},
	{".extern .global .v2 .b32 x; .visible .global .b32 x[2];", "x is already declared, as a variable"},
	{".extern .global .b32 x[4][2]; .visible .global .b32 x[2][4];", "x is already declared, as a variable"},
	{".extern .global .b32 x[]; .visible .global .b32 x[4][2];", "x is already declared, as a variable"},
	{".extern .global .b32 x[]; .visible .global .b32 x;", "x is already declared, as a variable"},
	{".extern .global .b32 x[][2]; .visible .global .b32 x[4][2];", ""},
	{".extern .global .b32 x[8]; .extern .global .b32 x[]; .visible .global .b32 x[8];", ""},
	{".extern .global .b32 x[8]; .extern .global .b32 x[]; .visible .global .b32 x[4];",
		"x is already declared, as a variable"},
	{".extern .global .b32 x[]; .extern .global .b32 x[8]; .visible .global .b32 x[4];",
		"x is already declared, as a variable"},
	{".visible .global .b32 x[4]; .extern .global .b32 x[]; .extern .global .b32 x[8];",
		"x is already declared, as a variable"},
	{".extern .global .b32 x = 3;", "x: an .extern variable is initialized"},
	{".common .global .b32 x;", ""},
	{".common .const .b32 x;", "x: a .common variable is in .const, want .global"},

	{".func f(); .func f() { ret; }", ""},
	{".weak .func f(); .weak .func f() { ret; }", ""},
	{".visible .func f(); .func f() { ret; }", ""},
	{".func f() { ret; } .func f();", "f is already declared, as a function"},
	{".func f(); .visible .func f() { ret; }", "f is already declared, as a function"},
	{".extern .func f(); .func f() { ret; }", "f is already declared, as a function"},
	{".extern .func f() { ret; }", "f: an .extern function has a body, want none"},
	{".extern .entry f() { ret; }", "f: an .extern function has a body, want none"},
	{".common .func f() { ret; }", "f: a function is declared .common, which is for variables"},

	{".entry k(.param .b8 a[4], .param .f64 b) { ret; }", ""},
	{".entry k(.param .b8 a[]) { ret; }", "a: the parameter is an array without a length, want one"},
	{".func f(.param .b8 b, .param .b8 a[]) { ret; }", ""},
	{".func f(.param .b8 a[], .param .b8 b) { ret; }", "a: the parameter is an array without a length, want one"},
	{".func (.param .b8 a[]) f() { ret; }", "a: the result is an array without a length, want one"},
	{".func f(.param .v2 .f32 a) { ret; }", "a: the parameter is a vector, want a scalar or an array"},
	{".func f(.reg .v2 .f32 a) { ret; }", ""},
	{".entry k() { .param .b8 a[4]; st.param.b32 [a], 1; ret; }", ""},
	{".entry k() { .param .b8 a[]; st.param.b32 [a], 1; ret; }", "a: the array has no length, want one"},
	{".entry k() { .param .b8 a[0]; ret; }", "a: the array has no length, want one"},

	{".entry k() .maxntid 128, 2 .minnctapersm 2 .maxnreg 32 { ret; }", ""},
	{".entry k() .reqntid 128 .reqnctapercluster 2 .explicitcluster { ret; }", ""},
	{".entry k() .maxntid 128 .reqntid 128 { ret; }", "k: .maxntid and .reqntid: want one of them"},
	{".entry k() .reqnctapercluster 2 .maxclusterrank 4 { ret; }",
		"k: .reqnctapercluster and .maxclusterrank: want one of them"},
	{".entry k() .reqntid 1, 0 { ret; }", "k: .reqntid [1 0]: want at least 1"},
	{".entry k() .minnctapersm 0 { ret; }", "k: .minnctapersm [0]: want at least 1"},
	{".entry k() .noreturn { ret; }", "k: .noreturn is allowed only for a .func"},
	{".func f() .noreturn { trap; }", ""},
	{".func f() .maxnreg 32 { ret; }", "f: .maxnreg is allowed only for an .entry"},
}

// verifyText returns the first message of Verify about text, without the position.
func verifyText(t *testing.T, text string) string {
	t.Helper()
	m, err := Parse("k", header+text)
	if err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, m)
	if err = Verify(m); err == nil {
		return ""
	}
	return err.(Errors)[0].Msg
}

func TestDeclarations(t *testing.T) {
	for _, d := range declarations {
		if got := verifyText(t, d.text); got != d.want {
			t.Errorf("%s:\n got %q\nwant %q", d.text, got, d.want)
		}
	}
}

// TestDeclarationsAgainstPtxas checks that the assembler accepts the same declarations as Verify,
// except for the size of a variable, which it does not limit.
func TestDeclarationsAgainstPtxas(t *testing.T) {
	t.Parallel()
	path := findPtxas(t)
	for _, d := range declarations {
		if strings.Contains(d.want, "bytes, want at most") {
			continue
		}
		err := assembles(t, path, Target{SM: 90, Suffix: "a"}, header+d.text)
		if (err == nil) != (d.want == "") {
			t.Errorf("%s: Verify: %q, the assembler: %v", d.text, d.want, err)
		}
	}
}
