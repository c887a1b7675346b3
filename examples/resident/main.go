// Command resident classifies with a network of two layers whose weights stay on a
// GPU: of each batch only the inputs go there and the answers come back.
//
//	go run ./examples/resident                # on the first GPU
//	go run ./examples/resident -device emu    # on an emulated one, where there is none
//
// The network tells in which quadrant a point lies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"tilework"
)

func main() {
	device := flag.String("device", "gpu", "where the network stays: gpu, gpu:N, emu, emu:MODEL")
	flag.Parse()
	if err := run(context.Background(), *device, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// network is the weights and biases of two layers, on a device.
type network struct {
	w1, w2, b2 tilework.DeviceMatrix[float32]
}

// Hidden are max(x, 0), max(-x, 0), max(y, 0) and max(-y, 0); each quadrant adds up two
// of them, and takes something off for the other two.
func upload(ctx context.Context, dev *tilework.Device) (n network, err error) {
	for _, layer := range []struct {
		to         *tilework.DeviceMatrix[float32]
		rows, cols int
		data       []float32
	}{
		{&n.w1, 2, 4, []float32{
			1, -1, 0, 0,
			0, 0, 1, -1,
		}},
		{&n.w2, 4, 4, []float32{
			1, -9, -9, 1,
			-9, 1, 1, -9,
			1, 1, -9, -9,
			-9, -9, 1, 1,
		}},
		{&n.b2, 1, 4, []float32{0.5, 0.5, 0.5, 0.5}},
	} {
		if *layer.to, err = tilework.Upload(ctx, dev, tilework.FromSlice(layer.rows, layer.cols, layer.data)); err != nil {
			return n, err
		}
	}
	return n, nil
}

// forward asks for the answers to a batch, one row for each of x, and does not wait
// for them.
func (n network) forward(ctx context.Context, x tilework.DeviceMatrix[float32]) (tilework.DeviceMatrix[float32], error) {
	hidden, err := tilework.MulOn(ctx, x, n.w1, tilework.WithActivation("relu"))
	if err != nil {
		return hidden, err
	}
	y, err := tilework.MulOn(ctx, hidden, n.w2, tilework.WithColBiasOn(n.b2), tilework.WithActivation("relu"))
	// The memory goes back when the second product has read it, which may be later.
	return y, errors.Join(err, hidden.Close())
}

func run(ctx context.Context, device string, out io.Writer) (err error) {
	dev, err := tilework.Open(device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }() // and what is still on it
	net, err := upload(ctx, dev)
	if err != nil {
		return err
	}
	for _, batch := range []tilework.Matrix[float32]{
		tilework.FromSlice(2, 2, []float32{3, 4, -1, 2}),
		tilework.FromSlice(3, 2, []float32{-5, -1, 2, -2, 0.5, 0.25}),
	} {
		x, err := tilework.Upload(ctx, dev, batch)
		if err != nil {
			return err
		}
		y, err := net.forward(ctx, x)
		if err != nil {
			return err
		}
		answers, err := y.Download(ctx) // waits for both layers
		if err != nil {
			return err
		}
		if err := errors.Join(x.Close(), y.Close()); err != nil {
			return err
		}
		for i := range answers.Rows() {
			fmt.Fprintf(out, "(%v, %v) lies in quadrant %d\n", batch.At(i, 0), batch.At(i, 1), 1+largest(answers, i))
		}
	}
	return nil
}

// largest is the column of the largest element of a row.
func largest(m tilework.Matrix[float32], row int) int {
	at := 0
	for j := range m.Cols() {
		if m.At(row, j) > m.At(row, at) {
			at = j
		}
	}
	return at
}
