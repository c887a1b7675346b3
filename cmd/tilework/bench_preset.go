package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"tilework/internal/backend"
)

// preset is a study with a name: measurements, each as the flags that ask for it.
type preset struct {
	name, about string
	parts       []part
}

// part is one of a preset's measurements.
type part struct{ about, flags string }

const (
	smallSizes = "16..128+16,160..256+32,320..512+64"
	largeSizes = "1024,2048,4096,8192,10000"
	rungs      = "naive,tiled:16,tiled:32,blocked"
	// tensorRungs are those on the tensor cores, which multiply float32 where less than its
	// precision is asked for, or as precisely in three parts.
	tensorRungs = "mma-tf32,wgmma-tf32"
	splitRung   = "wgmma-f32x3"
)

// presets is the list of them.
var presets = []preset{
	{"quick", "what this machine can do, in less than a minute", []part{
		{"every kernel of the processor on one thread", "--device cpu --kernels all --peers all --threads 1 --sizes 16..512x2 --min-time 50ms"},
		{"its fastest kernel on all cores", "--device cpu --peers all --sizes 1024,2048 --min-time 50ms"},
		{"the same on other element types", "--device cpu --dtypes float64,bfloat16,int8 --sizes 512 --min-time 50ms"},
		{"every kernel of the GPU", "--device gpu --kernels all --peers " + ltPeer + " --sizes 256..4096x4"},
		{"what GPU kernels do, counted by the emulator", "--device emu --kernels " + rungs + " --sizes 64"},
	}},
	{"study", "the textbook's study: its loop on one thread, its GPU kernels with and without copies, the tensor cores, cuBLAS", []part{
		// It ends at 1024, which can take eight seconds; 2048 would take most of the study's time.
		{"the textbook's loop on one thread", "--device cpu --kernels loop --threads 1 --sizes " + smallSizes + ",1024 --min-time 100ms"},
		{"the fastest kernel on all cores", "--device cpu --sizes " + smallSizes + ",1024,2048,4096 --min-time 100ms"},
		// Tensor cores draw so much power that the clock falls for what takes turns with them:
		// cuBLAS in float32 ran at 40 TFLOP/s beside them, and at 51 without.
		{"the GPU's kernels and cuBLAS, on matrices that are there", "--device gpu --kernels " + rungs + ",auto --peers " + ltPeer + " --sizes " + smallSizes + "," + largeSizes + " --min-time 100ms"},
		{"the tensor cores on the same matrices, and cuBLAS in TF32", "--device gpu --kernels " + tensorRungs + "," + splitRung + " --peers " + ltTF32Peer + " --sizes 64..512x2," + largeSizes + " --min-time 100ms"},
		{"the tensor cores in elements that they are made for, and cuBLAS", "--device gpu --dtypes bfloat16 --kernels mma,wgmma --peers " + ltPeer + " --sizes 64..512x2," + largeSizes + " --min-time 100ms"},
		{"the same kernels with the copies to the GPU and back", "--device gpu --transfers --kernels " + rungs + ",auto --sizes " + smallSizes + "," + largeSizes + " --min-time 100ms"},
		{"the loads, sectors and bank conflicts behind it, counted by the emulator", "--device emu --kernels " + rungs + "," + tensorRungs + " --sizes 64,128"},
	}},
}

// presetHelp lists the presets and their parts.
func presetHelp() string {
	var b strings.Builder
	for _, p := range presets {
		fmt.Fprintf(&b, "  %-6s %s:\n", p.name, p.about)
		for _, part := range p.parts {
			fmt.Fprintf(&b, "         - %s\n", part.about)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// ofPreset reports whether the flags are a part of a preset, of which what cannot be
// measured on a device is left out.
func (f *benchFlags) ofPreset() bool { return f.about != "" }

func presetNames() []string {
	var names []string
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

// parts are the measurements that are asked for: those of the preset, with the flags that
// were given beside it in the place of its own, or the one that the flags describe.
func (f *benchFlags) parts(given *pflag.FlagSet) ([]*benchFlags, error) {
	if f.preset == "" {
		return []*benchFlags{f}, nil
	}
	for _, p := range presets {
		if p.name == f.preset {
			return f.unfold(p, given)
		}
	}
	return nil, fmt.Errorf("--preset %s: no such preset%s (there are %s)", f.preset, meant(f.preset, presetNames()), strings.Join(presetNames(), ", "))
}

// unfold is the parts of a preset; a device that is given leaves those for one of its
// kind.
func (f *benchFlags) unfold(p preset, given *pflag.FlagSet) ([]*benchFlags, error) {
	var all []*benchFlags
	for _, part := range p.parts {
		one := &benchFlags{about: part.about, optional: true}
		fl := benchCommandOf(one).Flags()
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
		return nil, fmt.Errorf("--device %s: preset %s measures nothing there", f.device, p.name)
	}
	return all, nil
}

// shapeFlags say what to multiply: any of them replaces all.
var shapeFlags = []string{"sizes", "shapes", "suite"}

// override sets flags to what was given.
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
