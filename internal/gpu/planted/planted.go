// Package planted lists faults that can be planted in the PTX of the kernels, each with the checker
// that must report it. Tests plant all of them, and tilework study shows some.
package planted

import (
	"fmt"
	"regexp"

	"tilework/dtype"
	"tilework/ptx/emu/check"
)

// Wrong and Refused extend check.Checker. Wrong means that an element of C differs from the
// reference. Refused means that the emulator ended the launch, because of a misused instruction or
// a deadlock.
const (
	Wrong   check.Checker = 255
	Refused check.Checker = 254
)

// Fault describes an edit of a kernel's PTX, and the checker that must report it.
type Fault struct {
	// Kernel is the name of a kernel, with ":" and a tile or "+residual" for an epilogue after it.
	Kernel string
	In     dtype.Type
	Name   string
	// Pattern is a regular expression, and With the replacement of a match. A fault replaces one
	// match, and the checker must report it for every match.
	Pattern, With string
	Finds         check.Checker
	// Orders is the maximum number of block orders to try. It is more than 1 for a fault that has
	// an effect in some orders only.
	Orders uint64
}

// Faults lists the faults. TestPlantedFaults of package gpu plants all of them.
var Faults = []Fault{
	{"tiled", dtype.F32, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"blocked", dtype.F32, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"tiled", dtype.F32, "only some threads arrive at a barrier",
		`\tbar\.sync 0;`, "\tsetp.lt.u32 %p0, %tid_x, 3;\n\t@%p0 bar.sync 0;", check.Barrier, 1},
	{"naive", dtype.F32, "no bounds check of rows", `(setp\.lt\.u32 %p\d+, )%row, %M;`, "${1}0, 1;", check.Bounds, 1},
	{"tiled", dtype.F32, "no bounds check of columns",
		`(setp\.lt\.u32 %p\d+, )%col, %N;`, "${1}0, 1;", check.Bounds, 1},
	{"tiled", dtype.F32, "no zero fill at the edge",
		`(?s)\tmov\.f32 %f0, 0f00000000;\n(.*?)\tmov\.f32 %f1, 0f00000000;\n`, "$1", Wrong, 1},
	{"naive", dtype.F32, "accumulator is not initialized", `\tmov\.f32 %sum, 0f00000000;\n`, "", check.Uninit, 1},
	{"tiled", dtype.F32, "a tile of B is stored transposed",
		`(mad\.lo\.u32 %r\d+, )%tid_y(, \d+, %Bs_s;\n(?:\t\.loc .*\n)*\tmad\.lo\.u32 %r\d+, )%tid_x`,
		"${1}%tid_x${2}%tid_y", Wrong, 1},
	{"blocked", dtype.F32, "a copy writes the stage that is being multiplied",
		`\tmov\.u32 %free, %present;\n`, "", check.Race, 1},
	{"blocked", dtype.F32, "no cp.async.wait_group", `\tcp\.async\.wait_group [1-9];\n`, "", check.Race, 1},
	{"mma", dtype.F64, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"mma", dtype.F64, "no cp.async.wait_group", `\tcp\.async\.wait_group [1-9];\n`, "", check.Race, 1},
	{"mma", dtype.F64, "cp.async.wait_group waits for too few copies", `wait_group 2;`, "wait_group 3;", check.Race, 1},
	{"mma", dtype.F64, "no zero fill past the rows of A",
		`(cp\.async\.\S+ \[%r\d+(?:\+\d{1,4})?\], \[%rd\d+\], 8), %r\d+;`, "$1;", check.Bounds, 1},
	{"mma", dtype.F64, "fragment registers are swapped",
		`(mma\.sync\S+ \{[^}]*\}, \{)(%fd\d+), (%fd\d+)`, "$1$3, $2", Wrong, 1},
	{"mma", dtype.F64, "rows of another lane", `%lane, 2;`, "%lane, 3;", Wrong, 1},
	{"mma", dtype.F16, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"mma", dtype.F16, "no zero fill past the rows of A",
		`(cp\.async\.\S+ \[%r\d+\], \[[^]]*\], 16), %r\d+;`, "$1;", check.Bounds, 1},
	{"mma", dtype.F16, "ldmatrix does not transpose B", `\.trans\.`, ".", Wrong, 1},
	{"mma", dtype.I8, "bytes of other columns", `(prmt\.b32 .*), 25632;`, "$1, 30001;", Wrong, 1},
	{"wgmma", dtype.BF16, "no fence after mbarrier.init", `\tfence\.mbarrier_init\S*;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for a full stage",
		`(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %phase_2;`, "$1, %zero;", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for an empty stage",
		`(?s)^(.*?try_wait\.parity\S+ %p\d+, \[%r\d+\]), %r\d+;`, "$1, %zero;", Refused, 1},
	{"wgmma", dtype.BF16, "no wait for the warpgroup's turn in ping-pong",
		`(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %mine;`, "$1, %zero;", Refused, 1},
	{"wgmma", dtype.BF16, "mbarrier expects too few bytes", `, 24576,`, ", 24448,", Refused, 1},
	{"wgmma", dtype.BF16, "no wgmma.fence", `\twgmma\.fence\S*;\n`, "", Refused, 1},
	{"wgmma", dtype.BF16, "no wgmma.wait_group before a stage is released",
		`\twgmma\.wait_group\S* 1;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no wgmma.wait_group before the epilogue", `\twgmma\.wait_group\S* 0;\n`, "", Refused, 1},
	{"wgmma", dtype.BF16, "a stage is released to only one block of the cluster",
		`cluster\.u32 %r\d+, (%r\d+), %member;`, "cluster.u32 %r120, $1, 0;", Wrong, 1},
	{"wgmma", dtype.BF16, "the block rank is not masked out of B's descriptor",
		`(?s)^(.*and\.b32 %r\d+, %\w+), 262128;`, "$1, -1;", check.Race, 1},
	{"wgmma", dtype.BF16, "the accumulators of the previous tile are kept", `%i_2, 0;`, "%i_2, 99;", Wrong, 1},
	{"wgmma", dtype.BF16, "no proxy fence before the TMA store of C", `\tfence\.proxy\S*;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no barrier before the TMA store of C",
		`(\tfence\.proxy\S*;\n)\tbar\.sync \S+ 128;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "the last epilogue subtile is overwritten during its TMA store",
		`(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 1;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for the last TMA stores",
		`\tcp\.async\.bulk\.wait_group\.read 0;\n`, "", Refused, 1},
	{"wgmma", dtype.BF16, "a block exits before the others have released its stages",
		`(?s)^(.*)\tmbarrier\.try_wait\.parity\S+ (%p\d+), \[%r\d+\], %r\d+;`, "$1\tsetp.eq.u32 $2, %zero, 0;",
		check.Race, 40},
	{"wgmma", dtype.F8E4M3, "no wgmma.fence before a promotion interval",
		`(?s)^(.*?)\twgmma\.fence\S*;\n`, "$1", Refused, 1},
	{"wgmma", dtype.F8E4M3, "no wgmma.wait_group before accumulator promotion",
		`(?s)^(.*?)\twgmma\.wait_group\S* 1;\n`, "$1", Refused, 1},
	{"wgmma", dtype.F8E4M3, "a promotion interval keeps the accumulators of another",
		`(?s)^(.*?\{%odd0, [^;]*), 0, 1, 1;`, "$1, 1, 1, 1;", Wrong, 1},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "no wait for the partial sums of other blocks",
		`(try_wait\.parity\.acquire\.cluster\S+ %p\d+, \[%r\d+\]), %round;`, "$1, 1;", check.Race, 1},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "partial sums are overwritten while other blocks read them",
		`(?s)^(.*?try_wait\.parity\.acquire\.cluster\S+ %p\d+, \[%r\d+\]), %r\d+;`, "$1, 1;", check.Race, 40},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "a block exits before the others have read its partial sums",
		`(?s)^(.*)\tmbarrier\.try_wait\.parity\.acquire\S+ (%p\d+), \[%r\d+\], %r\d+;`,
		"$1\tsetp.eq.u32 $2, %zero, 0;", check.Race, 40},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "no barrier after the partial sums are written",
		`(st\.shared\.v2\.f32 [^\n]*\n)\tbar\.sync \S+ 128;\n`, "$1", check.Race, 1},
	{"wgmma:128x32x64/2x8/2s", dtype.BF16, "accumulators are handed over without release",
		`st\.release\.gpu`, "st.relaxed.gpu", check.Race, 1},
	{"wgmma:128x32x64/2x8/2s", dtype.BF16, "accumulators are taken over without acquire",
		`ld\.acquire\.gpu`, "ld.relaxed.gpu", check.Race, 1},
	{"wgmma:128x32x64/2x8/2s", dtype.BF16, "accumulators are handed over before all lanes have stored theirs",
		`\tbar\.warp\.sync -1;\n((?:\t[^\n]*\n)*?\tst\.release)`, "$1", check.Race, 1},
	{"wgmma:128x32x64/2x8/2s", dtype.BF16, "accumulators that were taken over are lost",
		`\tld\.global\.v4\.f32 [^\n]*\n`, "", Wrong, 1},
	{"wgmma+residual", dtype.BF16, "no wait for the residual",
		`(?s)^(.*?try_wait\.parity\S+ %p\d+, \[[^]]*\]), %came0;`, "$1, 1;", Wrong, 1},
	{"wgmma+residual", dtype.BF16, "the residual is loaded into a subtile during its TMA store",
		`(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 0;\n((?:\t[^\n]*\n){0,8}?\tmbarrier\.arrive\.expect)`,
		"$1$2", check.Race, 1},
	{SwapABTile, dtype.F32, "the wait for a full stage is for the other phase",
		`(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %phase_2;`, "$1, 1;", Refused, 1},
	{SwapABTile, dtype.F32, "fragments are loaded into registers that wgmma reads",
		`\twgmma\.wait_group\S* 1;\n`, "", Refused, 1},
	{SwapABTile, dtype.F32, "a warp releases a stage that its lanes still read",
		`(?s)^(.*?)\tbar\.warp\.sync -1;\n`, "$1", check.Race, 1},
	{SwapABTile, dtype.F32, "one warp releases a stage for all",
		`(mbarrier\.init\S* \[empty\S*\]), 4;`, "$1, 1;", check.Race, 4},
	{SwapABTile, dtype.F32, "no wgmma.fence after the fragments are loaded", `\twgmma\.fence\S*;\n`, "", Refused, 1},
	{SwapABTile, dtype.F32, "fragment registers are swapped",
		`(wgmma\.mma_async[^{]*\{[^}]*\}, \{)(%\w+), (%\w+)`, "$1$3, $2", Wrong, 1},
	{SwapABTile, dtype.F32, "the last epilogue subtiles are overwritten during their TMA store",
		`(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 1;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "wrong swizzle of the epilogue subtile", `(xor\.b32 %r\d+, %r\d+), 32;`, "$1, 64;", Wrong, 1},
}

// SwapABTile selects the kernel wgmma with a swapAB tile, which multiplies float32 in TF32 with
// fragments of B in registers.
const SwapABTile = "wgmma:64x128x32/2x32/2t"

// Find returns the fault of a kernel with the given name.
func Find(kernel, name string) (*Fault, error) {
	for i := range Faults {
		if f := &Faults[i]; f.Kernel == kernel && f.Name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("kernel %s has no fault %q", kernel, name)
}

// Plant returns the source with the fault, for each match of the pattern.
func (f *Fault) Plant(source string) []string {
	re := regexp.MustCompile(f.Pattern)
	var broken []string
	for _, at := range re.FindAllStringIndex(source, -1) {
		broken = append(broken, source[:at[0]]+re.ReplaceAllString(source[at[0]:at[1]], f.With)+source[at[1]:])
	}
	return broken
}
