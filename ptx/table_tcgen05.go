package ptx

const tcgen05Forms = `
# tcgen05-instructions-tcgen05-alloc: allocates columns of tensor memory and stores their address at d
8.6 sm_100f|sm_110f tcgen05.alloc.group.sync.aligned{.space=shared::cta}.b32 [d], n:u32=32|64|128|256|512
# tcgen05-instructions-tcgen05-alloc-dealloc-relinquish-alloc-permit: frees the columns of tensor memory at a
8.6 sm_100f|sm_110f tcgen05.dealloc.group.sync.aligned.b32 a:u32, n:u32=32|64|128|256|512
8.6 sm_100f|sm_110f tcgen05.relinquish_alloc_permit.group.sync.aligned
# tcgen05-instructions-tcgen05-ld: d = the warp's lanes of tensor memory, asynchronously
8.6 sm_100f|sm_110f tcgen05.ld.sync.aligned.shape=32x32b|16x64b.num=upto128{.pack::16b}.b32 d:b32*num, [a:tensor]
8.6 sm_100f|sm_110f tcgen05.ld.sync.aligned.shape=16x128b.num=upto64{.pack::16b}.b32 d:b32*num*2, [a:tensor]
8.6 sm_100f|sm_110f tcgen05.ld.sync.aligned.shape=16x256b.num=upto32{.pack::16b}.b32 d:b32*num*4, [a:tensor]
8.6 sm_100f|sm_110f tcgen05.ld.sync.aligned.shape=16x32bx2.num=upto128{.pack::16b}.b32 d:b32*num, [a:tensor], half=0..65535
# tcgen05-instructions-tcgen05-ld: as tcgen05.ld, and dred = the smallest or largest word of each lane
8.8 sm_103f|sm_110f tcgen05.ld.red.sync.aligned.shape=32x32b.num=from2.op=min|max{.abs}{.NaN}.type=f32 d:b32*num, dred:f32, [a:tensor]
8.8 sm_103f|sm_110f tcgen05.ld.red.sync.aligned.shape=32x32b.num=from2.op=min|max.type=u32|s32 d:b32*num, dred:type, [a:tensor]
8.8 sm_103f|sm_110f tcgen05.ld.red.sync.aligned.shape=16x32bx2.num=from2.op=min|max{.abs}{.NaN}.type=f32 d:b32*num, dred:f32, [a:tensor], half=0..65535
8.8 sm_103f|sm_110f tcgen05.ld.red.sync.aligned.shape=16x32bx2.num=from2.op=min|max.type=u32|s32 d:b32*num, dred:type, [a:tensor], half=0..65535
# tcgen05-instructions-tcgen05-st: stores b to the warp's lanes of tensor memory, asynchronously
8.6 sm_100f|sm_110f tcgen05.st.sync.aligned.shape=32x32b|16x64b.num=upto128{.unpack::16b}.b32 [a:tensor], b:b32*num
8.6 sm_100f|sm_110f tcgen05.st.sync.aligned.shape=16x128b.num=upto64{.unpack::16b}.b32 [a:tensor], b:b32*num*2
8.6 sm_100f|sm_110f tcgen05.st.sync.aligned.shape=16x256b.num=upto32{.unpack::16b}.b32 [a:tensor], b:b32*num*4
8.6 sm_100f|sm_110f tcgen05.st.sync.aligned.shape=16x32bx2.num=upto128{.unpack::16b}.b32 [a:tensor], half=0..65535, b:b32*num
# tcgen05-instructions-tcgen05-wait: waits for the thread's tcgen05.ld or tcgen05.st
8.6 sm_100f|sm_110f tcgen05.op=wait::ld|wait::st.sync.aligned
# tcgen05-instructions-tcgen05-cp: copies a matrix from shared to tensor memory asynchronously
8.6 sm_100f|sm_110f tcgen05.cp.group.shape=128x256b|4x256b|128x128b{.b8x16.from=b6x16_p32|b4x16_p64} [d:tensor], a:u64
8.6 sm_100f|sm_110f tcgen05.cp.group.shape=64x128b.copies=warpx2::02_13|warpx2::01_23{.b8x16.from=b6x16_p32|b4x16_p64} [d:tensor], a:u64
8.6 sm_100f|sm_110f tcgen05.cp.group.shape=32x128b.copies=warpx4{.b8x16.from=b6x16_p32|b4x16_p64} [d:tensor], a:u64
# tcgen05-instructions-tcgen05-shift: moves rows of tensor memory to the rows before them asynchronously
8.6 sm_100a|sm_103a|sm_110a tcgen05.shift.group.down [a:tensor]
# tcgen05-instructions-tcgen05-fence: orders tensor memory accesses with the synchronization of threads
8.6 sm_100f|sm_110f tcgen05.op=fence::before_thread_sync|fence::after_thread_sync
# tcgen05-instructions-tcgen05-commit: arrives at an mbarrier when the thread's preceding tcgen05 operations are complete
8.6 sm_100f|sm_110f tcgen05.commit.group.mbarrier::arrive::one{.space=shared::cluster}{.multicast::cluster}.b64 [a]{, mask:u16?multicast::cluster}
# tcgen05-instructions-tcgen05-mma: d = a·b, or a·b + d, asynchronously in tensor memory; .sp: a is sparse
8.6 sm_100f tcgen05.mma{.sp}.group.kind=kind::f16|kind::tf32{.collector} [d:tensor], a:u64, b:u64, [meta:tensor]?sp, idesc:u32{, lanes:b32*group*4}, !input-d:pred, scale-d=0..15
8.6 sm_100f tcgen05.mma{.sp}.group.kind=kind::f16|kind::tf32{.ashift}{.collector} [d:tensor], [a:tensor], b:u64, [meta:tensor]?sp, idesc:u32{, lanes:b32*group*4}, !input-d:pred, scale-d=0..15
8.6 sm_100f|sm_110f tcgen05.mma{.sp}.group.kind=kind::f16|kind::tf32|kind::f8f6f4|kind::i8{.collector} [d:tensor], a:u64, b:u64, [meta:tensor]?sp, idesc:u32{, lanes:b32*group*4}, !input-d:pred
8.6 sm_100f|sm_110f tcgen05.mma{.sp}.group.kind=kind::f16|kind::tf32|kind::f8f6f4|kind::i8{.ashift}{.collector} [d:tensor], [a:tensor], b:u64, [meta:tensor]?sp, idesc:u32{, lanes:b32*group*4}, !input-d:pred
8.6 sm_100f|sm_110f tcgen05.mma{.sp}.group.kind=kind::mxf8f6f4.block_scale{.scales=scale_vec::1X|block32}{.collector} [d:tensor], a:u64, b:u64, [meta:tensor]?sp, idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.6 sm_100f|sm_110f tcgen05.mma{.sp}.group.kind=kind::mxf8f6f4.block_scale{.scales=scale_vec::1X|block32}{.collector} [d:tensor], [a:tensor], b:u64, [meta:tensor]?sp, idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.6 sm_100f|sm_110f tcgen05.mma.group.kind=kind::mxf4.block_scale{.scales=scale_vec::2X|block32}{.collector} [d:tensor], a:u64, b:u64, idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.6 sm_100a|sm_103a|sm_110a tcgen05.mma.sp.group.kind=kind::mxf4.block_scale{.scales=scale_vec::2X|block32}{.collector} [d:tensor], a:u64, b:u64, [meta:tensor], idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.6 sm_100f|sm_110f tcgen05.mma.group.kind=kind::mxf4.block_scale{.scales=scale_vec::2X|block32}{.collector} [d:tensor], [a:tensor], b:u64, idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.6 sm_100a|sm_103a|sm_110a tcgen05.mma.sp.group.kind=kind::mxf4.block_scale{.scales=scale_vec::2X|block32}{.collector} [d:tensor], [a:tensor], b:u64, [meta:tensor], idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.7 sm_100f|sm_110f tcgen05.mma.group.kind=kind::mxf4nvf4.block_scale.scales=scale_vec::2X|scale_vec::4X|block32|block16{.collector} [d:tensor], a:u64, b:u64, idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.7 sm_100a|sm_103a|sm_110a tcgen05.mma.sp.group.kind=kind::mxf4nvf4.block_scale.scales=scale_vec::2X|scale_vec::4X|block32|block16{.collector} [d:tensor], a:u64, b:u64, [meta:tensor], idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.7 sm_100f|sm_110f tcgen05.mma.group.kind=kind::mxf4nvf4.block_scale.scales=scale_vec::2X|scale_vec::4X|block32|block16{.collector} [d:tensor], [a:tensor], b:u64, idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
8.7 sm_100a|sm_103a|sm_110a tcgen05.mma.sp.group.kind=kind::mxf4nvf4.block_scale.scales=scale_vec::2X|scale_vec::4X|block32|block16{.collector} [d:tensor], [a:tensor], b:u64, [meta:tensor], idesc:u32, [scale-a:tensor], [scale-b:tensor], !input-d:pred
# tcgen05-instructions-tcgen05-mma-ws: as tcgen05.mma, with B kept in the collector for the next operation
8.6 sm_100f|sm_110f tcgen05.mma.ws{.sp}.cta_group::1.kind=kind::f16|kind::tf32|kind::f8f6f4|kind::i8{.collector=collectorb} [d:tensor], a:u64, b:u64, [meta:tensor]?sp, idesc:u32, !input-d:pred{, zeros:u64}
8.6 sm_100f|sm_110f tcgen05.mma.ws{.sp}.cta_group::1.kind=kind::f16|kind::tf32|kind::f8f6f4|kind::i8{.collector=collectorb} [d:tensor], [a:tensor], b:u64, [meta:tensor]?sp, idesc:u32, !input-d:pred{, zeros:u64}
`
