package backend

import (
	"fmt"
	"strconv"
	"strings"
)

// Device names where a product is computed: "auto", "cpu", "gpu", "gpu:N", "gpu:UUID",
// "emu" or "emu:MODEL".
type Device struct {
	Kind  string // auto, cpu, gpu or emu
	Index int    // of a GPU, among those that the driver shows …
	UUID  string // … or the beginning of its UUID, from "GPU-" on
	Model string // of an emulated GPU; empty: the emulator's usual one
}

// ParseDevice reads a device's name; the empty name is "auto".
func ParseDevice(name string) (Device, error) {
	kind, rest, has := strings.Cut(name, ":")
	switch {
	case name == "":
		return Device{Kind: "auto"}, nil
	case (kind == "auto" || kind == "cpu" || kind == "gpu" || kind == "emu") && !has:
		return Device{Kind: kind}, nil
	case kind == "gpu" && strings.HasPrefix(rest, "GPU-"):
		return Device{Kind: kind, UUID: rest}, nil
	case kind == "gpu":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return Device{}, fmt.Errorf("device %q: %q is no GPU number (want gpu:0, gpu:1, …, or the beginning of a UUID, gpu:GPU-…)", name, rest)
		}
		return Device{Kind: kind, Index: n}, nil
	case kind == "emu" && rest != "":
		return Device{Kind: kind, Model: rest}, nil
	}
	return Device{}, fmt.Errorf("unknown device %q (want auto, cpu, gpu, gpu:N, gpu:UUID, emu or emu:MODEL)", name)
}

// IsGPU says that d is a GPU, real or emulated.
func (d Device) IsGPU() bool { return d.Kind == "gpu" || d.Kind == "emu" }

func (d Device) String() string {
	switch {
	case d.Model != "":
		return d.Kind + ":" + d.Model
	case d.UUID != "":
		return d.Kind + ":" + d.UUID
	case d.Index > 0:
		return fmt.Sprintf("%s:%d", d.Kind, d.Index)
	}
	return d.Kind
}

// onCPU says that no GPU is asked for.
func (d Device) OnCPU() bool { return d.Kind == "" || d.Kind == "auto" || d.Kind == "cpu" }
