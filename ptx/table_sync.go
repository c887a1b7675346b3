package ptx

const atomicForms = `
# parallel-synchronization-and-communication-instructions-atom: combines the value at a with b atomically; d = the value before
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=and|or|xor|exch{.L2::cache_hint}.type=b32 d_, [a], b{, policy:u64?L2::cache_hint}
3.1 sm_32 atom{.sem}{.scope}{.space=atomspace}.op=and|or|xor{.L2::cache_hint}.type=b64 d_, [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=exch{.L2::cache_hint}.type=b64 d_, [a], b{, policy:u64?L2::cache_hint}
8.4 sm_90 atom{.sem}{.scope}{.space=atomspace}.op=exch{.L2::cache_hint}.type=b128 d_, [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=cas.type=b32 d_, [a], b, c
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=cas.type=b64 d_, [a], b, c
6.3 sm_70 atom{.sem}{.scope}{.space=atomspace}.op=cas.type=b16 d_, [a], b, c
8.4 sm_90 atom{.sem}{.scope}{.space=atomspace}.op=cas.type=b128 d_, [a], b, c
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=u32|s32 d_, [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=u64 d_, [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=f32 d_, [a], b{, policy:u64?L2::cache_hint}
5.0 sm_60 atom{.sem}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=f64 d_, [a], b{, policy:u64?L2::cache_hint}
6.2 sm_60 atom{.sem}{.scope}{.space=atomspace}.op=add.noftz{.L2::cache_hint}.type=f16x2 d_, [a], b{, policy:u64?L2::cache_hint}
6.3 sm_70 atom{.sem}{.scope}{.space=atomspace}.op=add.noftz{.L2::cache_hint}.type=f16 d_, [a], b{, policy:u64?L2::cache_hint}
7.8 sm_90 atom{.sem}{.scope}{.space=atomspace}.op=add.noftz{.L2::cache_hint}.type=bhalf d_, [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=inc|dec{.L2::cache_hint}.type=u32 d_, [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 atom{.sem}{.scope}{.space=atomspace}.op=min|max{.L2::cache_hint}.type=u32|s32 d_, [a], b{, policy:u64?L2::cache_hint}
3.1 sm_32 atom{.sem}{.scope}{.space=atomspace}.op=min|max{.L2::cache_hint}.type=u64|s64 d_, [a], b{, policy:u64?L2::cache_hint}
8.1 sm_90 atom{.sem}{.scope}{.space=global}.op=add{.L2::cache_hint}.vec.type=f32 d_*vec, [a], b*vec{, policy:u64?L2::cache_hint}
8.1 sm_90 atom{.sem}{.scope}{.space=global}.op=add|min|max.noftz{.L2::cache_hint}.vec=v2|v4|v8.type=f16|bf16 d_*vec, [a], b*vec{, policy:u64?L2::cache_hint}
8.1 sm_90 atom{.sem}{.scope}{.space=global}.op=add|min|max.noftz{.L2::cache_hint}.vec.type=f16x2|bf16x2 d_*vec, [a], b*vec{, policy:u64?L2::cache_hint}
# parallel-synchronization-and-communication-instructions-red: combines the value at a with b atomically
2.3 sm_20 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=and|or|xor{.L2::cache_hint}.type=b32 [a], b{, policy:u64?L2::cache_hint}
3.1 sm_32 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=and|or|xor{.L2::cache_hint}.type=b64 [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=u32|s32 [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=u64 [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=f32 [a], b{, policy:u64?L2::cache_hint}
5.0 sm_60 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add{.L2::cache_hint}.type=f64 [a], b{, policy:u64?L2::cache_hint}
6.2 sm_60 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add.noftz{.L2::cache_hint}.type=f16x2 [a], b{, policy:u64?L2::cache_hint}
6.3 sm_70 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add.noftz{.L2::cache_hint}.type=f16 [a], b{, policy:u64?L2::cache_hint}
7.8 sm_90 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=add.noftz{.L2::cache_hint}.type=bhalf [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=inc|dec{.L2::cache_hint}.type=u32 [a], b{, policy:u64?L2::cache_hint}
2.3 sm_20 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=min|max{.L2::cache_hint}.type=u32|s32 [a], b{, policy:u64?L2::cache_hint}
3.1 sm_32 red{.sem=relaxed|release}{.scope}{.space=atomspace}.op=min|max{.L2::cache_hint}.type=u64|s64 [a], b{, policy:u64?L2::cache_hint}
8.1 sm_90 red{.sem=relaxed|release}{.scope}{.space=global}.op=add{.L2::cache_hint}.vec.type=f32 [a], b*vec{, policy:u64?L2::cache_hint}
8.1 sm_90 red{.sem=relaxed|release}{.scope}{.space=global}.op=add|min|max.noftz{.L2::cache_hint}.vec=v2|v4|v8.type=f16|bf16 [a], b*vec{, policy:u64?L2::cache_hint}
8.1 sm_90 red{.sem=relaxed|release}{.scope}{.space=global}.op=add|min|max.noftz{.L2::cache_hint}.vec.type=f16x2|bf16x2 [a], b*vec{, policy:u64?L2::cache_hint}
`

const warpForms = `
# data-movement-and-conversion-instructions-shfl-sync: d = a of another lane of the warp; p = whether the index of that lane is in range
6.0 sm_30 shfl.sync.mode=up|down|bfly|idx.b32 d{|p_}, a, b:u32, c:u32, mask:u32
# parallel-synchronization-and-communication-instructions-vote-sync: d = a vote of the lanes of the warp on the predicate a
6.0 sm_30 vote.sync.mode=all|any|uni.pred d, !a, mask:u32
6.0 sm_30 vote.sync.mode=ballot.b32 d, !a:pred, mask:u32
# parallel-synchronization-and-communication-instructions-match-sync: d = the mask of lanes with the same a; p = whether all lanes have the same a
6.0 sm_70 match.mode=any.sync.type=bit32_64 d:u32, a, mask:u32
6.0 sm_70 match.mode=all.sync.type=bit32_64 d_:u32{|p_}, a, mask:u32
# parallel-synchronization-and-communication-instructions-redux-sync: d = the reduction of a over the lanes of the warp
7.0 sm_80 redux.sync.op=add|min|max.type=u32|s32 d, a, mask:u32
7.0 sm_80 redux.sync.op=and|or|xor.type=b32 d:u32, a:u32, mask:u32
8.6 sm_100f redux.sync.op=min|max{.abs}{.NaN}.type=f32 d, a, mask:u32
# parallel-synchronization-and-communication-instructions-activemask: d = the mask of active lanes
6.2 sm_30 activemask.b32 d
# parallel-synchronization-and-communication-instructions-elect-sync: d = an elected lane of the warp; p = whether it is the executing one
8.0 sm_90 elect.sync d_:u32|p, mask:u32
`

const barrierForms = `
# parallel-synchronization-and-communication-instructions-bar: arrives at a barrier of the block, and waits for it unless the instruction is an arrive
2.3 sm_20 bar{.cta}.sync a:u32=0..15{, b:u32=32..1024/32}
2.3 sm_20 bar{.cta}.arrive a:u32=0..15, b:u32=32..1024/32
2.3 sm_20 bar{.cta}.red.op=popc.u32 d, a:u32=0..15{, b:u32=32..1024/32}, !c:pred
2.3 sm_20 bar{.cta}.red.op=and|or.pred d, a:u32=0..15{, b:u32=32..1024/32}, !c:pred
6.0 sm_30 barrier{.cta}.sync{.aligned} a:u32=0..15{, b:u32=32..1024/32}
6.0 sm_30 barrier{.cta}.arrive{.aligned} a:u32=0..15, b:u32=32..1024/32
6.0 sm_30 barrier{.cta}.red.op=popc{.aligned}.u32 d, a:u32=0..15{, b:u32=32..1024/32}, !c:pred
6.0 sm_30 barrier{.cta}.red.op=and|or{.aligned}.pred d, a:u32=0..15{, b:u32=32..1024/32}, !c:pred
# parallel-synchronization-and-communication-instructions-bar-warp-sync: waits for other lanes of the warp
6.0 sm_30 bar.warp.sync mask:u32
# parallel-synchronization-and-communication-instructions-barrier-cluster: arrives at the barrier of the cluster, or waits for it
7.8 sm_90 barrier.cluster.arrive{.sem=release|relaxed}{.aligned}
7.8 sm_90 barrier.cluster.wait{.sem=acquire}{.aligned}
# parallel-synchronization-and-communication-instructions-membar: orders memory accesses
2.3 sm_20 membar.level=cta|gl|sys
6.0 sm_70 fence{.sem=sc|acq_rel}.scope
8.6 sm_90 fence.sem=acquire|release.scope
8.6 sm_90 fence.sem=acquire.sync_restrict::shared::cluster.cluster
8.6 sm_90 fence.sem=release.sync_restrict::shared::cta.cluster
8.0 sm_90 fence.mbarrier_init.release.cluster
7.5 sm_70 fence.proxy.kind=alias
8.0 sm_90 fence.proxy.kind=async{.space=global|shared::cta|shared::cluster}
8.6 sm_90 fence.proxy.kind=async::generic.sem=acquire.sync_restrict::shared::cluster.cluster
8.6 sm_90 fence.proxy.kind=async::generic.sem=release.sync_restrict::shared::cta.cluster
8.3 sm_90 fence.proxy.kind=tensormap::generic.release.scope
8.3 sm_90 fence.proxy.kind=tensormap::generic.acquire.scope [a], size=128
7.5 sm_60 membar.proxy.kind=alias
# parallel-synchronization-and-communication-instructions-griddepcontrol: lets dependent grids launch, or waits for prerequisite grids
7.8 sm_90 griddepcontrol.action=launch_dependents|wait
`

const asyncForms = `
# parallel-synchronization-and-communication-instructions-mbarrier-init: initializes an mbarrier to expect n arrivals per phase
7.0 sm_80 mbarrier.init{.space=ownshared}.b64 [a], n:u32=1..1048575
# parallel-synchronization-and-communication-instructions-mbarrier-inval: invalidates an mbarrier, so that its memory can be reused
7.0 sm_80 mbarrier.inval{.space=ownshared}.b64 [a]
# parallel-synchronization-and-communication-instructions-mbarrier-expect-tx: increases the transaction count of an mbarrier
8.0 sm_90 mbarrier.expect_tx{.sem=relaxed.scope=cta|cluster}{.space=anyshared}.b64 [a], n:u32
# parallel-synchronization-and-communication-instructions-mbarrier-complete-tx: decreases the transaction count of an mbarrier
8.0 sm_90 mbarrier.complete_tx{.sem=relaxed.scope=cta|cluster}{.space=anyshared}.b64 [a], n:u32
# parallel-synchronization-and-communication-instructions-mbarrier-arrive: arrives at an mbarrier; d = its state before
7.0 sm_80 mbarrier.arrive{.sem=release.scope=cta|cluster}{.space=ownshared}.b64 d_:u64, [a]
7.8 sm_90 mbarrier.arrive{.sem=release.scope=cta|cluster}{.space=ownshared}.b64 d_:u64, [a], n:u32=1..1048575
7.0 sm_80 mbarrier.arrive.noComplete{.sem=release.scope=cta}{.space=ownshared}.b64 d_:u64, [a], n:u32=1..1048575
8.0 sm_90 mbarrier.arrive{.sem=release.scope=cta|cluster}.space=shared::cluster.b64 _, [a]{, n:u32=1..1048575}
8.0 sm_90 mbarrier.arrive.expect_tx{.sem=release.scope=cta|cluster}{.space=ownshared}.b64 d_:u64, [a], n:u32
8.0 sm_90 mbarrier.arrive.expect_tx{.sem=release.scope=cta|cluster}.space=shared::cluster.b64 _, [a], n:u32
# parallel-synchronization-and-communication-instructions-mbarrier-arrive-drop: arrives at an mbarrier and lowers the arrivals that its later phases expect
7.0 sm_80 mbarrier.arrive_drop{.sem=release.scope=cta|cluster}{.space=ownshared}.b64 d_:u64, [a]
7.8 sm_90 mbarrier.arrive_drop{.sem=release.scope=cta|cluster}{.space=ownshared}.b64 d_:u64, [a], n:u32=1..1048575
7.0 sm_80 mbarrier.arrive_drop.noComplete{.sem=release.scope=cta}{.space=ownshared}.b64 d_:u64, [a], n:u32=1..1048575
8.0 sm_90 mbarrier.arrive_drop{.sem=release.scope=cta|cluster}.space=shared::cluster.b64 _, [a]{, n:u32=1..1048575}
8.0 sm_90 mbarrier.arrive_drop.expect_tx{.sem=release.scope=cta|cluster}{.space=ownshared}.b64 d_:u64, [a], n:u32
8.0 sm_90 mbarrier.arrive_drop.expect_tx{.sem=release.scope=cta|cluster}.space=shared::cluster.b64 _, [a], n:u32
# parallel-synchronization-and-communication-instructions-mbarrier-test-wait: d = whether a phase of an mbarrier is complete
7.0 sm_80 mbarrier.test_wait{.sem=acquire.scope=cta|cluster}{.space=ownshared}.b64 d:pred, [a], state:u64
7.1 sm_80 mbarrier.test_wait.parity{.sem=acquire.scope=cta|cluster}{.space=ownshared}.b64 d:pred, [a], phase:u32=0..1
# parallel-synchronization-and-communication-instructions-mbarrier-try-wait: d = whether a phase of an mbarrier is complete, after waiting for a limited time
7.8 sm_90 mbarrier.try_wait{.sem=acquire.scope=cta|cluster}{.space=ownshared}.b64 d:pred, [a], state:u64{, ns:u32}
7.8 sm_90 mbarrier.try_wait.parity{.sem=acquire.scope=cta|cluster}{.space=ownshared}.b64 d:pred, [a], phase:u32=0..1{, ns:u32}
# parallel-synchronization-and-communication-instructions-mbarrier-pending-count: d = the number of pending arrivals in an mbarrier state
7.0 sm_80 mbarrier.pending_count.b64 d:u32, state:u64
# data-movement-and-conversion-instructions-cp-async: copies from global to shared memory asynchronously
7.0 sm_80 cp.async.cache=ca.dst=ownshared.src=global{.L2::cache_hint}{.prefetchsize} [d:shared], [a:global], size=4|8|16{, n:u32=0..16}{, policy:u64?L2::cache_hint}
7.0 sm_80 cp.async.cache=cg.dst=ownshared.src=global{.L2::cache_hint}{.prefetchsize} [d:shared], [a:global], size=16{, n:u32=0..16}{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-async-commit-group: commits the preceding cp.async as a group
7.0 sm_80 cp.async.commit_group
# data-movement-and-conversion-instructions-cp-async-wait-group: waits until at most n cp.async groups are pending
7.0 sm_80 cp.async.wait_group n=0..2147483647
7.0 sm_80 cp.async.wait_all
# parallel-synchronization-and-communication-instructions-cp-async-mbarrier-arrive: arrives at an mbarrier when the thread's preceding cp.async are complete
7.0 sm_80 cp.async.mbarrier.arrive{.noinc}{.space=shared}.b64 [a]
7.8 sm_80 cp.async.mbarrier.arrive{.noinc}.space=shared::cta.b64 [a]
`

const bulkForms = `
# data-movement-and-conversion-instructions-cp-async-bulk: copies n bytes asynchronously
8.0 sm_90 cp.async.bulk.dst=shared::cluster.src=global.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint} [d:shared::cluster], [a:global], n:u32=0..1048560/16, [mbar:shared]{, mask:u16=0..65535?multicast::cluster}{, policy:u64?L2::cache_hint}
8.6 sm_90 cp.async.bulk.dst=shared::cta.src=global.mbarrier::complete_tx::bytes{.L2::cache_hint} [d:shared], [a:global], n:u32=0..1048560/16, [mbar:shared]{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.async.bulk.dst=shared::cluster.src=shared::cta.mbarrier::complete_tx::bytes [d:shared::cluster], [a:shared], n:u32=0..1048560/16, [mbar:shared::cluster]
8.0 sm_90 cp.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint} [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-async-bulk-prefetch: prefetches n bytes into L2
8.0 sm_90 cp.async.bulk.prefetch.L2.src=global{.L2::cache_hint} [a:global], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-reduce-async-bulk: reduces n bytes into those at d asynchronously
8.0 sm_90 cp.reduce.async.bulk.dst=shared::cluster.src=shared::cta.mbarrier::complete_tx::bytes.op=add|inc|dec|min|max.type=u32 [d:shared::cluster], [a:shared], n:u32=0..1048560/16, [mbar:shared::cluster]
8.0 sm_90 cp.reduce.async.bulk.dst=shared::cluster.src=shared::cta.mbarrier::complete_tx::bytes.op=add|min|max.type=s32 [d:shared::cluster], [a:shared], n:u32=0..1048560/16, [mbar:shared::cluster]
8.0 sm_90 cp.reduce.async.bulk.dst=shared::cluster.src=shared::cta.mbarrier::complete_tx::bytes.op=add.type=u64 [d:shared::cluster], [a:shared], n:u32=0..1048560/16, [mbar:shared::cluster]
8.0 sm_90 cp.reduce.async.bulk.dst=shared::cluster.src=shared::cta.mbarrier::complete_tx::bytes.op=and|or|xor.type=b32 [d:shared::cluster], [a:shared], n:u32=0..1048560/16, [mbar:shared::cluster]
8.0 sm_90 cp.reduce.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint}.op=add|inc|dec|min|max.type=u32 [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.reduce.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint}.op=add|min|max.type=s32|u64 [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.reduce.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint}.op=min|max.type=s64|f16|bf16 [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.reduce.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint}.op=and|or|xor.type=b32|b64 [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.reduce.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint}.op=add.type=f32|f64 [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.reduce.async.bulk.dst=global.src=shared::cta.bulk_group{.L2::cache_hint}.op=add.noftz.type=f16|bf16 [d:global], [a:shared], n:u32=0..1048560/16{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-async-bulk-tensor: copies a box of a tensor asynchronously
8.0 sm_90 cp.async.bulk.tensor.dim.dst=shared::cluster.src=global{.tile}.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint} [d:shared::cluster], [a:generic, c*dim], [mbar:shared]{, mask:u16=0..65535?multicast::cluster}{, policy:u64?L2::cache_hint}
8.6 sm_90 cp.async.bulk.tensor.dim.dst=shared::cta.src=global{.tile}.mbarrier::complete_tx::bytes{.L2::cache_hint} [d:shared], [a:generic, c*dim], [mbar:shared]{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.async.bulk.tensor.dim=3d|4d|5d.dst=shared::cluster.src=global.im2col.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint} [d:shared::cluster], [a:generic, c*dim], [mbar:shared], offsets:u16*dim-2=0..65535{, mask:u16=0..65535?multicast::cluster}{, policy:u64?L2::cache_hint}
8.6 sm_90 cp.async.bulk.tensor.dim=3d|4d|5d.dst=shared::cta.src=global.im2col.mbarrier::complete_tx::bytes{.L2::cache_hint} [d:shared], [a:generic, c*dim], [mbar:shared], offsets:u16*dim-2=0..65535{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.async.bulk.tensor.dim.dst=global.src=shared::cta{.tile}.bulk_group{.L2::cache_hint} [d:generic, c*dim], [a:shared]{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-async-bulk-prefetch-tensor: prefetches a box of a tensor into L2
8.0 sm_90 cp.async.bulk.prefetch.tensor.dim.L2.src=global{.tile}{.L2::cache_hint} [a:generic, c*dim]{, policy:u64?L2::cache_hint}
8.0 sm_90 cp.async.bulk.prefetch.tensor.dim=3d|4d|5d.L2.src=global.im2col{.L2::cache_hint} [a:generic, c*dim], offsets:u16*dim-2=0..65535{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-reduce-async-bulk-tensor: reduces a box in shared memory into a tensor asynchronously
8.0 sm_90 cp.reduce.async.bulk.tensor.dim.dst=global.src=shared::cta.op=add|min|max|inc|dec|and|or|xor{.tile}.bulk_group{.L2::cache_hint} [d:generic, c*dim], [a:shared]{, policy:u64?L2::cache_hint}
# data-movement-and-conversion-instructions-cp-async-bulk-commit-group: commits the preceding bulk copies as a group
8.0 sm_90 cp.async.bulk.commit_group
# data-movement-and-conversion-instructions-cp-async-bulk-wait-group: waits until at most n groups of bulk copies are pending, or have sources yet to be read
8.0 sm_90 cp.async.bulk.wait_group{.read} n=0..2147483647
# data-movement-and-conversion-instructions-tensormap-replace: changes a field of the tensor map at a
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=global_address{.space=mapspace}.b1024.b64 [a], b:b64
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=rank{.space=mapspace}.b1024.b32 [a], b:b32
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=box_dim|global_dim|element_stride{.space=mapspace}.b1024.b32 [a], n=0..4, b:u32
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=global_stride{.space=mapspace}.b1024.b64 [a], n=0..4, b:b64
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=elemtype{.space=mapspace}.b1024.b32 [a], n=0..12
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=interleave_layout{.space=mapspace}.b1024.b32 [a], n=0..2
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=swizzle_mode{.space=mapspace}.b1024.b32 [a], n=0..3
8.3 sm_90a|sm_100f|sm_110f|sm_120f tensormap.replace.tile.field=fill_mode{.space=mapspace}.b1024.b32 [a], n=0..1
# parallel-synchronization-and-communication-instructions-tensormap-cp-fenceproxy: copies a tensor map and releases it to TMA
8.3 sm_90 tensormap.cp_fenceproxy.dst=global.src=shared::cta.tensormap::generic.release.scope.sync.aligned [d:global], [a:shared], size=128
`
