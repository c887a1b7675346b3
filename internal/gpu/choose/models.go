package choose

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/memo"
	"tilework/ptx"
)

// models lists GPU models, and then architectures, the newest first. A device gets the first row
// whose SM it has and whose name is part of its own.
var models = []model{
	{90, "H100", "h100"},
	{80, "A100", "ampere"},
	{90, "", "h200"},
	{80, "", "ampere"},
	{0, "", "turing"},
}

type model struct {
	sm         int
	name, file string // the file is in the folder models
}

// modelFiles holds a modelFile for each GPU model that has coefficients of its own.
//
//go:embed models
var modelFiles embed.FS

// modelFile is a set of coefficients as a file or the cache holds it.
type modelFile struct {
	// Source describes the origin of the coefficients.
	Source []string
	// Like names the file that holds all coefficients which this one lacks, or is empty.
	Like string `json:",omitempty"`
	// Coefficients holds coefficients by their names in the type of that name.
	Coefficients json.RawMessage
}

// known holds the coefficients of the models, by file, and fitted those that were fitted to GPUs of
// this machine, or nil. The process reads each once, so that equal products get equal plans.
var (
	known  memo.Table[string, *coefficients]
	fitted memo.Table[gpuKind, *coefficients]
)

// gpuKind describes the GPUs that share fitted coefficients.
type gpuKind struct {
	name   string
	target ptx.Target
	sms    int
}

func kindOf(d *device.Info) gpuKind { return gpuKind{d.Name, d.Target, d.SMs} }

// coefficientsOf returns the coefficients that were fitted to a device, or else those of its model.
func coefficientsOf(d *device.Info) *coefficients {
	if d.Driver != "" {
		c, _ := fitted.Get(kindOf(d), func() (*coefficients, error) { return keptCoefficients(cache.Default(), d), nil })
		if c != nil {
			return c
		}
	}
	return modelCoefficients(ModelOf(d))
}

// fittedSection is the section of the cache with the coefficients of GPUs of this machine.
const fittedSection = "fitted"

// fittedKey returns the key of a GPU's coefficients in the cache. They hold for the kernels of one
// build.
func fittedKey(d *device.Info) string {
	k := kindOf(d)
	return fmt.Sprintf("coefficients, %s, %v, %d SMs, %s", k.name, k.target, k.sms, cache.Build())
}

// keptCoefficients returns the coefficients of a device in the cache, or nil.
func keptCoefficients(c *cache.Cache, d *device.Info) *coefficients {
	var f modelFile
	if !c.Section(fittedSection).Get(fittedKey(d), &f) {
		return nil
	}
	costs, err := f.coefficients()
	if err != nil {
		return nil // written by hand, or damaged
	}
	costs.fitted = true
	return costs
}

// Kept describes coefficients in the cache.
type Kept struct {
	Source []string `json:"source"` // their origin
	From   string   `json:"from"`   // the model with which the fit began
	// Current reports whether this build uses them. Those fitted by another build are not used,
	// because its kernels may differ.
	Current bool `json:"used"`
}

// AllKept returns the coefficients in a cache.
func AllKept(c *cache.Cache) (all []Kept) {
	c.Section(fittedSection).All(func(key string, value []byte) {
		var f modelFile
		if json.Unmarshal(value, &f) == nil {
			_, err := f.coefficients()
			all = append(all, Kept{f.Source, f.Like, err == nil && strings.HasSuffix(key, ", "+cache.Build())})
		}
	})
	return all
}

// ClearKept removes the coefficients from a cache and returns their number.
func ClearKept(c *cache.Cache) (int, error) { return c.Section(fittedSection).Clear() }

// Models returns the names of the sets of coefficients, without repetitions.
func Models() (names []string) {
	for _, m := range models {
		if !slices.Contains(names, m.file) {
			names = append(names, m.file)
		}
	}
	return names
}

// ModelOf returns the name of a device's set of coefficients, unless others were fitted to it.
func ModelOf(d *device.Info) string {
	i := slices.IndexFunc(models, func(m model) bool {
		return d.Target.SM >= m.sm && strings.Contains(d.Name, m.name)
	})
	return models[i].file
}

// modelCoefficients returns the coefficients of a file in the folder models.
func modelCoefficients(file string) *coefficients {
	c, err := known.Get(file, func() (*coefficients, error) {
		text, err := modelFiles.ReadFile("models/" + file + ".json")
		if err != nil {
			return nil, err
		}
		var f modelFile
		if err := decodeStrictly(text, &f); err != nil {
			return nil, err
		}
		return f.coefficients()
	})
	if err != nil {
		panic(fmt.Sprintf("models/%s.json: %v", file, err)) // TestModels reads all files
	}
	return c
}

// coefficients returns the coefficients of the file with those of the file that it is like.
func (f *modelFile) coefficients() (*coefficients, error) {
	c := coefficients{}
	if f.Like != "" {
		if !slices.Contains(Models(), f.Like) {
			return nil, fmt.Errorf("like %q: want one of %s", f.Like, strings.Join(Models(), ", "))
		}
		c = *modelCoefficients(f.Like)
	}
	if err := decodeStrictly(f.Coefficients, &c); err != nil {
		return nil, err
	}
	for _, n := range numbersOf(&c) {
		if x := n.Value(); !(x > 0) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%s is %v: want a positive number", n.Name, x)
		}
	}
	return &c, nil
}

// decodeStrictly decodes JSON that has no other fields than v.
func decodeStrictly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
