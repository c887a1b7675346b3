package model

import (
	"fmt"
	"strings"

	"tilework/internal/names"
)

// Rate is a kind of arithmetic with a peak rate. A fused multiply-add counts as two operations.
// Tensor rates are dense and accumulate in float32 (int32 for int8, float64 for float64).
type Rate uint8

// The rates, in the order of lists.
const (
	FP64       Rate = iota // float64 on the CUDA cores
	FP64Tensor             // float64 on the tensor cores
	FP32                   // float32 on the CUDA cores
	TF32                   // float32 rounded to 10 bits of fraction, on the tensor cores
	BF16                   // this and the following on the tensor cores
	FP16
	FP8
	INT8
	numRates
)

var rateNames = [numRates]string{
	FP64: "fp64", FP64Tensor: "fp64-tensor", FP32: "fp32", TF32: "tf32",
	BF16: "bf16", FP16: "fp16", FP8: "fp8", INT8: "int8",
}

// String returns the rate's name in the format of [ParseRate].
func (r Rate) String() string {
	if r >= numRates {
		return fmt.Sprintf("Rate(%d)", uint8(r))
	}
	return rateNames[r]
}

// ParseRate returns the rate with the given name.
func ParseRate(name string) (Rate, error) {
	i, err := names.Find("rate", name, rateNames[:], func(name *string) string { return *name })
	return Rate(i), err
}

// Peaks holds the peak rates of a GPU in operations per second. Zero means that the GPU has no
// units for a rate.
type Peaks [numRates]float64

// Model describes a GPU by its data sheet. A model found under the name of an architecture has the
// Arch only; see [Model.Generic].
type Model struct {
	Name   string // "h100-sxm"
	Device string // name reported by the driver: "NVIDIA H100 80GB HBM3"
	Arch   *Arch

	SMs          int
	ClockHz      float64 // boost clock, at which the fp32 peak is reached
	MemBytes     int64   // installed; the driver reports a little less
	MemBandwidth float64 // bytes per second
	L2Bytes      int64
	// PeerBandwidth is the rate of a copy from another GPU of the host in bytes per second, or 0 if
	// it is not known.
	PeerBandwidth float64
	Peak          Peaks // tensor rates may refer to a lower clock
}

// Generic reports whether the model is an architecture, which has no number of SMs and no peak
// rates.
func (m *Model) Generic() bool { return m.SMs == 0 }

// PeakRate returns the GPU's peak in operations per second. It returns an error if the GPU has no
// units for the rate, or if m is an architecture.
func (m *Model) PeakRate(r Rate) (float64, error) {
	switch {
	case m.Generic():
		return 0, m.errGeneric("peak rates")
	case r >= numRates || m.Peak[r] == 0:
		return 0, fmt.Errorf("%s has no %v rate", m.Name, r)
	}
	return m.Peak[r], nil
}

func (m *Model) errGeneric(what string) error {
	return fmt.Errorf("%s is an architecture and has no %s: want a GPU, one of %s", m.Name, what,
		strings.Join(Names(), ", "))
}

// Models returns the GPUs in the order of the table. The rows are shared and must not be modified.
func Models() []*Model {
	all := make([]*Model, len(models))
	for i := range models {
		all[i] = &models[i]
	}
	return all
}

// Names returns the names of the GPUs in the order of the table.
func Names() []string {
	all := make([]string, len(models))
	for i := range models {
		all[i] = models[i].Name
	}
	return all
}

// LookupNames returns the names of the GPUs and then those of the architectures.
func LookupNames() []string {
	all := Names()
	for _, a := range arches {
		all = append(all, a.String())
	}
	return all
}

// Lookup finds a GPU as LookupGPU does, or by an architecture ("sm_90", "sm_90a").
func Lookup(name string) (*Model, error) {
	m, err := find(name)
	if m != nil || err != nil {
		return m, err
	}
	target := strings.ToLower(name)
	for _, a := range arches {
		if known := a.String(); strings.TrimRight(target, "af") == known && len(target) <= len(known)+1 {
			return &Model{Name: known, Arch: a}, nil
		}
	}
	return nil, names.Unknown("GPU", name, LookupNames())
}

// LookupGPU finds a GPU by its name in the table ("h200") or by the driver's name ("NVIDIA H200").
// It ignores case. A name that matches several GPUs is an error that lists them.
func LookupGPU(name string) (*Model, error) {
	m, err := find(name)
	if m == nil && err == nil {
		err = names.Unknown("GPU", name, Names())
	}
	return m, err
}

// find returns the GPU that LookupGPU finds, or nil for an unknown name.
func find(name string) (*Model, error) {
	var similar []string
	for i := range models {
		m := &models[i]
		if strings.EqualFold(name, m.Name) || strings.EqualFold(name, m.Device) {
			return m, nil
		}
		if strings.HasPrefix(m.Name, strings.ToLower(name)+"-") {
			similar = append(similar, m.Name)
		}
	}
	if similar != nil {
		return nil, fmt.Errorf("GPU %q is ambiguous: want one of %s", name, strings.Join(similar, ", "))
	}
	return nil, nil
}
