package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/host"
	"tilework/internal/model"
	"tilework/internal/multi/scaling"
)

// scalingFlags are the flags of `tilework scaling`.
type scalingFlags struct {
	gpu, gpus, hosts string
	productFlags
	efficiency    string
	least         float64 // the efficiency, 0 if the flag is not given
	peer, network float64
	output        listFlags
}

const (
	scalingGPUs = 1 << 16 // maximum number of GPUs
	// usualScalingSize is the default of --sizes.
	usualScalingSize = "16384"

	scalingUnit = 1024    // step of the sizes that --efficiency tries
	scalingMost = 1 << 20 // the largest of them
)

func scalingCommand() *cobra.Command {
	var f scalingFlags
	c := &cobra.Command{
		Use:   "scaling",
		Short: "Predict the time of a product on several GPUs or hosts",
		Long: fmt.Sprintf(`scaling predicts the time of products that the GPUs of one or several hosts compute together,
with A, B and C in GPU memory. It needs no GPU and measures nothing. docs/scaling.md describes
the model.

The GPUs form a grid of ROWS×COLS, and each computes one part of C. It gathers the rows of A and
the columns of B that other GPUs hold while it computes. EFFICIENCY is the speedup over one GPU
divided by the number of GPUs. COPIES is the time of a GPU's copies, most of which overlap with
its KERNELS.

With --efficiency, scaling finds the smallest square product that reaches that efficiency, in
steps of %d rows.

The default of --peer was measured between two H200s, for GPUs with the same links. That of
--network is 92 %% of a network adapter of 400 Gb/s for each GPU, which was not measured.`, scalingUnit),
		Example: `  tilework scaling --sizes 8192,16384,32768 --gpus 1,2,4,8
  tilework scaling --dtypes bfloat16,float32 --hosts 1..128x2 --efficiency 85%
  tilework scaling --shape 4096x14336x4096 --dtypes bfloat16 --hosts 2 --network 23`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c, c.OutOrStdout()) },
	}
	fl := c.Flags()
	fl.StringVar(&f.gpu, "gpu", "h200", "the `GPU`: "+strings.Join(model.Names(), ", "))
	fl.StringVar(&f.gpus, "gpus", "8", "`NUMBERS` of GPUs of each host: 8, 1,2,4 or 1..8x2")
	fl.StringVar(&f.hosts, "hosts", "1", "`NUMBERS` of hosts")
	f.productFlags.declare(c, " (default: "+usualScalingSize+")", nil)
	fl.StringVar(&f.efficiency, "efficiency", "",
		"find the smallest square product with this efficiency in `PERCENT`: 85%")
	fl.Float64Var(&f.peer, "peer", 0,
		"the `RATE` in GB/s at which a GPU receives from the other GPUs of its host (default: that of --gpu)")
	fl.Float64Var(&f.network, "network", scaling.NetworkRate/1e9,
		"the `RATE` in GB/s at which a GPU receives from other hosts")
	f.output.addTo(c, listFormats...)
	complete(c, "gpu", model.Names()...)
	return c
}

// scalingRow is a predicted product.
type scalingRow struct {
	DType         string  `json:"dtype"`
	M             int     `json:"m"`
	N             int     `json:"n"`
	K             int     `json:"k"`
	Hosts         int     `json:"hosts"`
	GPUs          int     `json:"gpus"` // of all hosts
	Grid          string  `json:"grid"`
	HostGrid      string  `json:"host_grid"`
	KernelSeconds float64 `json:"kernel_seconds"`
	CopySeconds   float64 `json:"copy_seconds"`
	Seconds       float64 `json:"seconds"`
	Flops         float64 `json:"flops"` // per second
	Efficiency    float64 `json:"efficiency"`
	PeerBytes     float64 `json:"peer_bytes"`
	NetworkBytes  float64 `json:"network_bytes"`
	MemoryBytes   float64 `json:"memory_bytes"` // of a GPU
}

// model returns the GPU model, and sets --peer to its rate if the flag is not given.
func (f *scalingFlags) model(c *cobra.Command) (*model.Model, error) {
	gpu, err := model.LookupGPU(f.gpu)
	if err != nil {
		return nil, fmt.Errorf("--gpu: %w", err)
	}
	if !c.Flags().Changed("peer") {
		f.peer = gpu.PeerBandwidth / 1e9
	}
	switch {
	case f.peer == 0 && !c.Flags().Changed("peer"):
		err = fmt.Errorf("--gpu %s: no known rate of copies between these GPUs, want --peer, such as --peer 20", f.gpu)
	case !isRate(f.peer):
		err = fmt.Errorf("--peer %v: want 0.001 to 1000000 GB/s", f.peer)
	}
	return gpu, err
}

// isRate reports whether x is a rate in GB/s for which times can be predicted.
func isRate(x float64) bool { return x >= 0.001 && x <= 1e6 }

func (f *scalingFlags) run(c *cobra.Command, stdout io.Writer) error {
	gpu, err := f.model(c)
	switch {
	case err != nil:
		return err
	case !isRate(f.network):
		return fmt.Errorf("--network %v: want 0.001 to 1000000 GB/s", f.network)
	case f.efficiency != "" && f.given():
		return fmt.Errorf("--efficiency finds the size: want no --sizes and no --shape")
	case f.efficiency != "":
		least, ok := parsePercent(f.efficiency)
		if !ok || !(least > 0 && least <= 1) {
			return fmt.Errorf("--efficiency %s: want more than 0%% and at most 100%%, such as 85%%", f.efficiency)
		}
		f.least = least
	}
	hosts, err := bench.ParseSizes(f.hosts)
	if err != nil {
		return fmt.Errorf("--hosts: %w", err)
	}
	gpus, err := bench.ParseSizes(f.gpus)
	if err != nil {
		return fmt.Errorf("--gpus: %w", err)
	}
	var rows []scalingRow
	types, err := f.types()
	if err != nil {
		return err
	}
	for _, t := range types {
		for _, h := range hosts {
			for _, g := range gpus {
				if h > scalingGPUs/g {
					return fmt.Errorf("%d %s of %d %s: want at most %d GPUs", h, plural("host", h), g,
						plural("GPU", g), scalingGPUs)
				}
				cluster := &scaling.Cluster{GPU: gpu, Hosts: h, GPUs: g, Peer: f.peer * 1e9, Network: f.network * 1e9}
				more, err := f.predict(t, cluster)
				if err != nil {
					return err
				}
				rows = append(rows, more...)
			}
		}
	}
	for _, r := range rows {
		if r.MemoryBytes > float64(gpu.MemBytes) {
			fmt.Fprintf(c.ErrOrStderr(), "note: %s %s on %d GPUs needs %s of memory per GPU, and %s has %s\n", r.DType,
				r.product(), r.GPUs, host.Bytes(uint64(r.MemoryBytes)), gpu.Name, host.Bytes(uint64(gpu.MemBytes)))
		}
	}
	return writeList(stdout, f.output, scalingColumns, rows)
}

// predict returns the rows of a type and a cluster.
func (f *scalingFlags) predict(t dtype.Type, c *scaling.Cluster) (rows []scalingRow, err error) {
	if f.least > 0 {
		n, e, err := scaling.Smallest(t, c, f.least, scalingUnit, scalingMost)
		return []scalingRow{newScalingRow(scaling.Workload{Type: t, M: n, N: n, K: n}, c, &e)}, err
	}
	samples, err := f.samples(usualScalingSize, bench.Draw{})
	if err != nil {
		return nil, err
	}
	for _, s := range samples {
		p := scaling.Workload{Type: t, M: s.M, N: s.N, K: s.K}
		e, err := scaling.Predict(p, c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, newScalingRow(p, c, &e))
	}
	return rows, nil
}

func newScalingRow(p scaling.Workload, c *scaling.Cluster, e *scaling.Estimate) scalingRow {
	return scalingRow{
		DType: p.Type.String(), M: p.M, N: p.N, K: p.K, Hosts: c.Hosts, GPUs: c.Size(),
		Grid: e.Grid.String(), HostGrid: e.Host.String(),
		KernelSeconds: e.Compute, CopySeconds: e.Gather, Seconds: e.Total,
		Flops:      2 * float64(p.M) * float64(p.N) * float64(p.K) / e.Total,
		Efficiency: e.Efficiency(), PeerBytes: e.PeerBytes, NetworkBytes: e.NetworkBytes, MemoryBytes: e.Memory,
	}
}

func (r *scalingRow) product() string { return fmt.Sprintf("%d×%d×%d", r.M, r.N, r.K) }

var scalingColumns = []column[scalingRow]{
	fixed("TYPE", func(r scalingRow) any { return r.DType }),
	fixed("PRODUCT", func(r scalingRow) any { return r.product() }),
	dropped(1, "HOSTS", func(r scalingRow) any { return r.Hosts }),
	fixed("GPUS", func(r scalingRow) any { return r.GPUs }),
	fixed("GRID", func(r scalingRow) any { return r.Grid }),
	dropped(3, "KERNELS", func(r scalingRow) any { return bench.Duration(r.KernelSeconds) }),
	dropped(4, "COPIES", func(r scalingRow) any { return bench.Duration(r.CopySeconds) }),
	fixed("TIME", func(r scalingRow) any { return bench.Duration(r.Seconds) }),
	fixed("TFLOP/S", func(r scalingRow) any { return strconv.FormatFloat(r.Flops/1e12, 'f', 0, 64) }),
	fixed("EFFICIENCY", func(r scalingRow) any { return fmt.Sprintf("%.0f %%", 100*r.Efficiency) }),
	dropped(2, "MEMORY/GPU", func(r scalingRow) any { return host.Bytes(uint64(r.MemoryBytes)) }),
}
