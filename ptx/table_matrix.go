package ptx

const mmaForms = `
# warp-level-matrix-instructions-ldmatrix: d = 8×8 matrices from shared memory; the lanes supply the addresses of the rows
6.5 sm_75 ldmatrix.sync.aligned.m8n8.num{.trans}{.space=ownshared}.b16 d:b32*num, [a]
# warp-level-matrix-instructions-stmatrix: stores 8×8 matrices to shared memory; the lanes supply the addresses of the rows
7.8 sm_90 stmatrix.sync.aligned.m8n8.num{.trans}{.space=ownshared}.b16 [a], b:b32*num
# warp-level-matrix-instructions-movmatrix: d = the transpose of an 8×8 matrix in the registers of the warp
7.8 sm_75 movmatrix.sync.aligned.m8n8.trans.b16 d:f16x2, a:f16x2
# warp-level-matrix-instructions-mma: d = a·b + c, for matrices in the registers of the warp
6.4 sm_70 mma.sync.aligned.shape=m8n8k4.alayout=row|col.blayout=row|col.f16.f16.f16.f16 d:f16x2*4, a:f16x2*2, b:f16x2*2, c:f16x2*4
6.4 sm_70 mma.sync.aligned.shape=m8n8k4.alayout=row|col.blayout=row|col.f32.f16.f16.f16 d:f32*8, a:f16x2*2, b:f16x2*2, c:f16x2*4
6.4 sm_70 mma.sync.aligned.shape=m8n8k4.alayout=row|col.blayout=row|col.f32.f16.f16.f32 d:f32*8, a:f16x2*2, b:f16x2*2, c:f32*8
6.5 sm_75 mma.sync.aligned.shape=m16n8k8.row.col.f16.f16.f16.f16 d:f16x2*2, a:f16x2*2, b:f16x2*1, c:f16x2*2
6.5 sm_75 mma.sync.aligned.shape=m16n8k8.row.col.f32.f16.f16.f32 d:f32*4, a:f16x2*2, b:f16x2*1, c:f32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k16.row.col.f16.f16.f16.f16 d:f16x2*2, a:f16x2*4, b:f16x2*2, c:f16x2*2
7.0 sm_80 mma.sync.aligned.shape=m16n8k16.row.col.f32.f16.f16.f32 d:f32*4, a:f16x2*4, b:f16x2*2, c:f32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k8.row.col.f32.bf16.bf16.f32 d:f32*4, a:bf16x2*2, b:bf16x2*1, c:f32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k16.row.col.f32.bf16.bf16.f32 d:f32*4, a:bf16x2*4, b:bf16x2*2, c:f32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k4.row.col.f32.tf32.tf32.f32 d:f32*4, a:tf32*2, b:tf32*1, c:f32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k8.row.col.f32.tf32.tf32.f32 d:f32*4, a:tf32*4, b:tf32*2, c:f32*4
8.4 sm_89 mma.sync.aligned.shape=m16n8k32.row.col.f32.atype=fp8.btype=fp8.f32 d:f32*4, a:b8x4*4, b:b8x4*2, c:f32*4
8.7 sm_89 mma.sync.aligned.shape=m16n8k16.row.col.f32.atype=fp8.btype=fp8.f32 d:f32*4, a:b8x4*2, b:b8x4*1, c:f32*4
8.7 sm_89 mma.sync.aligned.shape=m16n8k32.row.col.f16.atype=fp8.btype=fp8.f16 d:f16x2*2, a:b8x4*4, b:b8x4*2, c:f16x2*2
8.7 sm_89 mma.sync.aligned.shape=m16n8k16.row.col.f16.atype=fp8.btype=fp8.f16 d:f16x2*2, a:b8x4*2, b:b8x4*1, c:f16x2*2
7.0 sm_80 mma.sync.aligned.shape=m8n8k4.row.col.f64.f64.f64.f64 d:f64*2, a:f64*1, b:f64*1, c:f64*2
7.8 sm_90 mma.sync.aligned.shape=m16n8k4.row.col.f64.f64.f64.f64 d:f64*4, a:f64*2, b:f64*1, c:f64*4
7.8 sm_90 mma.sync.aligned.shape=m16n8k8.row.col.f64.f64.f64.f64 d:f64*4, a:f64*4, b:f64*2, c:f64*4
7.8 sm_90 mma.sync.aligned.shape=m16n8k16.row.col.f64.f64.f64.f64 d:f64*4, a:f64*8, b:f64*4, c:f64*4
6.5 sm_75 mma.sync.aligned.shape=m8n8k16.row.col{.satfinite}.s32.atype=u8|s8.btype=u8|s8.s32 d:s32*2, a:u32*1, b:u32*1, c:s32*2
7.0 sm_80 mma.sync.aligned.shape=m16n8k16.row.col{.satfinite}.s32.atype=u8|s8.btype=u8|s8.s32 d:s32*4, a:u32*2, b:u32*1, c:s32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k32.row.col{.satfinite}.s32.atype=u8|s8.btype=u8|s8.s32 d:s32*4, a:u32*4, b:u32*2, c:s32*4
6.5 sm_75 mma.sync.aligned.shape=m8n8k32.row.col{.satfinite}.s32.atype=u4|s4.btype=u4|s4.s32 d:s32*2, a:u32*1, b:u32*1, c:s32*2
7.0 sm_80 mma.sync.aligned.shape=m16n8k32.row.col{.satfinite}.s32.atype=u4|s4.btype=u4|s4.s32 d:s32*4, a:u32*2, b:u32*1, c:s32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k64.row.col{.satfinite}.s32.atype=u4|s4.btype=u4|s4.s32 d:s32*4, a:u32*4, b:u32*2, c:s32*4
7.0 sm_75 mma.sync.aligned.shape=m8n8k128.row.col.s32.b1.b1.s32.bool=xor.popc d:s32*2, a:u32*1, b:u32*1, c:s32*2
7.1 sm_80 mma.sync.aligned.shape=m8n8k128.row.col.s32.b1.b1.s32.bool=and.popc d:s32*2, a:u32*1, b:u32*1, c:s32*2
7.0 sm_80 mma.sync.aligned.shape=m16n8k128.row.col.s32.b1.b1.s32.bool=xor.popc d:s32*4, a:u32*2, b:u32*1, c:s32*4
7.1 sm_80 mma.sync.aligned.shape=m16n8k128.row.col.s32.b1.b1.s32.bool=and.popc d:s32*4, a:u32*2, b:u32*1, c:s32*4
7.0 sm_80 mma.sync.aligned.shape=m16n8k256.row.col.s32.b1.b1.s32.bool=xor.popc d:s32*4, a:u32*4, b:u32*2, c:s32*4
7.1 sm_80 mma.sync.aligned.shape=m16n8k256.row.col.s32.b1.b1.s32.bool=and.popc d:s32*4, a:u32*4, b:u32*2, c:s32*4
8.6 sm_100f|sm_110f|sm_120f mma.sync.aligned.shape=m16n8k32.row.col.kind::f8f6f4.f32.atype=narrow.btype=narrow.f32 d:f32*4, a:b8x4*4, b:b8x4*2, c:f32*4
8.7 sm_100f|sm_110f|sm_120f mma.sync.aligned.shape=m16n8k32.row.col.kind::f8f6f4.f16.atype=narrow.btype=narrow.f16 d:f16x2*2, a:b8x4*4, b:b8x4*2, c:f16x2*2
8.7 sm_120f mma.sync.aligned.shape=m16n8k32.row.col.kind::mxf8f6f4.block_scale{.scale_vec::1X}.f32.atype=narrow.btype=narrow.f32.ue8m0 d:f32*4, a:b8x4*4, b:b8x4*2, c:f32*4, scale-a:b8x4*vec, part-a:u16*2=0..3|0..1, scale-b:b8x4*vec, part-b:u16*2=0..3|0..3
8.7 sm_120f mma.sync.aligned.shape=m16n8k64.row.col.kind::mxf4.block_scale{.scale_vec::2X}.f32.e2m1.e2m1.f32.ue8m0 d:f32*4, a:b32*4, b:b32*2, c:f32*4, scale-a:b8x4*vec, part-a:u16*2=0..2/2|0..1, scale-b:b8x4*vec, part-b:u16*2=0..2/2|0..3
8.7 sm_120f mma.sync.aligned.shape=m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 d:f32*4, a:b32*4, b:b32*2, c:f32*4, scale-a:b8x4*vec, part-a:u16*2=0..2/2|0..1, scale-b:b8x4*vec, part-b:u16*2=0..2/2|0..3
8.7 sm_120f mma.sync.aligned.shape=m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 d:f32*4, a:b32*4, b:b32*2, c:f32*4, scale-a:b8x4*vec, part-a:u16*2=0|0..1, scale-b:b8x4*vec, part-b:u16*2=0|0..3
9.1 sm_120f mma.sync.aligned.shape=m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0 d:f32*4, a:b32*4, b:b32*2, c:f32*4, scale-a:b8x4*vec, part-a:u16*2=0|0..1, scale-b:b8x4*vec, part-b:u16*2=0|0..3
# warp-level-matrix-instructions-mma-sp: d = a·b + c, for a matrix A of which half of the elements are zero
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k16.row.col.f16.f16.f16.f16 d:f16x2*2, a:f16x2*2, b:f16x2*2, c:f16x2*2, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k32.row.col.f16.f16.f16.f16 d:f16x2*2, a:f16x2*4, b:f16x2*4, c:f16x2*2, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k16.row.col.f32.f16.f16.f32 d:f32*4, a:f16x2*2, b:f16x2*2, c:f32*4, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k32.row.col.f32.f16.f16.f32 d:f32*4, a:f16x2*4, b:f16x2*4, c:f32*4, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k16.row.col.f32.bf16.bf16.f32 d:f32*4, a:bf16x2*2, b:bf16x2*2, c:f32*4, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k32.row.col.f32.bf16.bf16.f32 d:f32*4, a:bf16x2*4, b:bf16x2*4, c:f32*4, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k8.row.col.f32.tf32.tf32.f32 d:f32*4, a:tf32*2, b:tf32*2, c:f32*4, meta:b8x4*vec, sel=0..3
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k16.row.col.f32.tf32.tf32.f32 d:f32*4, a:tf32*4, b:tf32*4, c:f32*4, meta:b8x4*vec, sel=0..3
8.4 sm_89 mma.sparse.sync.aligned.shape=m16n8k64.row.col.f32.atype=fp8.btype=fp8.f32 d:f32*4, a:b8x4*4, b:b8x4*4, c:f32*4, meta:b8x4*vec, sel=0
8.7 sm_120f mma.sparse=sp::ordered_metadata.sync.aligned.shape=m16n8k64.row.col.f16.atype=fp8.btype=fp8.f16 d:f16x2*2, a:b8x4*4, b:b8x4*4, c:f16x2*2, meta:b8x4*vec, sel=0
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k32.row.col{.satfinite}.s32.atype=u8|s8.btype=u8|s8.s32 d:s32*4, a:u32*2, b:u32*2, c:s32*4, meta:b8x4*vec, sel=0..1
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k64.row.col{.satfinite}.s32.atype=u8|s8.btype=u8|s8.s32 d:s32*4, a:u32*4, b:u32*4, c:s32*4, meta:b8x4*vec, sel=0
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k64.row.col{.satfinite}.s32.atype=u4|s4.btype=u4|s4.s32 d:s32*4, a:u32*2, b:u32*2, c:s32*4, meta:b8x4*vec, sel=0..1
7.1 sm_80 mma.sparse.sync.aligned.shape=m16n8k128.row.col{.satfinite}.s32.atype=u4|s4.btype=u4|s4.s32 d:s32*4, a:u32*4, b:u32*4, c:s32*4, meta:b8x4*vec, sel=0
8.6 sm_100f|sm_110f|sm_120f mma.sparse=sp::ordered_metadata.sync.aligned.shape=m16n8k64.row.col.kind::f8f6f4.f32.atype=narrow.btype=narrow.f32 d:f32*4, a:b8x4*4, b:b8x4*4, c:f32*4, meta:b8x4*vec, sel=0
8.7 sm_120f mma.sparse=sp::ordered_metadata.sync.aligned.shape=m16n8k64.row.col.kind::f8f6f4.f16.atype=narrow.btype=narrow.f16 d:f16x2*2, a:b8x4*4, b:b8x4*4, c:f16x2*2, meta:b8x4*vec, sel=0
`

const wmmaForms = `
# warp-level-matrix-instructions-wmma-ld: d = the lane's fragment of a matrix in memory
6.3 sm_70 wmma.load.a.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=f16 d:f16x2*8, [a]{, stride:u32}
6.3 sm_70 wmma.load.b.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=f16 d:f16x2*8, [a]{, stride:u32}
6.3 sm_70 wmma.load.c.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=f16 d:f16x2*4, [a]{, stride:u32}
6.3 sm_70 wmma.load.c.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=f32 d:f32*8, [a]{, stride:u32}
7.0 sm_80 wmma.load.a.sync.aligned.layout=row|col.shape=m16n16k16{.space=ldspace}.type=bf16 d:bf16x2*4, [a]{, stride:u32}
7.0 sm_80 wmma.load.b.sync.aligned.layout=row|col.shape=m16n16k16{.space=ldspace}.type=bf16 d:bf16x2*4, [a]{, stride:u32}
7.0 sm_80 wmma.load.a.sync.aligned.layout=row|col.shape=m8n32k16{.space=ldspace}.type=bf16 d:bf16x2*2, [a]{, stride:u32}
7.0 sm_80 wmma.load.b.sync.aligned.layout=row|col.shape=m8n32k16{.space=ldspace}.type=bf16 d:bf16x2*8, [a]{, stride:u32}
7.0 sm_80 wmma.load.a.sync.aligned.layout=row|col.shape=m32n8k16{.space=ldspace}.type=bf16 d:bf16x2*8, [a]{, stride:u32}
7.0 sm_80 wmma.load.b.sync.aligned.layout=row|col.shape=m32n8k16{.space=ldspace}.type=bf16 d:bf16x2*2, [a]{, stride:u32}
7.0 sm_80 wmma.load.a.sync.aligned.layout=row|col.shape=m16n16k8{.space=ldspace}.type=tf32 d:tf32*4, [a]{, stride:u32}
7.0 sm_80 wmma.load.b.sync.aligned.layout=row|col.shape=m16n16k8{.space=ldspace}.type=tf32 d:tf32*4, [a]{, stride:u32}
7.0 sm_80 wmma.load.c.sync.aligned.layout=row|col.shape=m16n16k8{.space=ldspace}.type=f32 d:f32*8, [a]{, stride:u32}
7.0 sm_80 wmma.load.a.sync.aligned.layout=row|col.shape=m8n8k4{.space=ldspace}.type=f64 d:f64*1, [a]{, stride:u32}
7.0 sm_80 wmma.load.b.sync.aligned.layout=row|col.shape=m8n8k4{.space=ldspace}.type=f64 d:f64*1, [a]{, stride:u32}
7.0 sm_80 wmma.load.c.sync.aligned.layout=row|col.shape=m8n8k4{.space=ldspace}.type=f64 d:f64*2, [a]{, stride:u32}
6.3 sm_72 wmma.load.a.sync.aligned.layout=row|col.shape=m16n16k16{.space=ldspace}.type=u8|s8 d:u32*2, [a]{, stride:u32}
6.3 sm_72 wmma.load.b.sync.aligned.layout=row|col.shape=m16n16k16{.space=ldspace}.type=u8|s8 d:u32*2, [a]{, stride:u32}
6.3 sm_72 wmma.load.a.sync.aligned.layout=row|col.shape=m8n32k16{.space=ldspace}.type=u8|s8 d:u32*1, [a]{, stride:u32}
6.3 sm_72 wmma.load.b.sync.aligned.layout=row|col.shape=m8n32k16{.space=ldspace}.type=u8|s8 d:u32*4, [a]{, stride:u32}
6.3 sm_72 wmma.load.a.sync.aligned.layout=row|col.shape=m32n8k16{.space=ldspace}.type=u8|s8 d:u32*4, [a]{, stride:u32}
6.3 sm_72 wmma.load.b.sync.aligned.layout=row|col.shape=m32n8k16{.space=ldspace}.type=u8|s8 d:u32*1, [a]{, stride:u32}
6.3 sm_72 wmma.load.c.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=s32 d:s32*8, [a]{, stride:u32}
# warp-level-matrix-instructions-wmma-st: stores the lane's fragment of a matrix to memory
6.3 sm_70 wmma.store.d.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=f16 [a], b:f16x2*4{, stride:u32}
6.3 sm_70 wmma.store.d.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=f32 [a], b:f32*8{, stride:u32}
6.3 sm_72 wmma.store.d.sync.aligned.layout=row|col.shape=wmma16{.space=ldspace}.type=s32 [a], b:s32*8{, stride:u32}
7.0 sm_80 wmma.store.d.sync.aligned.layout=row|col.shape=m16n16k8{.space=ldspace}.type=f32 [a], b:f32*8{, stride:u32}
7.0 sm_80 wmma.store.d.sync.aligned.layout=row|col.shape=m8n8k4{.space=ldspace}.type=f64 [a], b:f64*2{, stride:u32}
# warp-level-matrix-instructions-wmma-mma: d = a·b + c, for matrices in the registers of the warp
6.3 sm_70 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=wmma16.f16.f16 d:f16x2*4, a:f16x2*8, b:f16x2*8, c:f16x2*4
6.3 sm_70 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=wmma16.f16.f32 d:f16x2*4, a:f16x2*8, b:f16x2*8, c:f32*8
6.3 sm_70 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=wmma16.f32.f16 d:f32*8, a:f16x2*8, b:f16x2*8, c:f16x2*4
6.3 sm_70 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=wmma16.f32.f32 d:f32*8, a:f16x2*8, b:f16x2*8, c:f32*8
7.0 sm_80 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m16n16k16.f32.bf16.bf16.f32 d:f32*8, a:bf16x2*4, b:bf16x2*4, c:f32*8
7.0 sm_80 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m8n32k16.f32.bf16.bf16.f32 d:f32*8, a:bf16x2*2, b:bf16x2*8, c:f32*8
7.0 sm_80 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m32n8k16.f32.bf16.bf16.f32 d:f32*8, a:bf16x2*8, b:bf16x2*2, c:f32*8
7.0 sm_80 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m16n16k8.f32.tf32.tf32.f32 d:f32*8, a:tf32*4, b:tf32*4, c:f32*8
7.0 sm_80 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m8n8k4.f64.f64.f64.f64{.rnd} d:f64*2, a:f64*1, b:f64*1, c:f64*2
6.3 sm_72 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m16n16k16.s32.atype=u8.btype=u8.s32{.satfinite} d:s32*8, a:u32*2, b:u32*2, c:s32*8
6.3 sm_72 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m16n16k16.s32.atype=s8.btype=s8.s32{.satfinite} d:s32*8, a:u32*2, b:u32*2, c:s32*8
6.3 sm_72 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m8n32k16.s32.atype=u8.btype=u8.s32{.satfinite} d:s32*8, a:u32*1, b:u32*4, c:s32*8
6.3 sm_72 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m8n32k16.s32.atype=s8.btype=s8.s32{.satfinite} d:s32*8, a:u32*1, b:u32*4, c:s32*8
6.3 sm_72 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m32n8k16.s32.atype=u8.btype=u8.s32{.satfinite} d:s32*8, a:u32*4, b:u32*1, c:s32*8
6.3 sm_72 wmma.mma.sync.aligned.alayout=row|col.blayout=row|col.shape=m32n8k16.s32.atype=s8.btype=s8.s32{.satfinite} d:s32*8, a:u32*4, b:u32*1, c:s32*8
`

const wgmmaForms = `
# asynchronous-warpgroup-level-matrix-instructions-wgmma-fence: orders register accesses before wgmma.mma_async
8.0 sm_90a wgmma.fence.sync{.aligned}
# asynchronous-warpgroup-level-matrix-instructions-wgmma-commit-group: commits the preceding wgmma.mma_async as a group
8.0 sm_90a wgmma.commit_group.sync{.aligned}
# asynchronous-warpgroup-level-matrix-instructions-wgmma-wait-group: waits until at most n wgmma groups are pending
8.0 sm_90a wgmma.wait_group.sync{.aligned} n=0..7
# asynchronous-warpgroup-level-matrix-instructions-wgmma-mma-async: d = a·b, or a·b + d, asynchronously
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma16.f16.f16.f16 d:f16x2*N/4, a:u64, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1, trans-a=0..1, trans-b=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma16.f16.f16.f16 d:f16x2*N/4, a:f16x2*4, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1, trans-b=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma16.f32.type=f16.f16 d:f32*N/2, a:u64, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1, trans-a=0..1, trans-b=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma16.f32.type=f16.f16 d:f32*N/2, a:f16x2*4, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1, trans-b=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma16.f32.type=bf16.bf16 d:f32*N/2, a:u64, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1, trans-a=0..1, trans-b=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma16.f32.type=bf16.bf16 d:f32*N/2, a:bf16x2*4, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1, trans-b=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma8.f32.type=tf32.tf32 d:f32*N/2, a:u64, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma8.f32.type=tf32.tf32 d:f32*N/2, a:tf32*4, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma32.f32.atype=fp8.btype=fp8 d:f32*N/2, a:u64, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma32.f32.atype=fp8.btype=fp8 d:f32*N/2, a:b8x4*4, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma32.f16.atype=fp8.btype=fp8 d:f16x2*N/4, a:u64, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmma32.f16.atype=fp8.btype=fp8 d:f16x2*N/4, a:b8x4*4, b:u64, !scale-d:pred=0..1, scale-a=-1|1, scale-b=-1|1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=u8.btype=u8 d:s32*N/2, a:u64, b:u64, !scale-d:pred=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=s8.btype=s8 d:s32*N/2, a:u64, b:u64, !scale-d:pred=0..1
8.4 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=u8.btype=s8 d:s32*N/2, a:u64, b:u64, !scale-d:pred=0..1
8.4 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=s8.btype=u8 d:s32*N/2, a:u64, b:u64, !scale-d:pred=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=u8.btype=u8 d:s32*N/2, a:u32*4, b:u64, !scale-d:pred=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=s8.btype=s8 d:s32*N/2, a:u32*4, b:u64, !scale-d:pred=0..1
8.4 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=u8.btype=s8 d:s32*N/2, a:u32*4, b:u64, !scale-d:pred=0..1
8.4 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmaint{.satfinite}.s32.atype=s8.btype=u8 d:s32*N/2, a:u32*4, b:u64, !scale-d:pred=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmabit.s32.b1.b1.op=and.popc d:s32*N/2, a:u64, b:u64, !scale-d:pred=0..1
8.0 sm_90a wgmma.mma_async.sync{.aligned}.shape=wgmmabit.s32.b1.b1.op=and.popc d:s32*N/2, a:u32*4, b:u64, !scale-d:pred=0..1
`
