// Command data writes the example matrices: a.npy is 256×512, b.npy 512×128, of
// float32 in [-1, 1).
package main

import (
	"context"
	"log"
	"math/rand/v2"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/matio"
)

//go:generate go run .

func main() {
	for name, l := range map[string]gemm.Layout{
		"a.npy": gemm.Dense(dtype.F32, 256, 512),
		"b.npy": gemm.Dense(dtype.F32, 512, 128),
	} {
		rng := rand.New(rand.NewPCG(uint64(l.Rows), uint64(l.Cols)))
		data := make([]float32, l.Len())
		for i := range data {
			data[i] = 2*rng.Float32() - 1
		}
		if err := matio.Write(context.Background(), name, l, dtype.Bytes(data)); err != nil {
			log.Fatal(err)
		}
	}
}
