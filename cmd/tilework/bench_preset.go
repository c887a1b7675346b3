package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"tilework/internal/backend"
	"tilework/internal/names"
	"tilework/internal/table"
)

// preset is a named series of measurements.
type preset struct {
	name, about string
	parts       []part
}

// part is one measurement of a preset, as the flags of a bench command.
type part struct{ about, flags string }

const (
	smallSizes = "16..128+16,160..256+32,320..512+64"
	largeSizes = "1024,2048,4096,8192,10000"
	rungs      = "naive,tiled:16,tiled:32,blocked"
	// tensorRungs multiply float32 matrices on tensor cores in TF32.
	tensorRungs = "mma-tf32,wgmma-tf32"
	// splitRung multiplies them on tensor cores with the precision of float32, by splitting each
	// element into three parts.
	splitRung = "wgmma-f32x3"
)

// presets lists the presets of --preset.
var presets = []preset{
	{"quick", "a first impression of this machine, in less than a minute", []part{
		{"every CPU kernel on one thread",
			"--device cpu --kernels all --peers all --threads 1 --sizes 16..512x2 --min-time 50ms"},
		{"the fastest CPU kernel on all cores", "--device cpu --peers all --sizes 1024,2048 --min-time 50ms"},
		{"the fastest CPU kernels for other element types",
			"--device cpu --dtypes float64,bfloat16,int8 --sizes 512 --min-time 50ms"},
		{"every GPU kernel", "--device gpu --kernels all --peers " + ltPeer + " --sizes 256..4096x4"},
		{"loads, sectors and bank conflicts of GPU kernels, counted by the emulator",
			"--device emu --kernels " + rungs + " --sizes 64"},
	}},
	{"study", "a textbook's study, from the simple loop to tensor cores and cuBLAS", []part{
		// The sizes end at 1024, which can take 8 s. The size 2048 would take most of the study's
		// time.
		{"the textbook loop on one thread",
			"--device cpu --kernels loop --threads 1 --sizes " + smallSizes + ",1024 --min-time 100ms"},
		{"the fastest CPU kernel on all cores",
			"--device cpu --sizes " + smallSizes + ",1024,2048,4096 --min-time 100ms"},
		// Tensor-core kernels are a separate part. Their power draw makes the GPU lower its clock,
		// also for the kernels that alternate with them: cuBLAS in float32 reached 40 TFLOP/s
		// beside them and 51 without.
		{"GPU kernels and cuBLAS, on matrices in GPU memory",
			"--device gpu --kernels " + rungs + ",auto --peers " + ltPeer + " --sizes " + smallSizes + "," + largeSizes +
				" --min-time 100ms"},
		{"tensor-core kernels on the same matrices, and cuBLAS in TF32",
			"--device gpu --kernels " + tensorRungs + "," + splitRung + " --peers " + ltTF32Peer + " --sizes 64..512x2," +
				largeSizes + " --min-time 100ms"},
		{"tensor-core kernels and cuBLAS on bfloat16",
			"--device gpu --dtypes bfloat16 --kernels mma,wgmma --peers " + ltPeer + " --sizes 64..512x2," + largeSizes +
				" --min-time 100ms"},
		{"GPU kernels on matrices in host memory, with the copies to the GPU and back",
			"--device gpu --transfers --kernels " + rungs + ",auto --sizes " + smallSizes + "," + largeSizes +
				" --min-time 100ms"},
		{"loads, sectors and bank conflicts of the GPU kernels, counted by the emulator",
			"--device emu --kernels " + rungs + "," + tensorRungs + " --sizes 64,128"},
	}},
}

// presetHelp lists the presets and their parts.
func presetHelp() string {
	var b strings.Builder
	for _, p := range presets {
		fmt.Fprintf(&b, "  %-6s %s:\n", p.name, p.about)
		for _, part := range p.parts {
			const indent = "         "
			about := strings.ReplaceAll(table.Fold(part.about, helpWidth-len(indent)-2), "\n", "\n  "+indent)
			fmt.Fprintf(&b, "%s- %s\n", indent, about)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// ofPreset reports whether the flags are a part of a preset.
func (f *benchFlags) ofPreset() bool { return f.about != "" }

func presetNames() []string {
	var names []string
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

// parts returns the flags of each measurement: those of the preset, overridden by the given flags,
// or f itself without a preset.
func (f *benchFlags) parts(given *pflag.FlagSet) ([]*benchFlags, error) {
	if f.preset == "" {
		return []*benchFlags{f}, nil
	}
	i, err := names.Find("preset", f.preset, presets, func(p *preset) string { return p.name })
	if err != nil {
		return nil, fmt.Errorf("--preset: %w", err)
	}
	return f.unfold(presets[i], given)
}

// unfold returns the flags of the parts of a preset. If --device is given, only the parts for that
// kind of device remain.
func (f *benchFlags) unfold(p preset, given *pflag.FlagSet) ([]*benchFlags, error) {
	var all []*benchFlags
	for _, part := range p.parts {
		one := &benchFlags{about: part.about, optional: true}
		fl := newBenchCommand(one).Flags()
		if err := fl.Parse(strings.Fields(part.flags)); err != nil {
			return nil, fmt.Errorf("preset %s: %w", p.name, err)
		}
		own, err := backend.ParseDevice(one.device)
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", p.name, err)
		}
		if given.Changed("device") {
			wanted, err := namedDevice(f.device)
			if err != nil {
				return nil, err
			}
			if own.Kind != wanted.Kind {
				continue
			}
			one.optional = false
		}
		if err := override(fl, given); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--device %s: preset %s has no measurement for this device", f.device, p.name)
	}
	return all, nil
}

// shapeFlags name the shapes to multiply. Any of them replaces all of a preset.
var shapeFlags = []string{"sizes", "shape", "suite"}

// override sets the flags in fl to the given values.
func override(fl, given *pflag.FlagSet) (err error) {
	for _, name := range shapeFlags {
		if given.Changed(name) {
			for _, other := range shapeFlags {
				err = fl.Set(other, "")
			}
		}
	}
	given.Visit(func(g *pflag.Flag) {
		to := fl.Lookup(g.Name)
		if list, ok := g.Value.(pflag.SliceValue); ok && err == nil {
			err = to.Value.(pflag.SliceValue).Replace(list.GetSlice())
		} else if err == nil {
			err = fl.Set(g.Name, g.Value.String())
		}
	})
	return err
}
