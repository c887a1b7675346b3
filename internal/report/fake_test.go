package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"tilework/internal/bench"
)

// machine generates records of a machine with a CPU and optionally a GPU. The rate of each kernel
// approaches a maximum as products grow, and each product has a fixed minimum time.
type machine struct {
	random *rand.Rand
	gpu    string
	speed  float64 // factor of all speeds, usually 1
}

func newMachine(seed uint64, gpu string, speed float64) *machine {
	return &machine{rand.New(rand.NewPCG(seed, 1)), gpu, speed}
}

// pace models one subject: its rate in GFLOP/s, its minimum time in seconds, and its operations per
// byte that the threads load.
type pace struct {
	subject            string
	peer               bool
	rate, start, loads float64
}

var (
	cpuModels = []pace{{"loop", false, 1.2, 1e-7, 0}, {"portable", false, 3.5, 1e-6, 0}, {"avx512", false, 110, 1.5e-6, 0},
		{"openblas", true, 118, 1.2e-6, 0}}
	gpuModels = []pace{{"naive", false, 5_800, 4e-6, 0.25}, {"tiled", false, 9_500, 4e-6, 4},
		{"blocked", false, 50_500, 6e-6, 32}, {"cublaslt", true, 51_500, 5e-6, 0}}
)

var day = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// record returns the record of one subject on one shape.
func (m *machine) record(on pace, device string, shape bench.Shape, transfers bool) bench.Record {
	flops := 2 * float64(shape.M) * float64(shape.N) * float64(shape.K)
	seconds := (on.start + flops/on.rate/1e9) / m.speed
	r := bench.Record{
		Schema: bench.Schema, Subject: on.subject, Peer: on.peer, Device: device,
		In: "float32", Out: "float32", M: shape.M, N: shape.N, K: shape.K, LDA: shape.K, LDB: shape.N, LDC: shape.N,
		Alpha: 1, Transfers: transfers, Cold: device != "cpu", Intensity: on.loads, Buffers: 1, Reps: 20, Batch: 1,
		Verified: true, ErrorRatio: 0.01,
		Environment: bench.Environment{Date: day, OS: "linux", Arch: "amd64", CPU: "Example CPU", Cores: 16, GOMAXPROCS: 16,
			Go: "go1.26", Command: "tilework bench --sizes '64..4096x2'"},
	}
	r.Peak = 153
	if device != "cpu" {
		r.Peak, r.Environment.GPU, r.Environment.Driver = 66_900, m.gpu, "580"
	}
	if transfers {
		bytes := 4 * (float64(shape.M)*float64(shape.K) + float64(shape.K)*float64(shape.N) +
			float64(shape.M)*float64(shape.N))
		r.Steps = &bench.Steps{Allocate: 60e-6, Upload: 15e-6 + bytes*2/3/12e9, Compute: seconds,
			Download: 10e-6 + bytes/3/11e9}
		seconds += r.Steps.Allocate + r.Steps.Upload + r.Steps.Download
		r.Setup = 0.04
	}
	for range 20 {
		r.Samples = append(r.Samples, seconds*math.Exp(0.01*m.random.NormFloat64()))
	}
	s := slices.Sorted(slices.Values(r.Samples))
	mid := (s[9] + s[10]) / 2
	r.Seconds = bench.Timing{Median: mid, Min: s[0], Max: s[19], P10: s[2], P90: s[17], Spread: (s[17] - s[2]) / mid}
	r.GFLOPS = flops / mid / 1e9
	return r
}

// compete returns the records of several subjects with their ratios.
func (m *machine) compete(models []pace, device string, shape bench.Shape) []bench.Record {
	var all []bench.Record
	for _, on := range models {
		all = append(all, m.record(on, device, shape, false))
	}
	for i := range all {
		for _, peer := range all {
			if peer.Peer && peer.Subject != all[i].Subject {
				v := peer.Seconds.Median / all[i].Seconds.Median
				all[i].Versus = append(all[i].Versus, bench.Ratio{Peer: peer.Subject, Speed: v, P10: v * 0.98, P90: v * 1.02,
					Low: v * 0.99, High: v * 1.01})
			}
		}
	}
	return all
}

// sweep returns the records of all subjects over many sizes and some shapes.
func (m *machine) sweep() []bench.Record {
	var all []bench.Record
	for n := 64; n <= 4096; n *= 2 {
		models := cpuModels
		if n > 1024 {
			models = models[2:]
		}
		all = append(all, m.compete(models, "cpu", bench.Cube(n))...)
	}
	if m.gpu == "" {
		return all
	}
	for n := 64; n <= 8192; n *= 2 {
		all = append(all, m.compete(gpuModels, "gpu:0", bench.Cube(n))...)
		all = append(all, m.record(gpuModels[2], "gpu:0", bench.Cube(n), true))
	}
	for _, s := range []bench.Shape{{M: 1, N: 4096, K: 4096}, {M: 16, N: 4096, K: 4096}, {M: 4096, N: 4096, K: 16},
		{M: 2048, N: 14336, K: 4096}} {
		all = append(all, m.compete(gpuModels[2:], "gpu:0", s)...)
	}
	return all
}
