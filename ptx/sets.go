package ptx

import (
	"fmt"
	"strings"
)

// modifierSets holds the sets of modifiers that rows of the table refer to by name.
var modifierSets = map[string]string{
	"int": "u16 u32 u64 s16 s32 s64", "sint": "s16 s32 s64", "anyint": "u8 u16 u32 u64 s8 s16 s32 s64",
	"int32": "u32 s32", "int64": "u64 s64", "int32_64": "u32 s32 u64 s64", "int16_32": "u16 s16 u32 s32",
	"bit16_64": "b16 b32 b64", "bit32_64": "b32 b64",
	"half": "f16 f16x2", "bhalf": "bf16 bf16x2",
	"narrow": "e4m3 e5m2 e3m2 e2m3 e2m1", "sparse": "sp sp::ordered_metadata",
	"fp8": "e4m3 e5m2", "fp8x2": "e4m3x2 e5m2x2",
	"scalar": "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64",
	"memory": "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",

	"rnd": "rn rz rm rp", "irnd": "rni rzi rmi rpi",
	"cmpint": "eq ne lt le gt ge", "cmpuint": "eq ne lt le gt ge lo ls hi hs",
	"cmpfloat": "eq ne lt le gt ge equ neu ltu leu gtu geu num nan",
	"bool":     "and or xor",

	"loadspace":     "const global local param param::entry shared shared::cta shared::cluster",
	"storespace":    "global local param shared shared::cta shared::cluster",
	"volatilespace": "global shared shared::cta shared::cluster",
	"atomspace":     "global shared shared::cta shared::cluster",
	"ldspace":       "global shared shared::cta",
	"anyshared":     "shared shared::cta shared::cluster",
	"ownshared":     "shared shared::cta", "mapspace": "global shared::cta",

	"cachein": "ca cg cs lu cv", "cacheout": "wb cg cs wt",
	"l1":           "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
	"prefetchsize": "L2::64B L2::128B L2::256B",
	"sem":          "relaxed acquire release acq_rel", "scope": "cta cluster gpu sys",

	"vec": "v2 v4", "num": "x1 x2 x4",
	"upto32": "x1 x2 x4 x8 x16 x32", "upto64": "x1 x2 x4 x8 x16 x32 x64", "upto128": "x1 x2 x4 x8 x16 x32 x64 x128",
	"group":      "cta_group::1 cta_group::2",
	"collector":  "collector::a::fill collector::a::use collector::a::lastuse collector::a::discard",
	"collectorb": collectorsOfB(),
	"dim":        "1d 2d 3d 4d 5d",
	"wmma16":     "m16n16k16 m8n32k16 m32n8k16",
	"wgmma8":     shapes(8, everyEighth...),
	"wgmma16":    shapes(16, everyEighth...),
	"wgmma32":    shapes(32, everyEighth...),
	"wgmmaint":   shapes(32, integerCols...),
	"wgmmabit":   shapes(256, integerCols...),
}

// everyEighth and integerCols are the numbers of columns of a wgmma: any multiple of 8 for
// floating point, and only multiples of 16 above 32 for integers (manual:
// "asynchronous-warpgroup-level-matrix-shape").
var (
	everyEighth = func() (cols []int) {
		for n := 8; n <= 256; n += 8 {
			cols = append(cols, n)
		}
		return cols
	}()
	integerCols = func() (cols []int) {
		for _, n := range everyEighth {
			if n <= 32 || n%16 == 0 {
				cols = append(cols, n)
			}
		}
		return cols
	}()
)

// shapes returns the names of the wgmma shapes with the given k and numbers of columns.
func shapes(k int, cols ...int) string {
	names := make([]string, len(cols))
	for i, n := range cols {
		names[i] = fmt.Sprintf("m64n%dk%d", n, k)
	}
	return strings.Join(names, " ")
}

// collectorsOfB returns the uses of the four collector buffers of tcgen05.mma.ws.
func collectorsOfB() string {
	var names []string
	for n := range 4 {
		for _, use := range []string{"fill", "use", "lastuse", "discard"} {
			names = append(names, fmt.Sprintf("collector::b%d::%s", n, use))
		}
	}
	return strings.Join(names, " ")
}

// modifierNeeds holds the modifiers with higher requirements than the rows that accept them. A
// key is a modifier, for all instructions, or an opcode and a modifier.
var modifierNeeds = map[string]Need{
	"shared::cta":         {78, Target{SM: 20}},
	"shared::cluster":     {78, Target{SM: 90}},
	"param::entry":        {83, Target{SM: 20}},
	"cluster":             {78, Target{SM: 90}},
	"weak":                {60, Target{SM: 70}},
	"b128":                {83, Target{SM: 70}},
	"L1::evict_normal":    {74, Target{SM: 70}},
	"L1::evict_unchanged": {74, Target{SM: 70}},
	"L1::evict_first":     {74, Target{SM: 70}},
	"L1::evict_last":      {74, Target{SM: 70}},
	"L1::no_allocate":     {74, Target{SM: 70}},
	"L2::cache_hint":      {74, Target{SM: 80}},
	"L2::64B":             {74, Target{SM: 75}},
	"L2::128B":            {74, Target{SM: 75}},
	"L2::256B":            {74, Target{SM: 80}},
	"atom.relaxed":        {60, Target{SM: 70}},
	"atom.acquire":        {60, Target{SM: 70}},
	"atom.release":        {60, Target{SM: 70}},
	"atom.acq_rel":        {60, Target{SM: 70}},
	"atom.cta":            {50, Target{SM: 60}},
	"atom.gpu":            {50, Target{SM: 60}},
	"atom.sys":            {50, Target{SM: 60}},
	"red.relaxed":         {60, Target{SM: 70}},
	"red.release":         {60, Target{SM: 70}},
	"red.cta":             {50, Target{SM: 60}},
	"red.gpu":             {50, Target{SM: 60}},
	"red.sys":             {50, Target{SM: 60}},
	"barrier.cta":         {78, Target{SM: 20}},
	"barrier.acquire":     {80, Target{SM: 90}},
	"barrier.release":     {80, Target{SM: 90}},
	"barrier.relaxed":     {80, Target{SM: 90}},
	"cp.shared::cta":      {70, Target{SM: 80}},
	"bar.cta":             {78, Target{SM: 20}},
	"mbarrier.acquire":    {80, Target{SM: 80}},
	"mbarrier.release":    {80, Target{SM: 80}},

	"mma.sp::ordered_metadata": {85, Target{SM: 80}},

	"tcgen05.kind::i8":      {86, Target{100, "a"}},
	"tcgen05.scale_vec::1X": {86, Target{100, "a"}},
	"tcgen05.scale_vec::2X": {86, Target{100, "a"}},
	"tcgen05.scale_vec::4X": {86, Target{100, "a"}},
	"tcgen05.block16":       {88, Target{100, "f"}},
	"tcgen05.block32":       {88, Target{100, "f"}},
}

// functionAttrs holds the directives that can appear between a function's parameters and its
// body, each with the maximum number of its arguments and its requirements.
var functionAttrs = map[string]struct {
	args int
	need Need
}{
	"maxntid": {args: 3}, "reqntid": {args: 3}, "minnctapersm": {args: 1}, "maxnctapersm": {args: 1}, "maxnreg": {args: 1},
	"noreturn":          {0, Need{64, Target{SM: 30}}},
	"maxclusterrank":    {1, Need{78, Target{SM: 90}}},
	"reqnctapercluster": {3, Need{78, Target{SM: 90}}},
	"explicitcluster":   {0, Need{78, Target{SM: 90}}},
}

// globalOnly reports whether a modifier applies only to global memory.
func globalOnly(mod string) bool {
	return strings.HasPrefix(mod, "L1::") || mod == "L2::cache_hint" ||
		mod == "L2::64B" || mod == "L2::128B" || mod == "L2::256B"
}

// unsupportedOps names the feature of instructions that the table does not contain.
var unsupportedOps = func() map[string]string {
	m := map[string]string{}
	for feature, ops := range map[string]string{
		"textures": "tex tld4 txq",
		"surfaces": "suld sust sured suq istypep",
		"multimem": "multimem",
		"video instructions": "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 " +
			"vset2 vadd4 vsub4 vavrg4 vmin4 vmax4 vset4",
	} {
		for _, op := range strings.Fields(ops) {
			m[op] = feature
		}
	}
	return m
}()

// unsupportedFeature returns the feature that a modifier belongs to if no row has the feature, or
// an empty string.
func unsupportedFeature(mod string) string {
	for _, f := range []struct{ prefix, feature string }{
		{"sp", "sparse matrices"},
		{"e2m1", "4-bit floats"}, {"e2m3", "6-bit floats"}, {"e3m2", "6-bit floats"},
		{"ue8m0", "block scales"}, {"ue4m3", "block scales"},
		{"im2col_no_offs", "im2col stores of TMA"}, {"im2col::w", "mode im2col::w of TMA"},
		{"tile::gather", "gather mode of TMA"}, {"tile::scatter", "scatter mode of TMA"},
		{"cta_group::", "pairs of blocks"}, {"rs", "stochastic rounding"},
	} {
		if mod == f.prefix || len(f.prefix) > 2 && strings.HasPrefix(mod, f.prefix) || strings.HasPrefix(mod, f.prefix+"::") {
			return f.feature
		}
	}
	return ""
}

// instructionNames holds the names of instructions that consist of several words. ptxas accepts
// the other modifiers in any order, but not between these words.
var instructionNames = func() map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(`
		bar.warp bar.cta bar.cta.arrive bar.red bar.cta.red brx.idx
		barrier.arrive barrier.red barrier.cta barrier.cta.arrive barrier.cta.red
		barrier.cluster.arrive barrier.cluster.wait
		cp.async cp.async.bulk cp.async.mbarrier.arrive cp.async.commit_group cp.async.wait_group cp.async.wait_all
		cp.async.bulk.commit_group cp.async.bulk.wait_group cp.async.bulk.prefetch cp.async.bulk.tensor
		cp.async.bulk.prefetch.tensor cp.reduce.async.bulk cp.reduce.async.bulk.tensor
		createpolicy.fractional createpolicy.range cvt.pack cvta.to div.full dp2a.lo dp2a.hi
		fence.proxy membar.proxy
		mad.lo mad.hi mad.wide madc.lo madc.hi mad24.lo mad24.hi mul.lo mul.hi mul.wide mul24.lo mul24.hi
		mbarrier.init mbarrier.inval mbarrier.expect_tx mbarrier.complete_tx mbarrier.pending_count
		mbarrier.arrive mbarrier.arrive.expect_tx mbarrier.arrive_drop mbarrier.arrive_drop.expect_tx
		mbarrier.test_wait mbarrier.test_wait.parity mbarrier.try_wait mbarrier.try_wait.parity
		setmaxnreg.inc setmaxnreg.dec shf.l shf.r st.async tensormap.replace tensormap.cp_fenceproxy
		tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.st tcgen05.wait::ld
		tcgen05.wait::st tcgen05.cp tcgen05.shift tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync
		tcgen05.commit tcgen05.mma tcgen05.mma.ws
		wgmma.fence wgmma.commit_group wgmma.wait_group wgmma.mma_async
		wmma.load.a wmma.load.b wmma.load.c wmma.store.d wmma.mma`) {
		m[name] = true
	}
	return m
}()
