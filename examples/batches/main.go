// Command batches serves a decoder layer of a language model to requests in batches of changing
// size. It prints how many different answers one request gets.
//
//	go run ./examples/batches                # on the CPU
//	go run ./examples/batches -device gpu    # on the first GPU
//	go run ./examples/batches -device emu    # on an emulated GPU
//
// Without row invariance, a product of few rows adds its terms in another order than one of many
// rows, so that the last bits of an answer depend on the other requests of the batch.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"tilework"
)

func main() {
	device := flag.String("device", "cpu", "device of the layer: cpu, gpu, gpu:N, emu, emu:MODEL")
	flag.Parse()
	if err := run(context.Background(), *device, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

const (
	width = 96  // elements of a token
	inner = 256 // elements of the feed-forward layer
)

type matrix = tilework.Matrix[float32]

// layer holds the weights of a decoder layer. Each request has one token so far, so the weights of
// its attention are 1 and queries and keys are not needed.
type layer struct {
	value, out, gate, up, down matrix
	options                    []tilework.Option
}

func newLayer(rng *rand.Rand, options ...tilework.Option) *layer {
	weights := func(rows, cols int) matrix { return random(rng, rows, cols, 1/math.Sqrt(float64(rows))) }
	return &layer{weights(width, width), weights(width, width), weights(width, inner), weights(width, inner),
		weights(inner, width), options}
}

func random(rng *rand.Rand, rows, cols int, scale float64) matrix {
	m := tilework.New[float32](rows, cols)
	for i := range m.Data() {
		m.Data()[i] = float32(rng.NormFloat64() * scale)
	}
	return m
}

// forward returns the layer's results for a batch: a row for each row of x.
func (l *layer) forward(ctx context.Context, x matrix) (matrix, error) {
	var errs []error
	mul := func(a, b matrix, more ...tilework.Option) matrix {
		c, err := tilework.Mul(ctx, a, b, slices.Concat(l.options, more)...)
		errs = append(errs, err)
		return c
	}
	h := mul(mul(normalize(x), l.value), l.out, tilework.WithResidual(x))
	gated := mul(normalize(h), l.gate, tilework.WithGated(l.up), tilework.WithSiLU())
	y := mul(gated, l.down, tilework.WithResidual(h))
	return y, errors.Join(errs...)
}

// normalize returns each row of x divided by the root of the mean of its squares (RMSNorm).
func normalize(x matrix) matrix {
	y := tilework.New[float32](x.Rows(), x.Cols())
	for i := range x.Rows() {
		squares := 0.0
		for j := range x.Cols() {
			squares += float64(x.At(i, j)) * float64(x.At(i, j))
		}
		for j := range x.Cols() {
			y.Set(i, j, float32(float64(x.At(i, j))/math.Sqrt(squares/float64(x.Cols()))))
		}
	}
	return y
}

// answers returns the different answers that the first request gets, in batches of several sizes
// and at several places.
func (l *layer) answers(ctx context.Context, requests matrix) (different [][]float32, err error) {
	for _, size := range []int{1, 2, 3, 5, 8, 13, 21, 34} {
		batch := tilework.New[float32](size, width)
		at := size / 2 // the place of the first request among the others
		for i := range size {
			copy(batch.Data()[i*width:][:width], requests.Data()[(i+size-at)%size*width:])
		}
		y, err := l.forward(ctx, batch)
		if err != nil {
			return nil, err
		}
		answer := y.Data()[at*width:][:width]
		if !slices.ContainsFunc(different, func(other []float32) bool { return slices.Equal(other, answer) }) {
			different = append(different, answer)
		}
	}
	return different, nil
}

func run(ctx context.Context, device string, out io.Writer) error {
	for _, mode := range []struct {
		name    string
		options []tilework.Option
	}{
		{"by default", nil},
		{"with row invariance", []tilework.Option{tilework.WithRowInvariance()}},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		l := newLayer(rng, append(mode.options, tilework.WithDevice(device))...)
		different, err := l.answers(ctx, random(rng, 34, width, 1))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "answers to one request in 8 batches %s: %d\n", mode.name, len(different))
	}
	return nil
}
