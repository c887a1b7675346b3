package ptx

const controlForms = `
# control-flow-instructions-bra: branches to t
2.3 sm_20 bra{.uni} t:label
# control-flow-instructions-brx-idx: branches to the label with index a in t
6.0 sm_30 brx.idx{.uni} a:u32, t:targets
# control-flow-instructions-call: calls a function
2.3 sm_20 call{.uni} f:func
2.3 sm_20 call{.uni} f:func, (a):args
2.3 sm_20 call{.uni} (d):args, f:func
2.3 sm_20 call{.uni} (d):args, f:func, (a):args
# control-flow-instructions-call-2: calls the function at address f
2.3 sm_20 call{.uni} f:u64, p:proto
2.3 sm_20 call{.uni} f:u64, (a):args, p:proto
2.3 sm_20 call{.uni} (d):args, f:u64, p:proto
2.3 sm_20 call{.uni} (d):args, f:u64, (a):args, p:proto
# control-flow-instructions-ret: returns from a function
2.3 sm_20 ret{.uni}
# control-flow-instructions-exit: ends the thread
2.3 sm_20 exit
# miscellaneous-instructions-nanosleep: suspends the thread for about a nanoseconds
6.3 sm_70 nanosleep.u32 a
# miscellaneous-instructions-setmaxnreg: changes the number of registers per thread of the warpgroup
8.0 sm_90a|sm_100f|sm_110f|sm_120f setmaxnreg.action=inc|dec.sync.aligned.u32 n=24..256/8
# miscellaneous-instructions-pmevent: triggers performance monitor events
2.3 sm_20 pmevent a=0..15
3.0 sm_20 pmevent.mask a=0..65535
# miscellaneous-instructions-brkpt: suspends execution for a debugger
2.3 sm_20 brkpt
# miscellaneous-instructions-trap: aborts the grid with an error
2.3 sm_20 trap
`
