package backend

import (
	"fmt"
	"strconv"
	"strings"

	"tilework/internal/names"
)

// Kind identifies a kind of device.
type Kind uint8

// The kinds of devices, in the order of the table. The zero Kind is Auto.
const (
	Auto     Kind = iota // the CPU or the first GPU, whichever is estimated to be faster
	CPU                  // the CPU of this machine
	GPU                  // an NVIDIA GPU
	Emulator             // an emulated GPU
)

// kinds lists the kinds of devices, indexed by Kind.
var kinds = [...]struct {
	name string
	// arguments names the arguments that may follow the name and a colon, for help texts.
	arguments []string
	// parse returns the device of an argument, which is not empty, without its kind. It is nil if the
	// kind takes no argument.
	parse func(argument string) (DeviceName, error)
}{
	Auto:     {name: "auto"},
	CPU:      {name: "cpu"},
	GPU:      {"gpu", []string{"N", "UUID", "N,N", AllGPUs}, parseGPU},
	Emulator: {"emu", []string{"MODEL", "MODEL,MODEL"}, parseModels},
}

// String returns the name of k.
func (k Kind) String() string { return kinds[k].name }

// IsGPU reports whether devices of kind k are GPUs, real or emulated.
func (k Kind) IsGPU() bool { return k == GPU || k == Emulator }

// DeviceName identifies a device. It is comparable. The zero DeviceName is "auto".
type DeviceName struct {
	Kind  Kind
	Index int    // number of a GPU in the driver's order, or of an emulated one in a list
	UUID  string // start of a GPU's UUID, including "GPU-"; replaces Index
	Model string // model of an emulated GPU; empty for the emulator's default
	// List holds the numbers of several GPUs, such as "0,1", or is [AllGPUs]. Of emulated GPUs it
	// holds the models: "h200,h200". It replaces Index and Model.
	List string
}

// AllGPUs is the [DeviceName.List] of all GPUs of the machine.
const AllGPUs = "all"

// Members returns the GPUs of a list, or nil for [AllGPUs].
func (d *DeviceName) Members() (all []DeviceName) {
	if d.List == AllGPUs {
		return nil
	}
	for i, text := range strings.Split(d.List, ",") {
		member := DeviceName{Kind: d.Kind, Index: i, Model: text}
		if d.Kind == GPU {
			n, _ := strconv.Atoi(text) // parseGPUs has checked it
			member = DeviceName{Kind: d.Kind, Index: n}
		}
		all = append(all, member)
	}
	return all
}

// ParseDevice parses the name of a device. The empty name is "auto".
func ParseDevice(name string) (DeviceName, error) {
	if name == "" {
		return DeviceName{}, nil
	}
	prefix, argument, hasArgument := strings.Cut(name, ":")
	for i := range kinds {
		kind := &kinds[i]
		switch {
		case kind.name != prefix:
		case !hasArgument:
			return DeviceName{Kind: Kind(i)}, nil
		case kind.parse != nil && argument != "":
			d, err := kind.parse(argument)
			if err != nil {
				return DeviceName{}, fmt.Errorf("device %q: %w", name, err)
			}
			d.Kind = Kind(i)
			return d, nil
		}
	}
	return DeviceName{}, names.Unknown("device", name, forms())
}

// forms lists the forms of device names: "gpu", "gpu:N".
func forms() []string {
	var all []string
	for _, kind := range kinds {
		all = append(all, kind.name)
		for _, argument := range kind.arguments {
			all = append(all, kind.name+":"+argument)
		}
	}
	return all
}

func parseGPU(argument string) (DeviceName, error) {
	if argument == AllGPUs || strings.Contains(argument, ",") {
		return parseGPUs(argument)
	}
	if strings.HasPrefix(argument, "GPU-") {
		return DeviceName{UUID: argument}, nil
	}
	n, err := strconv.Atoi(argument)
	if err != nil || n < 0 {
		return DeviceName{}, fmt.Errorf("%q is not the number of a GPU: want gpu:0, gpu:1, … or the start of a UUID, "+
			"gpu:GPU-…", argument)
	}
	return DeviceName{Index: n}, nil
}

// parseGPUs parses several numbers, or AllGPUs.
func parseGPUs(argument string) (DeviceName, error) {
	seen := map[int]bool{}
	for text := range strings.SplitSeq(argument, ",") {
		if argument == AllGPUs {
			break
		}
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < 0 || strconv.Itoa(n) != text:
			return DeviceName{}, fmt.Errorf("%q is not the number of a GPU: want a list such as gpu:0,1, or gpu:all", text)
		case seen[n]:
			return DeviceName{}, fmt.Errorf("GPU %d is listed twice: want each GPU once", n)
		}
		seen[n] = true
	}
	return DeviceName{List: argument}, nil
}

// parseModels parses a model or several. "MODEL#N" is the name of number N of a list.
func parseModels(argument string) (DeviceName, error) {
	if strings.Contains(argument, ",") {
		for text := range strings.SplitSeq(argument, ",") {
			if text == "" || strings.Contains(text, "#") {
				return DeviceName{}, fmt.Errorf("%q is not the model of an emulated GPU: want a list such as emu:h200,h200", text)
			}
		}
		return DeviceName{List: argument}, nil
	}
	text, number, numbered := strings.Cut(argument, "#")
	n := 0
	if numbered {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 1 || strconv.Itoa(n) != number || text == "" {
			return DeviceName{}, fmt.Errorf("%q is not an emulated GPU of a list: want a name such as emu:h200#1", argument)
		}
	}
	return DeviceName{Model: text, Index: n}, nil
}

// IsFirst reports whether d is the first device of its kind, without an argument.
func (d *DeviceName) IsFirst() bool {
	return d.Index == 0 && d.UUID == "" && d.Model == "" && d.List == ""
}

// IsGPU reports whether d is a GPU, real or emulated.
func (d *DeviceName) IsGPU() bool { return d.Kind.IsGPU() }

// String returns the name of d, which ParseDevice accepts.
func (d DeviceName) String() string {
	switch {
	case d.Model != "" && d.Index > 0:
		return fmt.Sprintf("%v:%s#%d", d.Kind, d.Model, d.Index)
	case d.Model != "":
		return d.Kind.String() + ":" + d.Model
	case d.List != "":
		return d.Kind.String() + ":" + d.List
	case d.UUID != "":
		return d.Kind.String() + ":" + d.UUID
	case d.Index > 0:
		return fmt.Sprintf("%v:%d", d.Kind, d.Index)
	}
	return d.Kind.String()
}
