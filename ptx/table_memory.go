package ptx

const moveForms = `
# data-movement-and-conversion-instructions-mov: d = a, or the address of a
2.3 sm_20 mov.pred d, !a:pred%
2.3 sm_20 mov.type=b16|u16|s16|f32|f64 d, a:type%
2.3 sm_20 mov.type=b32|b64|u32|u64|s32|s64 d, a:type&%
8.3 sm_70 mov.b128 d, a
# data-movement-and-conversion-instructions-mov-2: packs a vector into a scalar, or unpacks a scalar into a vector
2.3 sm_20 mov.type=bit16_64 d, a*1
2.3 sm_20 mov.type=bit16_64 d*1, a
2.3 sm_20 mov.b16 d, a:b8*2
2.3 sm_20 mov.b16 d:b8*2, a
2.3 sm_20 mov.b32 d, a:b8*4
2.3 sm_20 mov.b32 d:b8*4, a
2.3 sm_20 mov.b32 d, a:b16*2
2.3 sm_20 mov.b32 d:b16*2, a
2.3 sm_20 mov.b64 d, a:b16*4
2.3 sm_20 mov.b64 d:b16*4, a
2.3 sm_20 mov.b64 d, a:b32*2
2.3 sm_20 mov.b64 d:b32*2, a
8.3 sm_70 mov.b128 d, a*1
8.3 sm_70 mov.b128 d*1, a
8.3 sm_70 mov.b128 d, a:b32*4
8.3 sm_70 mov.b128 d:b32*4, a
8.3 sm_70 mov.b128 d, a:b64*2
8.3 sm_70 mov.b128 d:b64*2, a
# data-movement-and-conversion-instructions-prmt: d = four bytes of b:a, selected by c
2.3 sm_20 prmt.b32{.mode=f4e|b4e|rc8|ecl|ecr|rc16} d, a, b, c
# data-movement-and-conversion-instructions-isspacep: d = whether the generic address a is in a state space
2.3 sm_20 isspacep.space=global|local|shared|shared::cta|shared::cluster d:pred, a:u64
3.1 sm_20 isspacep.space=const d:pred, a:u64
7.7 sm_70 isspacep.space=param|param::entry d:pred, a:u64
# data-movement-and-conversion-instructions-cvta: converts the address a between a state space and generic addressing
2.3 sm_20 cvta.space=global|local|shared|shared::cta|shared::cluster.type=u64 d, a:type&
3.1 sm_20 cvta.space=const.type=u64 d, a:type&
7.7 sm_70 cvta.space=param|param::entry.type=u64 d, a:type&
2.3 sm_20 cvta.to.space=global|local|shared|shared::cta|shared::cluster.type=u64 d, a
3.1 sm_20 cvta.to.space=const.type=u64 d, a
7.7 sm_70 cvta.to.space=param|param::entry.type=u64 d, a
# data-movement-and-conversion-instructions-mapa: d = the address that corresponds to a in the shared memory of block b of the cluster
7.8 sm_90 mapa.type=u64 d, a, b:u32
7.8 sm_90 mapa.space=shared::cluster.type=u32|u64 d, a:type&, b:u32
# data-movement-and-conversion-instructions-getctarank: d = the rank of the block whose shared memory a points to
7.8 sm_90 getctarank.type=u64 d:u32, a
7.8 sm_90 getctarank.space=shared::cluster.type=u32|u64 d:u32, a:type&
`

const convertForms = `
# data-movement-and-conversion-instructions-cvt: d = a converted to another type
2.3 sm_20 cvt{.sat}.dtype=anyint.atype=anyint d:dtype+, a:atype+%
2.3 sm_20 cvt.rnd{.ftz}{.sat}.dtype=f32.atype=anyint d:dtype, a:atype+
2.3 sm_20 cvt.rnd{.sat}.dtype=f64.atype=anyint d:dtype, a:atype+
2.3 sm_20 cvt.rnd{.sat}.dtype=f16.atype=anyint d:dtype, a:atype+
2.3 sm_20 cvt.irnd{.ftz}{.sat}.dtype=anyint.atype=f32 d:dtype+, a:atype
2.3 sm_20 cvt.irnd{.sat}.dtype=anyint.atype=f64 d:dtype+, a:atype
2.3 sm_20 cvt.irnd{.sat}.dtype=anyint.atype=f16 d:dtype+, a:atype
2.3 sm_20 cvt{.irnd}{.ftz}{.sat}.dtype=f32.atype=f32 d:dtype, a:atype
2.3 sm_20 cvt{.irnd}{.sat}.dtype=f64.atype=f64 d:dtype, a:atype
2.3 sm_20 cvt{.irnd}{.sat}.dtype=f16.atype=f16 d:dtype, a:atype
2.3 sm_20 cvt{.ftz}{.sat}.dtype=f64.atype=f32 d:dtype, a:atype
2.3 sm_20 cvt.rnd{.ftz}{.sat}.dtype=f32.atype=f64 d:dtype, a:atype
2.3 sm_20 cvt{.ftz}{.sat}.dtype=f32.atype=f16 d:dtype, a:atype
2.3 sm_20 cvt{.sat}.dtype=f64.atype=f16 d:dtype, a:atype
2.3 sm_20 cvt.rnd{.ftz}{.sat}.dtype=f16.atype=f32 d:dtype, a:atype
2.3 sm_20 cvt.rnd{.sat}.dtype=f16.atype=f64 d:dtype, a:atype
7.0 sm_80 cvt.rnd=rn|rz.relu.dtype=f16|bf16.atype=f32 d:dtype, a:atype
7.0 sm_80 cvt.rnd{.ftz}.dtype=bf16.atype=f32 d:dtype, a:atype
7.0 sm_80 cvt.rnd=rn|rz{.relu}.dtype=f16x2|bf16x2.atype=f32 d:dtype, a:atype, b:atype
8.1 sm_70 cvt.rnd=rn|rz.satfinite.dtype=f16.atype=f32 d:dtype, a:atype
8.1 sm_80 cvt.rnd=rn|rz.satfinite.relu.dtype=f16.atype=f32 d:dtype, a:atype
8.1 sm_80 cvt.rnd=rn|rz.satfinite{.relu}.dtype=bf16.atype=f32 d:dtype, a:atype
8.1 sm_80 cvt.rnd=rn|rz.satfinite{.relu}.dtype=f16x2|bf16x2.atype=f32 d:dtype, a:atype, b:atype
7.1 sm_80 cvt{.rnd}.dtype=f32.atype=bf16 d:dtype, a:atype
7.8 sm_90 cvt{.rnd}.ftz.dtype=f32.atype=bf16 d:dtype, a:atype
7.8 sm_90 cvt.rnd.dtype=bf16.atype=anyint d:dtype, a:atype
7.8 sm_90 cvt.irnd.dtype=anyint.atype=bf16 d:dtype, a:atype
7.8 sm_90 cvt.rnd.dtype=bf16.atype=f16|f64 d:dtype, a:atype
7.8 sm_90 cvt.rnd.dtype=f16.atype=bf16 d:dtype, a:atype
7.8 sm_90 cvt{.rnd}.dtype=f64.atype=bf16 d:dtype, a:atype
7.8 sm_90 cvt.irnd.dtype=bf16.atype=bf16 d:dtype, a:atype
7.0 sm_80 cvt.rnd=rna.dtype=tf32.atype=f32 d:dtype, a:atype
8.1 sm_80 cvt.rnd=rna.satfinite.dtype=tf32.atype=f32 d:dtype, a:atype
7.8 sm_90 cvt.rnd=rn|rz{.relu}.dtype=tf32.atype=f32 d:dtype, a:atype
8.6 sm_100 cvt.rnd=rn|rz.satfinite{.relu}.dtype=tf32.atype=f32 d:dtype, a:atype
8.1 sm_89 cvt.rnd=rn.satfinite{.relu}.dtype=fp8x2.atype=f32 d:dtype, a:atype, b:atype
8.1 sm_89 cvt.rnd=rn.satfinite{.relu}.dtype=fp8x2.atype=f16x2 d:dtype, a:atype
8.1 sm_89 cvt.rnd=rn{.relu}.dtype=f16x2.atype=fp8x2 d:dtype, a:atype
8.6 sm_100f|sm_110f|sm_120f cvt.rnd=rn.satfinite{.relu}.dtype=smallx2.atype=f32 d:dtype, a:atype, b:atype
8.6 sm_100f|sm_110f|sm_120f cvt.rnd=rn{.relu}.dtype=f16x2.atype=smallx2 d:dtype, a:atype
8.6 sm_100f|sm_110f|sm_120f cvt.rnd=rz|rp{.satfinite}.dtype=ue8m0x2.atype=f32 d:dtype, a:atype, b:atype
8.6 sm_100f|sm_110f|sm_120f cvt.rnd=rz|rp{.satfinite}.dtype=ue8m0x2.atype=bf16x2 d:dtype, a:atype
8.6 sm_100f|sm_110f|sm_120f cvt.rnd=rn.dtype=bf16x2.atype=ue8m0x2 d:dtype, a:atype
9.1 sm_100f|sm_110f|sm_120f cvt.rnd=rn.satfinite{.relu}.dtype=smallx2.atype=f16x2|bf16x2 d:dtype, a:atype
9.1 sm_100f|sm_110f|sm_120f cvt.rnd=rn.satfinite{.relu}.dtype=fp8x2.atype=bf16x2 d:dtype, a:atype
9.2 sm_100f|sm_110f|sm_120f cvt.rnd=rn{.satfinite}{.relu}.dtype=bf16x2.atype=fp8x2|smallx2 d:dtype, a:atype
# data-movement-and-conversion-instructions-cvt-pack: d = a and b, saturated and packed
6.5 sm_72 cvt.pack.sat.dtype=u16|s16.type=s32 d:u32, a, b
6.5 sm_72 cvt.pack.sat.dtype=u8|s8.type=s32.b32 d:u32, a:s32, b:s32, c:u32
6.5 sm_75 cvt.pack.sat.dtype=u4|s4|u2|s2.type=s32.b32 d:u32, a:s32, b:s32, c:u32
`

const memoryForms = `
# data-movement-and-conversion-instructions-ld: d = the value in memory at a
2.3 sm_20 ld{.weak}{.space=loadspace}{.cache=cachein}{.L2::cache_hint}{.prefetchsize}{.vec}.type=memory|b128 d:+*vec, [a]{, policy:u64?L2::cache_hint}
7.4 sm_70 ld{.weak}{.space=loadspace}.l1{.L2::cache_hint}{.prefetchsize}{.vec}.type=memory|b128 d:+*vec, [a]{, policy:u64?L2::cache_hint}
2.3 sm_20 ld.sem=volatile{.space=volatilespace}{.prefetchsize}{.vec}.type=memory d:+*vec, [a]
9.1 sm_20 ld.sem=volatile.space=local{.vec}.type=memory d:+*vec, [a]
6.0 sm_70 ld.sem=relaxed|acquire.scope{.space=atomspace}{.l1}{.L2::cache_hint}{.prefetchsize}{.vec}.type=memory d:+*vec, [a]{, policy:u64?L2::cache_hint}
8.2 sm_70 ld.mmio.sem=relaxed.scope=sys{.space=global}.type=memory d:+*vec, [a]
# data-movement-and-conversion-instructions-ld-global-nc: d = the value in global memory at a, through the non-coherent cache
3.1 sm_32 ld.space=global{.cache=ca|cg|cs}.nc{.L2::cache_hint}{.prefetchsize}{.vec}.type=memory|b128 d:+*vec, [a]{, policy:u64?L2::cache_hint}
7.4 sm_70 ld.space=global.nc.l1{.L2::cache_hint}{.prefetchsize}{.vec}.type=memory|b128 d:+*vec, [a]{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-ldu: d = the value in global memory at a, an address that is the same for the whole warp
2.3 sm_20 ldu{.space=global}{.vec}.type=memory d:+*vec, [a]
# data-movement-and-conversion-instructions-st: stores b to memory at a
2.3 sm_20 st{.weak}{.space=storespace}{.cache=cacheout}{.L2::cache_hint}{.vec}.type=memory|b128 [a], b:+*vec{, policy:u64?L2::cache_hint}
7.4 sm_70 st{.weak}{.space=storespace}.l1{.L2::cache_hint}{.vec}.type=memory|b128 [a], b:+*vec{, policy:u64?L2::cache_hint}
2.3 sm_20 st.sem=volatile{.space=volatilespace}{.vec}.type=memory [a], b:+*vec
9.1 sm_20 st.sem=volatile.space=local{.vec}.type=memory [a], b:+*vec
6.0 sm_70 st.sem=relaxed|release.scope{.space=atomspace}{.l1}{.L2::cache_hint}{.vec}.type=memory [a], b:+*vec{, policy:u64?L2::cache_hint}
8.2 sm_70 st.mmio.sem=relaxed.scope=sys{.space=global}.type=memory [a], b:+*vec
# data-movement-and-conversion-instructions-st-async: stores b to shared memory of the cluster asynchronously and completes the bytes on an mbarrier
8.1 sm_90 st.async{.weak}{.space=shared::cluster}.mbarrier::complete_tx::bytes{.vec}.type=b32|b64|u32|u64|s32|s64|f32|f64 [a:shared::cluster], b*vec, [mbar:shared::cluster]
# data-movement-and-conversion-instructions-prefetch-prefetchu: prefetches the cache line at a
2.3 sm_20 prefetch{.space=global|local}.level=L1|L2 [a]
7.4 sm_80 prefetch{.space=global}.level=L2::evict_last|L2::evict_normal [a]
8.0 sm_90 prefetch{.space=const|param}.tensormap [a]
2.3 sm_20 prefetchu.level=L1 [a]
# data-movement-and-conversion-instructions-applypriority: changes the eviction priority of the cache line at a
7.4 sm_80 applypriority{.space=global}.L2::evict_normal [a], size=128
# data-movement-and-conversion-instructions-discard: discards the cache line at a without writing it back
7.4 sm_80 discard{.space=global}.L2 [a], size=128
# data-movement-and-conversion-instructions-createpolicy: d = a cache policy for L2::cache_hint
7.4 sm_80 createpolicy.fractional.primary=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged{.secondary=L2::evict_first|L2::evict_unchanged}.b64 d:u64{, a:f32}
7.4 sm_80 createpolicy.range{.space=global}.primary=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged{.secondary=L2::evict_first|L2::evict_unchanged}.b64 d:u64, [a:global], n:u32, total:u32
`
