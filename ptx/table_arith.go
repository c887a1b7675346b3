package ptx

// families is the instruction table, in the notation of [Form]. A line that starts with # gives
// the manual's section and a description. Each of the following lines gives the first .version,
// the first .target and a form.
var families = []string{
	integerForms, videoForms(), floatForms, halfForms, compareForms, logicForms,
	moveForms, convertForms, memoryForms,
	atomicForms, warpForms, barrierForms, asyncForms, bulkForms,
	mmaForms, wmmaForms, wgmmaForms, tcgen05Forms, controlForms,
}

const integerForms = `
# integer-arithmetic-instructions-add: d = a + b
2.3 sm_20 add.type=int d, a, b
2.3 sm_20 add.sat.s32 d, a, b
8.0 sm_90 add.type=u16x2|s16x2 d, a, b
# integer-arithmetic-instructions-sub: d = a - b
2.3 sm_20 sub.type=int d, a, b
2.3 sm_20 sub.sat.s32 d, a, b
# extended-precision-arithmetic-instructions-add-cc: d = a + b; sets the carry
2.3 sm_20 add.cc.type=int32 d, a, b
4.3 sm_20 add.cc.type=int64 d, a, b
# extended-precision-arithmetic-instructions-addc: d = a + b + carry
2.3 sm_20 addc{.cc}.type=int32 d, a, b
2.3 sm_20 addc.type=int64 d, a, b
4.3 sm_20 addc.cc.type=int64 d, a, b
# extended-precision-arithmetic-instructions-sub-cc: d = a - b; sets the borrow
2.3 sm_20 sub.cc.type=int32 d, a, b
4.3 sm_20 sub.cc.type=int64 d, a, b
# extended-precision-arithmetic-instructions-subc: d = a - b - borrow
2.3 sm_20 subc{.cc}.type=int32 d, a, b
2.3 sm_20 subc.type=int64 d, a, b
4.3 sm_20 subc.cc.type=int64 d, a, b
# extended-precision-arithmetic-instructions-mad-cc: d = the low or high half of a·b, plus c; sets the carry
3.0 sm_20 mad.half=lo|hi.cc.type=int32 d, a, b, c
4.3 sm_20 mad.half=lo|hi.cc.type=int64 d, a, b, c
# extended-precision-arithmetic-instructions-madc: d = the low or high half of a·b, plus c and the carry
3.0 sm_20 madc.half=lo|hi{.cc}.type=int32 d, a, b, c
3.0 sm_20 madc.half=lo|hi.type=int64 d, a, b, c
4.3 sm_20 madc.half=lo|hi.cc.type=int64 d, a, b, c
# integer-arithmetic-instructions-mul: d = the low, high or full product of a and b
2.3 sm_20 mul.half=lo|hi.type=int d, a, b
2.3 sm_20 mul.wide.type=int16_32 d:wide, a, b
# integer-arithmetic-instructions-mad: d = the low, high or full product of a and b, plus c
2.3 sm_20 mad.half=lo|hi.type=int d, a, b, c
2.3 sm_20 mad.hi.sat.s32 d, a, b, c
2.3 sm_20 mad.wide.type=int16_32 d:wide, a, b, c:wide
# integer-arithmetic-instructions-mul24: d = the low or high 32 bits of the 48-bit product of two 24-bit integers
2.3 sm_20 mul24.half=lo|hi.type=int32 d, a, b
# integer-arithmetic-instructions-mad24: d = the low or high 32 bits of the 48-bit product of two 24-bit integers, plus c
2.3 sm_20 mad24.half=lo|hi.type=int32 d, a, b, c
2.3 sm_20 mad24.hi.sat.s32 d, a, b, c
# integer-arithmetic-instructions-sad: d = |a - b| + c
2.3 sm_20 sad.type=int d, a, b, c
# integer-arithmetic-instructions-div: d = a / b, rounded toward zero
2.3 sm_20 div.type=int d, a, b
# integer-arithmetic-instructions-rem: d = a mod b
2.3 sm_20 rem.type=int d, a, b
# integer-arithmetic-instructions-abs: d = |a|
2.3 sm_20 abs.type=sint d, a
# integer-arithmetic-instructions-neg: d = -a
2.3 sm_20 neg.type=sint d, a
# integer-arithmetic-instructions-min: d = the smaller of a and b
2.3 sm_20 min.type=int d, a, b
8.0 sm_90 min.type=u16x2 d, a, b
8.0 sm_90 min{.relu}.type=s16x2 d, a, b
8.0 sm_90 min.relu.s32 d, a, b
# integer-arithmetic-instructions-max: d = the larger of a and b
2.3 sm_20 max.type=int d, a, b
8.0 sm_90 max.type=u16x2 d, a, b
8.0 sm_90 max{.relu}.type=s16x2 d, a, b
8.0 sm_90 max.relu.s32 d, a, b
# integer-arithmetic-instructions-popc: d = the number of one bits in a
2.3 sm_20 popc.type=bit32_64 d:u32, a
# integer-arithmetic-instructions-clz: d = the number of leading zero bits in a
2.3 sm_20 clz.type=bit32_64 d:u32, a
# integer-arithmetic-instructions-bfind: d = the position of the highest bit of a that is not a sign bit
2.3 sm_20 bfind{.shiftamt}.type=int32_64 d:u32, a
# integer-arithmetic-instructions-fns: d = the position of the n-th one bit in a, counted from a base bit
6.0 sm_30 fns.b32 d, a, base:b32, n:b32
# integer-arithmetic-instructions-brev: d = a with its bits reversed
2.3 sm_20 brev.type=bit32_64 d, a
# integer-arithmetic-instructions-bfe: d = the bit field of a that starts at bit b and has c bits
2.3 sm_20 bfe.type=int32_64 d, a, b:u32=0..255, c:u32=0..255
# integer-arithmetic-instructions-bfi: d = b with the low e bits of a inserted at bit c
2.3 sm_20 bfi.type=bit32_64 d, a, b, c:u32=0..255, e:u32=0..255
# integer-arithmetic-instructions-szext: d = the low b bits of a, sign-extended or zero-extended
7.6 sm_70 szext.mode=clamp|wrap.type=int32 d, a, b:u32
# integer-arithmetic-instructions-bmsk: d = a mask of b one bits that starts at bit a
7.6 sm_70 bmsk.mode=clamp|wrap.b32 d:u32, a:u32, b:u32
# integer-arithmetic-instructions-dp4a: d = c + the dot product of four bytes of a and four bytes of b
5.0 sm_61 dp4a.u32.u32 d, a, b, c
5.0 sm_61 dp4a.atype=u32.btype=s32 d:s32, a:atype, b:btype, c:s32
5.0 sm_61 dp4a.atype=s32.btype=int32 d:s32, a:atype, b:btype, c:s32
# integer-arithmetic-instructions-dp2a: d = c + the dot product of two 16-bit halves of a and two bytes of b
5.0 sm_61 dp2a.half=lo|hi.u32.u32 d, a, b, c
5.0 sm_61 dp2a.half=lo|hi.atype=u32.btype=s32 d:s32, a:atype, b:btype, c:s32
5.0 sm_61 dp2a.half=lo|hi.atype=s32.btype=int32 d:s32, a:atype, b:btype, c:s32
`

const floatForms = `
# floating-point-instructions-testp: d = whether a belongs to a class of numbers, such as finite or subnormal
2.3 sm_20 testp.kind=finite|infinite|number|notanumber|normal|subnormal.type=f32|f64 d:pred, a
# floating-point-instructions-copysign: d = b with the sign of a
2.3 sm_20 copysign.type=f32|f64 d, a, b
# floating-point-instructions-add: d = a + b
2.3 sm_20 add{.rnd}{.ftz}{.sat}.f32 d, a, b
2.3 sm_20 add{.rnd}.f64 d, a, b
8.6 sm_100 add{.rnd}{.ftz}.f32x2 d, a, b
8.6 sm_100 add{.rnd}{.sat}.f32.atype=f16|bf16 d:f32, a:atype, b:f32
# floating-point-instructions-sub: d = a - b
2.3 sm_20 sub{.rnd}{.ftz}{.sat}.f32 d, a, b
2.3 sm_20 sub{.rnd}.f64 d, a, b
8.6 sm_100 sub{.rnd}{.ftz}.f32x2 d, a, b
8.6 sm_100 sub{.rnd}{.sat}.f32.atype=f16|bf16 d:f32, a:atype, b:f32
# floating-point-instructions-mul: d = a·b
2.3 sm_20 mul{.rnd}{.ftz}{.sat}.f32 d, a, b
2.3 sm_20 mul{.rnd}.f64 d, a, b
8.6 sm_100 mul{.rnd}{.ftz}.f32x2 d, a, b
# floating-point-instructions-fma: d = a·b + c, rounded once
2.3 sm_20 fma.rnd{.ftz}{.sat}.f32 d, a, b, c
2.3 sm_20 fma.rnd.f64 d, a, b, c
8.6 sm_100 fma.rnd{.ftz}.f32x2 d, a, b, c
8.6 sm_100 fma.rnd{.sat}.f32.atype=f16|bf16 d:f32, a:atype, b:atype, c:f32
# floating-point-instructions-mad: d = a·b + c; the same as fma since sm_20
2.3 sm_20 mad.rnd{.ftz}{.sat}.f32 d, a, b, c
2.3 sm_20 mad.rnd.f64 d, a, b, c
# floating-point-instructions-div: d = a / b
2.3 sm_20 div.approx=approx|full{.ftz}.f32 d, a, b
2.3 sm_20 div.rnd{.ftz}.f32 d, a, b
2.3 sm_20 div.rnd.f64 d, a, b
# floating-point-instructions-abs: d = |a|
2.3 sm_20 abs{.ftz}.f32 d, a
2.3 sm_20 abs.f64 d, a
# floating-point-instructions-neg: d = -a
2.3 sm_20 neg{.ftz}.f32 d, a
2.3 sm_20 neg.f64 d, a
# floating-point-instructions-min: d = the smaller of a and b
2.3 sm_20 min{.ftz}.f32 d, a, b
7.0 sm_80 min{.ftz}.NaN.f32 d, a, b
7.2 sm_86 min{.ftz}{.NaN}.xorsign.abs.f32 d, a, b
8.8 sm_100 min{.ftz}{.NaN}{.abs}.f32 d, a, b, c
2.3 sm_20 min.f64 d, a, b
# floating-point-instructions-max: d = the larger of a and b
2.3 sm_20 max{.ftz}.f32 d, a, b
7.0 sm_80 max{.ftz}.NaN.f32 d, a, b
7.2 sm_86 max{.ftz}{.NaN}.xorsign.abs.f32 d, a, b
8.8 sm_100 max{.ftz}{.NaN}{.abs}.f32 d, a, b, c
2.3 sm_20 max.f64 d, a, b
# floating-point-instructions-rcp: d = 1 / a
2.3 sm_20 rcp.approx{.ftz}.f32 d, a
2.3 sm_20 rcp.rnd{.ftz}.f32 d, a
2.3 sm_20 rcp.rnd.f64 d, a
2.3 sm_20 rcp.approx.ftz.f64 d, a
# floating-point-instructions-sqrt: d = the square root of a
2.3 sm_20 sqrt.approx{.ftz}.f32 d, a
2.3 sm_20 sqrt.rnd{.ftz}.f32 d, a
2.3 sm_20 sqrt.rnd.f64 d, a
# floating-point-instructions-rsqrt: d = 1 / the square root of a
2.3 sm_20 rsqrt.approx{.ftz}.f32 d, a
2.3 sm_20 rsqrt.approx.f64 d, a
4.0 sm_20 rsqrt.approx.ftz.f64 d, a
# floating-point-instructions-sin: d = sin a, a in radians
2.3 sm_20 sin.approx{.ftz}.f32 d, a
# floating-point-instructions-cos: d = cos a, a in radians
2.3 sm_20 cos.approx{.ftz}.f32 d, a
# floating-point-instructions-lg2: d = log₂ a
2.3 sm_20 lg2.approx{.ftz}.f32 d, a
# floating-point-instructions-ex2: d = 2 to the power of a
2.3 sm_20 ex2.approx{.ftz}.f32 d, a
# floating-point-instructions-tanh: d = tanh a
7.0 sm_75 tanh.approx.f32 d, a
`

const halfForms = `
# half-precision-floating-point-instructions-add: d = a + b
4.2 sm_53 add{.rn}{.ftz}{.sat}.type=half d, a, b
7.8 sm_90 add{.rn}.type=bhalf d, a, b
# half-precision-floating-point-instructions-sub: d = a - b
4.2 sm_53 sub{.rn}{.ftz}{.sat}.type=half d, a, b
7.8 sm_90 sub{.rn}.type=bhalf d, a, b
# half-precision-floating-point-instructions-mul: d = a·b
4.2 sm_53 mul{.rn}{.ftz}{.sat}.type=half d, a, b
7.8 sm_90 mul{.rn}.type=bhalf d, a, b
# half-precision-floating-point-instructions-fma: d = a·b + c, rounded once
4.2 sm_53 fma.rn{.ftz}{.sat}.type=half d, a, b, c
7.0 sm_80 fma.rn{.ftz}.relu.type=half d, a, b, c
7.0 sm_80 fma.rn{.relu}.type=bhalf d, a, b, c
8.1 sm_90 fma.rn.oob{.relu}.type=half|bhalf d, a, b, c
# half-precision-floating-point-instructions-neg: d = -a
6.0 sm_53 neg{.ftz}.type=half d, a
7.0 sm_80 neg.type=bhalf d, a
# half-precision-floating-point-instructions-abs: d = |a|
6.5 sm_53 abs{.ftz}.type=half d, a
7.0 sm_80 abs.type=bhalf d, a
# half-precision-floating-point-instructions-min: d = the smaller of a and b
7.0 sm_80 min{.ftz}{.NaN}.type=half d, a, b
7.0 sm_80 min{.NaN}.type=bhalf d, a, b
7.2 sm_86 min{.ftz}{.NaN}.xorsign.abs.type=half d, a, b
7.2 sm_86 min{.NaN}.xorsign.abs.type=bhalf d, a, b
# half-precision-floating-point-instructions-max: d = the larger of a and b
7.0 sm_80 max{.ftz}{.NaN}.type=half d, a, b
7.0 sm_80 max{.NaN}.type=bhalf d, a, b
7.2 sm_86 max{.ftz}{.NaN}.xorsign.abs.type=half d, a, b
7.2 sm_86 max{.NaN}.xorsign.abs.type=bhalf d, a, b
# half-precision-floating-point-instructions-tanh: d = tanh a
7.0 sm_75 tanh.approx.type=half d, a
7.8 sm_90 tanh.approx.type=bhalf d, a
# half-precision-floating-point-instructions-ex2: d = 2 to the power of a
7.0 sm_75 ex2.approx.type=half d, a
7.8 sm_90 ex2.approx.ftz.type=bhalf d, a
`

const compareForms = `
# comparison-and-selection-instructions-set: d = all ones or 1.0 if a compared with b is true, combined with c if present, else 0
2.3 sm_20 set.cmp=eq|ne.dtype=u32|s32|f32.type=bit16_64 d:dtype, a, b
2.3 sm_20 set.cmp=cmpuint.dtype=u32|s32|f32.type=u16|u32|u64 d:dtype, a, b
2.3 sm_20 set.cmp=cmpint.dtype=u32|s32|f32.type=s16|s32|s64 d:dtype, a, b
2.3 sm_20 set.cmp=cmpfloat{.ftz}.dtype=u32|s32|f32.type=f32 d:dtype, a, b
2.3 sm_20 set.cmp=cmpfloat.dtype=u32|s32|f32.type=f64 d:dtype, a, b
2.3 sm_20 set.cmp=eq|ne.bool.dtype=u32|s32|f32.type=bit16_64 d:dtype, a, b, !c:pred
2.3 sm_20 set.cmp=cmpuint.bool.dtype=u32|s32|f32.type=u16|u32|u64 d:dtype, a, b, !c:pred
2.3 sm_20 set.cmp=cmpint.bool.dtype=u32|s32|f32.type=s16|s32|s64 d:dtype, a, b, !c:pred
2.3 sm_20 set.cmp=cmpfloat.bool{.ftz}.dtype=u32|s32|f32.type=f32 d:dtype, a, b, !c:pred
2.3 sm_20 set.cmp=cmpfloat.bool.dtype=u32|s32|f32.type=f64 d:dtype, a, b, !c:pred
# half-precision-comparison-instructions-set: d = all ones or 1.0 if a compared with b is true, else 0
4.2 sm_53 set.cmp=cmpfloat{.ftz}.dtype=f16.type=f16 d:dtype, a, b
6.5 sm_53 set.cmp=cmpfloat{.ftz}.dtype=u16|s16|u32|s32.type=f16 d:dtype, a, b
4.2 sm_53 set.cmp=cmpfloat{.ftz}.dtype=f16x2.type=f16x2 d:dtype, a, b
6.5 sm_53 set.cmp=cmpfloat{.ftz}.dtype=u32|s32.type=f16x2 d:dtype, a, b
7.8 sm_90 set.cmp=cmpfloat.dtype=bf16|u16|s16|u32|s32.type=bf16 d:dtype, a, b
7.8 sm_90 set.cmp=cmpfloat.dtype=bf16x2|u32|s32.type=bf16x2 d:dtype, a, b
# comparison-and-selection-instructions-setp: d = the result of comparing a with b, combined with c if present; p = its negation
2.3 sm_20 setp.cmp=eq|ne.type=bit16_64 d_:pred{|p_}, a, b
2.3 sm_20 setp.cmp=cmpuint.type=u16|u32|u64 d_:pred{|p_}, a, b
2.3 sm_20 setp.cmp=cmpint.type=s16|s32|s64 d_:pred{|p_}, a, b
2.3 sm_20 setp.cmp=cmpfloat{.ftz}.type=f32 d_:pred{|p_}, a, b
2.3 sm_20 setp.cmp=cmpfloat.type=f64 d_:pred{|p_}, a, b
2.3 sm_20 setp.cmp=eq|ne.bool.type=bit16_64 d_:pred{|p_}, a, b, !c:pred
2.3 sm_20 setp.cmp=cmpuint.bool.type=u16|u32|u64 d_:pred{|p_}, a, b, !c:pred
2.3 sm_20 setp.cmp=cmpint.bool.type=s16|s32|s64 d_:pred{|p_}, a, b, !c:pred
2.3 sm_20 setp.cmp=cmpfloat.bool{.ftz}.type=f32 d_:pred{|p_}, a, b, !c:pred
2.3 sm_20 setp.cmp=cmpfloat.bool.type=f64 d_:pred{|p_}, a, b, !c:pred
# half-precision-comparison-instructions-setp: d = the result of comparing a with b; for packed pairs, d is that of the low half and p that of the high half
4.2 sm_53 setp.cmp=cmpfloat{.ftz}.type=f16 d_:pred, a, b
4.2 sm_53 setp.cmp=cmpfloat.bool{.ftz}.type=f16 d_:pred, a, b, !c:pred
4.2 sm_53 setp.cmp=cmpfloat{.ftz}.type=f16x2 d_:pred{|p_}, a, b
4.2 sm_53 setp.cmp=cmpfloat.bool{.ftz}.type=f16x2 d_:pred{|p_}, a, b, !c:pred
7.8 sm_90 setp.cmp=cmpfloat.type=bf16 d_:pred, a, b
7.8 sm_90 setp.cmp=cmpfloat.bool.type=bf16 d_:pred, a, b, !c:pred
7.8 sm_90 setp.cmp=cmpfloat.type=bf16x2 d_:pred{|p_}, a, b
7.8 sm_90 setp.cmp=cmpfloat.bool.type=bf16x2 d_:pred{|p_}, a, b, !c:pred
# comparison-and-selection-instructions-selp: d = a if c, else b
2.3 sm_20 selp.type=scalar d, a, b, !c:pred
# comparison-and-selection-instructions-slct: d = a if c ≥ 0, else b
2.3 sm_20 slct.type=scalar.s32 d, a, b, c:s32
2.3 sm_20 slct{.ftz}.type=scalar.f32 d, a, b, c:f32
`

const logicForms = `
# logic-and-shift-instructions-and: d = a ∧ b
2.3 sm_20 and.type=bit16_64 d, a, b
2.3 sm_20 and.pred d, !a, !b
# logic-and-shift-instructions-or: d = a ∨ b
2.3 sm_20 or.type=bit16_64 d, a, b
2.3 sm_20 or.pred d, !a, !b
# logic-and-shift-instructions-xor: d = a ⊕ b
2.3 sm_20 xor.type=bit16_64 d, a, b
2.3 sm_20 xor.pred d, !a, !b
# logic-and-shift-instructions-not: d = ¬a
2.3 sm_20 not.type=bit16_64 d, a
2.3 sm_20 not.pred d, !a
# logic-and-shift-instructions-cnot: d = 1 if a is 0, else 0
2.3 sm_20 cnot.type=bit16_64 d, a
# logic-and-shift-instructions-lop3: d = a bitwise function of a, b and c, given by its truth table; p = whether d ≠ 0, combined with q by and or or
4.3 sm_50 lop3.b32 d_, a, b, c, lut=0..255
8.2 sm_70 lop3.bool=and|or.b32 d_|p, a, b, c, lut=0..255, !q:pred
# logic-and-shift-instructions-shf: d = the high or low half of the pair b:a, shifted by c
3.1 sm_32 shf.dir=l|r.mode=clamp|wrap.b32 d, a, b, c:u32
# logic-and-shift-instructions-shl: d = a shifted left by b
2.3 sm_20 shl.type=bit16_64 d, a, b:u32
# logic-and-shift-instructions-shr: d = a shifted right by b, filled with the sign bit or with zeros
2.3 sm_20 shr.type=bit16_64|int d, a, b:u32
`
