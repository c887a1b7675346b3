#include "textflag.h"

// func dotsAVX2(x *float64, n int, y0, y1, y2, y3, w *float64, out *[5]float64)
//
// Each iteration takes eight elements in two registers of x, and adds their products to the four sums
// and to that of (x·w)². Each sum has two registers, to hide the latency of the addition.
TEXT ·dotsAVX2(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ y0+16(FP), R8
	MOVQ y1+24(FP), R9
	MOVQ y2+32(FP), R10
	MOVQ y3+40(FP), R11
	MOVQ w+48(FP), R12
	MOVQ out+56(FP), DI

	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	VXORPD Y2, Y2, Y2
	VXORPD Y3, Y3, Y3
	VXORPD Y4, Y4, Y4
	VXORPD Y5, Y5, Y5
	VXORPD Y6, Y6, Y6
	VXORPD Y7, Y7, Y7
	VXORPD Y8, Y8, Y8
	VXORPD Y9, Y9, Y9

	XORQ AX, AX

loop:
	CMPQ AX, CX
	JGE  done
	VMOVUPD (SI)(AX*8), Y10
	VMOVUPD 32(SI)(AX*8), Y11
	VFMADD231PD (R8)(AX*8), Y10, Y0
	VFMADD231PD 32(R8)(AX*8), Y11, Y1
	VFMADD231PD (R9)(AX*8), Y10, Y2
	VFMADD231PD 32(R9)(AX*8), Y11, Y3
	VFMADD231PD (R10)(AX*8), Y10, Y4
	VFMADD231PD 32(R10)(AX*8), Y11, Y5
	VFMADD231PD (R11)(AX*8), Y10, Y6
	VFMADD231PD 32(R11)(AX*8), Y11, Y7
	TESTQ R12, R12
	JZ    squares
	VMULPD (R12)(AX*8), Y10, Y10
	VMULPD 32(R12)(AX*8), Y11, Y11

squares:
	VFMADD231PD Y10, Y10, Y8
	VFMADD231PD Y11, Y11, Y9
	ADDQ $8, AX
	JMP  loop

done:
	VADDPD Y1, Y0, Y0
	VADDPD Y3, Y2, Y2
	VADDPD Y5, Y4, Y4
	VADDPD Y7, Y6, Y6
	VADDPD Y9, Y8, Y8
	VHADDPD Y2, Y0, Y0 // of both halves: the pairs of the first and of the second sum
	VHADDPD Y6, Y4, Y4
	VHADDPD Y8, Y8, Y8
	VEXTRACTF128 $1, Y0, X1
	VEXTRACTF128 $1, Y4, X5
	VEXTRACTF128 $1, Y8, X9
	VADDPD X1, X0, X0
	VADDPD X5, X4, X4
	VADDPD X9, X8, X8
	VMOVUPD X0, (DI)
	VMOVUPD X4, 16(DI)
	VMOVSD X8, 32(DI)
	VZEROUPPER
	RET
