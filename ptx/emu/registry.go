package emu

import (
	"slices"

	"tilework/ptx"
)

// instruction describes the instructions of an opcode.
type instruction struct {
	decode decodeFunc
	flow   flow     // effect on undefined values
	bits   bitsFunc // undefined bits of the result; nil if the result is undefined as a whole
}

// instructions lists the instructions by opcode. A test checks that each instruction of the table
// in package ptx is either here or in refusals.
var instructions = func() map[string]instruction {
	all := map[string]instruction{
		// integer.go, bits.go
		"add":   {decodeAdd, flowSpreads, nil},
		"sub":   {decodeSub, flowSpreads, nil},
		"mul":   {decodeMul, flowSpreads, nil},
		"mad":   {decodeMad, flowSpreads, nil},
		"addc":  {decodeAddc, flowSpreads, nil},
		"subc":  {decodeSubc, flowSpreads, nil},
		"madc":  {decodeMadc, flowSpreads, nil},
		"mul24": {decodeMul24, flowSpreads, nil},
		"mad24": {decodeMad24, flowSpreads, nil},
		"sad":   {byType(sadInt), flowSpreads, nil},
		"rem":   {byType(remInt), flowSpreads, nil},
		"min":   {decodeMin, flowSpreads, nil},
		"max":   {decodeMax, flowSpreads, nil},
		"popc":  {byType(popcBits), flowSpreads, nil},
		"clz":   {byType(clzBits), flowSpreads, nil},
		"brev":  {byType(brevBits), flowSpreads, nil},
		"bfe":   {byType(bfeBits), flowSpreads, unknownField},
		"bfi":   {byType(bfiBits), flowSpreads, unknownInsertion},
		"bfind": {decodeBfind, flowSpreads, nil},
		"fns":   {decodeFns, flowSpreads, nil},
		"szext": {decodeSzext, flowSpreads, nil},
		"bmsk":  {decodeBmsk, flowSpreads, nil},
		"dp4a":  {decodeDp4a, flowSpreads, nil},
		"dp2a":  {decodeDp2a, flowSpreads, nil},
		"prmt":  {decodePrmt, flowSpreads, unknownPermutation},
		// float.go, approx.go
		"fma":      {unary(fmaFloat), flowSpreads, nil},
		"div":      {decodeDiv, flowSpreads, nil},
		"rcp":      {decodeRcp, flowSpreads, nil},
		"sqrt":     {decodeSqrt, flowSpreads, nil},
		"rsqrt":    {decodeRsqrt, flowSpreads, nil},
		"sin":      {unary(sinFloat), flowSpreads, nil},
		"cos":      {unary(cosFloat), flowSpreads, nil},
		"lg2":      {unary(lg2Float), flowSpreads, nil},
		"ex2":      {unary(ex2Float), flowSpreads, nil},
		"tanh":     {unary(tanhFloat), flowSpreads, nil},
		"abs":      {decodeAbs, flowSpreads, nil},
		"neg":      {decodeNeg, flowSpreads, nil},
		"copysign": {decodeCopysign, flowSpreads, nil},
		"testp":    {decodeTestp, flowSpreads, nil},
		// compare.go
		"set":  {decodeSet, flowSpreads, nil},
		"setp": {decodeSetp, flowTests, nil},
		"selp": {decodeSelp, flowSpreads, unknownChoice},
		"slct": {decodeSlct, flowSpreads, nil},
		// logic.go
		"and":  {byType(andBits), flowAnds, unknownAnd},
		"or":   {byType(orBits), flowOrs, unknownOr},
		"xor":  {byType(xorBits), flowSpreads, unknownXor},
		"not":  {byType(notBits), flowSpreads, unknownNot},
		"cnot": {byType(cnotBits), flowSpreads, nil},
		"shl":  {byType(shlBits), flowSpreads, unknownShl},
		"shr":  {byType(shrBits), flowSpreads, unknownShr},
		"shf":  {decodeShf, flowSpreads, nil},
		"lop3": {decodeLop3, flowSpreads, unknownLookUp},
		// move.go, convert.go
		"mov":      {decodeMov, flowSpreads, unknownMove},
		"cvta":     {decodeCvta, flowSpreads, nil},
		"isspacep": {decodeIsspacep, flowSpreads, nil},
		"cvt":      {decodeCvt, flowSpreads, unknownConversion},
		// ldst.go, atomic.go, async.go, bulk.go, storeasync.go
		"ld":            {decodeLoad, flowMoves, nil},
		"ldu":           {decodeLoad, flowMoves, nil},
		"st":            {decodeStore, flowMoves, nil},
		"atom":          {decodeAtom, flowUses, nil},
		"red":           {decodeRed, flowUses, nil},
		"fence":         {decodeFence, flowUses, nil},
		"membar":        {decodeFence, flowUses, nil},
		"cp":            {decodeCpAsync, flowUses, nil},
		"tensormap":     {decodeTensorMapEdit, flowUses, nil},
		"prefetch":      {decodeNop, flowUses, nil},
		"prefetchu":     {decodeNop, flowUses, nil},
		"applypriority": {decodeNop, flowUses, nil},
		"createpolicy":  {decodePolicy, flowUses, nil},
		// control.go, call.go, barrier.go, mbarrier.go, distributed.go, warpops.go
		"bra":            {decodeBranch, flowUses, nil},
		"brx":            {decodeIndexedBranch, flowUses, nil},
		"call":           {decodeCall, flowUses, nil},
		"ret":            {decodeRet, flowUses, nil},
		"exit":           {decodeExit, flowUses, nil},
		"trap":           {decodeTrap, flowUses, nil},
		"brkpt":          {decodeTrap, flowUses, nil},
		"nanosleep":      {decodeNanosleep, flowUses, nil},
		"pmevent":        {decodeNop, flowUses, nil},
		"griddepcontrol": {decodeNop, flowUses, nil},
		"setmaxnreg":     {decodeSetmaxnreg, flowUses, nil},
		"bar":            {decodeBarrier, flowUses, nil},
		"barrier":        {decodeBarrier, flowUses, nil},
		"mbarrier":       {decodeMbarrier, flowUses, nil},
		"mapa":           {decodeMapa, flowUses, nil},
		"getctarank":     {decodeRank, flowUses, nil},
		"shfl":           {decodeShuffle, flowShuffle, nil},
		"vote":           {decodeVote, flowAcross, nil},
		"match":          {decodeMatch, flowAcross, nil},
		"redux":          {decodeRedux, flowAcross, nil},
		"activemask":     {decodeActivemask, flowUses, nil},
		"elect":          {decodeElect, flowUses, nil},
		// mma.go, wgmma.go, matrixmem.go
		"mma":       {decodeMma, flowUses, nil},
		"wmma":      {decodeWmma, flowUses, nil},
		"wgmma":     {decodeWgmma, flowUses, nil},
		"ldmatrix":  {decodeLdmatrix, flowUses, nil},
		"stmatrix":  {decodeStmatrix, flowMoves, nil},
		"movmatrix": {decodeMovmatrix, flowMatrix, nil},
		// tensormem.go, tensormove.go, tensorcopy.go, tensorpipe.go, tensorproduct.go
		"tcgen05": {decodeTensor, flowUses, nil},
		// video.go
		"vmad": {decodeVmad, flowSpreads, nil},
	}
	for op := range videoOps {
		all[op] = instruction{decodeVideo, flowSpreads, nil}
		all[op+"2"] = instruction{decodeVideos, flowSpreads, nil}
		all[op+"4"] = all[op+"2"]
	}
	return all
}()

// refusals lists instructions that the emulator does not support, by their modifiers, and their
// feature for the error message.
var refusals = []struct {
	op     string
	mods   []string
	reason string
}{
	{"discard", nil, "a cache line without its contents"},
	{"tcgen05", []string{"shift"}, "the direction of the shift is not specified"},
	{"tcgen05", []string{"ashift"}, "which rows of A are shifted in which direction is not specified"},
	{"tcgen05", []string{"red", "16x32bx2"}, "whether the reduction includes both halves of a lane is not specified"},
	{"tcgen05", []string{"4x256b"}, "copies of 4 rows"},
}

// refused returns the unsupported feature of i, or an empty string if i is supported.
func refused(i *ptx.Instr) string {
	for _, r := range refusals {
		if i.Op == r.op && !slices.ContainsFunc(r.mods, func(mod string) bool { return !i.Has(mod) }) {
			return r.reason
		}
	}
	return ""
}
