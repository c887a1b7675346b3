package emu

import (
	"strings"

	"tilework/ptx"
)

// registry maps opcodes to their decoders. A test checks that each instruction of the table in
// package ptx is either in registry or in refusals.
var registry map[string]decodeFunc

func init() {
	registry = map[string]decodeFunc{
		// integer.go, bits.go
		"add": decodeAdd, "sub": decodeSub, "mul": decodeMul, "mad": decodeMad,
		"addc": decodeAddc, "subc": decodeSubc, "madc": decodeMadc, "mul24": decodeMul24, "mad24": decodeMad24,
		"sad": byType(sadInt), "rem": byType(remInt), "min": decodeMin, "max": decodeMax,
		"popc": byType(popcBits), "clz": byType(clzBits), "brev": byType(brevBits), "bfe": byType(bfeBits),
		"bfi":   byType(bfiBits),
		"bfind": decodeBfind, "fns": decodeFns, "szext": decodeSzext, "bmsk": decodeBmsk,
		"dp4a": decodeDp4a, "dp2a": decodeDp2a, "prmt": decodePrmt,
		// float.go, approx.go
		"fma": unary(fmaFloat), "div": decodeDiv, "rcp": decodeRcp, "sqrt": decodeSqrt, "rsqrt": decodeRsqrt,
		"sin": unary(sinFloat), "cos": unary(cosFloat), "lg2": unary(lg2Float), "ex2": unary(ex2Float),
		"tanh": unary(tanhFloat),
		"abs":  decodeAbs, "neg": decodeNeg, "copysign": decodeCopysign, "testp": decodeTestp,
		// compare.go
		"set": decodeSet, "setp": decodeSetp, "selp": decodeSelp, "slct": decodeSlct,
		// logic.go
		"and": byType(andBits), "or": byType(orBits), "xor": byType(xorBits), "not": byType(notBits),
		"cnot": byType(cnotBits),
		"shl":  byType(shlBits), "shr": byType(shrBits), "shf": decodeShf, "lop3": decodeLop3,
		// move.go, convert.go
		"mov": decodeMov, "cvta": decodeCvta, "isspacep": decodeIsspacep, "cvt": decodeCvt,
		// ldst.go, atomic.go, async.go, bulk.go, storeasync.go
		"ld": decodeLoad, "ldu": decodeLoad, "st": decodeStore, "atom": decodeAtom, "red": decodeRed,
		"fence": decodeFence, "membar": decodeFence, "cp": decodeCpAsync,
		"tensormap": decodeTensorMapEdit,
		"prefetch":  decodeNop, "prefetchu": decodeNop, "applypriority": decodeNop, "createpolicy": decodePolicy,
		// control.go, call.go, barrier.go, mbarrier.go, distributed.go, warpops.go
		"bra": decodeBranch, "brx": decodeIndexedBranch,
		"call": decodeCall, "ret": decodeRet, "exit": decodeExit, "trap": decodeTrap,
		"brkpt":     decodeTrap,
		"nanosleep": decodeNanosleep, "pmevent": decodeNop, "griddepcontrol": decodeNop, "setmaxnreg": decodeSetmaxnreg,
		"bar": decodeBarrier, "barrier": decodeBarrier, "mbarrier": decodeMbarrier, "mapa": decodeMapa,
		"getctarank": decodeRank, "shfl": decodeShuffle, "vote": decodeVote, "match": decodeMatch,
		"redux": decodeRedux, "activemask": decodeActivemask, "elect": decodeElect,
		// mma.go, wgmma.go, matrixmem.go
		"mma": decodeMma, "wmma": decodeWmma, "wgmma": decodeWgmma, "ldmatrix": decodeLdmatrix, "stmatrix": decodeStmatrix,
		"movmatrix": decodeMovmatrix,
		// tensormem.go, tensormove.go, tensorcopy.go, tensorpipe.go, tensorproduct.go
		"tcgen05": decodeTensor,
	}
	for op := range videoOps {
		registry[op], registry[op+"2"], registry[op+"4"] = decodeVideo, decodeVideos, decodeVideos
	}
	registry["vmad"] = decodeVmad
}

// refusals lists instructions that the emulator does not support, by the prefix of the mnemonic,
// and their feature for the error message.
var refusals = []struct{ prefix, reason string }{
	{"discard.", "a cache line without its contents"},
	{"tcgen05.shift.", "the direction of the shift is not specified"},
}

// refused returns the unsupported feature of i, or an empty string if i is supported.
func refused(i *ptx.Instr) string {
	name := i.Mnemonic() + "."
	for _, r := range refusals {
		if strings.HasPrefix(name, r.prefix) {
			return r.reason
		}
	}
	switch {
	case i.Op == "tcgen05" && i.Has("red") && i.Has("16x32bx2"):
		return "whether the reduction includes both halves of a lane is not specified"
	case i.Has("ashift"):
		return "which rows of A are shifted in which direction is not specified"
	case i.Op == "tcgen05" && i.Has("4x256b"):
		return "copies of 4 rows"
	}
	return ""
}
