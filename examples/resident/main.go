// Command resident runs a neural network of two layers whose weights stay in GPU memory. For each
// batch, only the inputs are copied to the GPU and the answers back.
//
//	go run ./examples/resident                # on the first GPU
//	go run ./examples/resident -device emu    # without a GPU: on an emulated one
//
// The network computes the quadrant of each point.
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

// emulator is the device that every machine has.
const emulator = "emu"

func main() {
	device := flag.String("device", "gpu", "device of the network: gpu, gpu:N, several as gpu:N,N, or emu, emu:MODEL")
	flag.Parse()
	if err := run(context.Background(), *device, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// network holds the weights and biases of two layers on a device.
type network struct {
	w1, w2, b2 tilework.DeviceMatrix[float32]
}

// upload copies the network to a device. Its hidden layer computes max(x, 0), max(-x, 0), max(y, 0)
// and max(-y, 0). The output of a quadrant is the sum of two of these minus 9 times the other two.
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
		weights := tilework.FromSlice(layer.rows, layer.cols, layer.data)
		if *layer.to, err = tilework.Upload(ctx, dev, weights); err != nil {
			return n, err
		}
	}
	return n, nil
}

// forward enqueues the computation of the answers to a batch, one row for each row of x. It does
// not wait for the result.
func (n network) forward(
	ctx context.Context, x tilework.DeviceMatrix[float32],
) (tilework.DeviceMatrix[float32], error) {
	hidden, err := tilework.Mul(ctx, x, n.w1, tilework.WithReLU())
	if err != nil {
		return hidden, err
	}
	y, err := tilework.Mul(ctx, hidden, n.w2, tilework.WithColBias(n.b2), tilework.WithReLU())
	// Close frees the memory after the second product has read it.
	return y, errors.Join(err, hidden.Close())
}

func run(ctx context.Context, device string, out io.Writer) (err error) {
	dev, err := tilework.Open(device)
	if errors.Is(err, tilework.ErrNoDevice) && device != emulator {
		return fmt.Errorf("%w\nwithout a GPU, run it on an emulated one: go run ./examples/resident -device %s", err,
			emulator)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }() // also frees the matrices on the device
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
			fmt.Fprintf(out, "(%v, %v) is in quadrant %d\n", batch.At(i, 0), batch.At(i, 1), 1+largest(answers, i))
		}
	}
	return nil
}

// largest returns the column of the largest element of a row.
func largest(m tilework.Matrix[float32], row int) int {
	at := 0
	for j := range m.Cols() {
		if m.At(row, j) > m.At(row, at) {
			at = j
		}
	}
	return at
}
