// Command team multiplies matrices that are divided among several processes.
//
//	go run ./examples/team                  # two processes on this machine, on its GPUs or its CPU
//	go run ./examples/team -device cpu -ranks 4
//	go build ./examples/team && torchrun --nproc-per-node 4 --no-python ./team
//
// Started by torchrun, Slurm, Open MPI or Kubernetes, the program is one of the processes.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"

	"tilework"
	"tilework/ranks"
)

func main() {
	device := flag.String("device", "auto", "device of each process: auto, cpu, gpu, gpu:N, or emu, emu:MODEL")
	n := flag.Int("ranks", 2, "number of processes, if no launcher starts them")
	flag.Parse()
	ctx := context.Background()
	place := ranks.Config{Warn: func(text string) { log.Print("warning: ", text) }}
	err := run(ctx, place, *device, os.Stdout)
	if errors.Is(err, ranks.ErrJoin) && os.Getenv("RANK") == "" {
		err = start(*n)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// start starts n processes with the variables of torchrun and a new secret, and waits for them.
func start(n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close() // rank 0 listens there
	secret := rand.Text()
	all := make([]*exec.Cmd, n)
	for r := range all {
		all[r] = exec.Command(self, os.Args[1:]...)
		all[r].Env = append(os.Environ(), fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r), fmt.Sprint("WORLD_SIZE=", n),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, ranks.EnvSecret+"="+secret)
		all[r].Stdout, all[r].Stderr = os.Stdout, os.Stderr
		if err := all[r].Start(); err != nil {
			return err
		}
	}
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Wait())
	}
	return errors.Join(errs...)
}

// run is the work of one process. Rank 0 prints the result.
func run(ctx context.Context, place ranks.Config, device string, out io.Writer) (err error) {
	g, err := ranks.Join(ctx, place)
	if err != nil {
		return err
	}
	defer g.Close()
	team, err := tilework.OpenRanks(ctx, g, device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, team.Close()) }() // also frees the matrices

	// Every rank has some rows of A and some columns of B. No rank has a whole matrix.
	const n = 512
	a, err := matrix(ctx, team, n, func(i, j int) float32 { return float32((i + j) % 3) })
	if err != nil {
		return err
	}
	b, err := matrix(ctx, team, n, func(i, j int) float32 { return float32(i % 2) }, tilework.WithColumnDivision())
	if err != nil {
		return err
	}
	c, err := tilework.Mul(ctx, a, b, tilework.WithReLU()) // gathers missing parts
	if err != nil {
		return err // if another rank has failed, err names it
	}
	part, err := c.Download(ctx)
	if err != nil {
		return err
	}
	row, _, rows, _ := c.Part()
	sum := 0.
	for i := range rows {
		for j := range n {
			sum += float64(part.At(i, j))
		}
	}
	all, err := g.Gather(ctx, "the sums", fmt.Appendf(nil, "rows %d to %d have the sum %.0f", row, row+rows-1, sum))
	if err != nil || g.Rank() > 0 {
		return err
	}
	for r, text := range all {
		fmt.Fprintf(out, "rank %d: %s\n", r, text)
	}
	return nil
}

// matrix makes an n×n matrix and fills this rank's part with the elements f(i, j).
func matrix(ctx context.Context, team *tilework.Device, n int, f func(i, j int) float32,
	opts ...tilework.Option) (tilework.DeviceMatrix[float32], error) {
	m, err := tilework.NewDeviceMatrix[float32](team, n, n, opts...)
	if err != nil {
		return m, err
	}
	row, col, rows, cols := m.Part()
	part := tilework.New[float32](rows, cols)
	for i := range rows {
		for j := range cols {
			part.Set(i, j, f(row+i, col+j))
		}
	}
	return m, tilework.Copy(ctx, m, part)
}
