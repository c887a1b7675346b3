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
	"fp8": "e4m3 e5m2", "fp8x2": "e4m3x2 e5m2x2", "smallx2": "e3m2x2 e2m3x2 e2m1x2",
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
	"from2":      "x2 x4 x8 x16 x32 x64 x128",
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
	"shared::cta":         need("7.8", "sm_20"),
	"shared::cluster":     need("7.8", "sm_90"),
	"param::entry":        need("8.3", "sm_20"),
	"cluster":             need("7.8", "sm_90"),
	"weak":                need("6.0", "sm_70"),
	"b128":                need("8.3", "sm_70"),
	"L1::evict_normal":    need("7.4", "sm_70"),
	"L1::evict_unchanged": need("7.4", "sm_70"),
	"L1::evict_first":     need("7.4", "sm_70"),
	"L1::evict_last":      need("7.4", "sm_70"),
	"L1::no_allocate":     need("7.4", "sm_70"),
	"L2::cache_hint":      need("7.4", "sm_80"),
	"L2::64B":             need("7.4", "sm_75"),
	"L2::128B":            need("7.4", "sm_75"),
	"L2::256B":            need("7.4", "sm_80"),
	"atom.relaxed":        need("6.0", "sm_70"),
	"atom.acquire":        need("6.0", "sm_70"),
	"atom.release":        need("6.0", "sm_70"),
	"atom.acq_rel":        need("6.0", "sm_70"),
	"atom.cta":            need("5.0", "sm_60"),
	"atom.gpu":            need("5.0", "sm_60"),
	"atom.sys":            need("5.0", "sm_60"),
	"red.relaxed":         need("6.0", "sm_70"),
	"red.release":         need("6.0", "sm_70"),
	"red.cta":             need("5.0", "sm_60"),
	"red.gpu":             need("5.0", "sm_60"),
	"red.sys":             need("5.0", "sm_60"),
	"barrier.cta":         need("7.8", "sm_20"),
	"barrier.acquire":     need("8.0", "sm_90"),
	"barrier.release":     need("8.0", "sm_90"),
	"barrier.relaxed":     need("8.0", "sm_90"),
	"cp.shared::cta":      need("7.0", "sm_80"),
	"bar.cta":             need("7.8", "sm_20"),
	"mbarrier.acquire":    need("8.0", "sm_80"),
	"mbarrier.release":    need("8.0", "sm_80"),

	"mma.sp::ordered_metadata": need("8.5", "sm_80"),
	"mma.e3m2":                 need("8.7", "sm_120f"),
	"mma.e2m3":                 need("8.7", "sm_120f"),
	"mma.e2m1":                 need("8.7", "sm_120f"),

	"tcgen05.kind::i8":      need("8.6", "sm_100a|sm_110a"),
	"tcgen05.scale_vec::1X": need("8.6", "sm_100a|sm_103a|sm_110a"),
	"tcgen05.scale_vec::2X": need("8.6", "sm_100a|sm_103a|sm_110a"),
	"tcgen05.scale_vec::4X": need("8.6", "sm_100a|sm_103a|sm_110a"),
	"tcgen05.block16":       need("8.8", "sm_100f|sm_110f"),
	"tcgen05.block32":       need("8.8", "sm_100f|sm_110f"),
}

// globalOnly reports whether a modifier applies only to global memory.
func globalOnly(mod string) bool {
	return strings.HasPrefix(mod, "L1::") || mod == "L2::cache_hint" ||
		mod == "L2::64B" || mod == "L2::128B" || mod == "L2::256B"
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
		tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.ld.red tcgen05.st tcgen05.wait::ld
		tcgen05.wait::st tcgen05.cp tcgen05.shift tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync
		tcgen05.commit tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp
		wgmma.fence wgmma.commit_group wgmma.wait_group wgmma.mma_async
		wmma.load.a wmma.load.b wmma.load.c wmma.store.d wmma.mma`) {
		m[name] = true
	}
	return m
}()
