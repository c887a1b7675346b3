package study

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"tilework/internal/explain"
	"tilework/internal/model"
	"tilework/internal/names"
)

// GPU is a row of the list of GPUs.
type GPU struct {
	Name   string `json:"name"`
	Device string `json:"device"`
	// Limits has a sentence on the limits of the GPU for each arithmetic of the rungs.
	Limits map[string]string `json:"limits"`
}

// Contents holds the lists that the page shows before the first run.
type Contents struct {
	Rungs    []Rung    `json:"rungs"`
	Mistakes []Mistake `json:"mistakes"`
	GPUs     []GPU     `json:"gpus"`
	Types    []string  `json:"types"` // of matrices for the reader's PTX
	MaxSide  int       `json:"max_side"`
	MaxSteps int       `json:"max_steps"` // side of a product of Watch
}

// Occupied is the answer to an [OccupancyRequest].
type Occupied struct {
	model.Occupancy
	Text string `json:"text"`
}

// OccupancyRequest is a block on an SM: that of a GPU, or of a textbook exercise if GPU is empty.
type OccupancyRequest struct {
	GPU    string       `json:"gpu"`
	Launch model.Launch `json:"launch"`
	// Limits of the textbook's SM; 0 is no limit, except for Threads.
	Threads   int `json:"sm_threads"`
	Shared    int `json:"sm_shared"`
	Blocks    int `json:"sm_blocks"`
	Registers int `json:"sm_registers"`
}

// Occupancy computes how many blocks fit an SM.
func Occupancy(q *OccupancyRequest) (*Occupied, error) {
	arch, err := model.Textbook(q.Threads, q.Shared, q.Blocks, q.Registers)
	if q.GPU != "" {
		var m *model.Model
		if m, err = model.Lookup(q.GPU); err == nil {
			arch = m.Arch
		}
	}
	if err != nil {
		return nil, err
	}
	o, err := arch.Occupancy(q.Launch)
	if err != nil {
		return nil, err
	}
	return &Occupied{o, o.Text()}, nil
}

func contents() (*Contents, error) {
	c := &Contents{Rungs: slices.Clone(rungs), Mistakes: Mistakes(), Types: ownTypes(), MaxSide: MaxSide,
		MaxSteps: explain.MaxSteps}
	for i := range c.Rungs {
		r := &c.Rungs[i]
		k, tile, p, err := r.launch(r.Sizes, r.Tile)
		if err != nil {
			return nil, err
		}
		r.Intensity = explain.Intensity(k, tile, p)
		if r.Tiles, err = r.tiles(); err != nil {
			return nil, err
		}
	}
	for _, m := range model.Models() {
		c.GPUs = append(c.GPUs, GPU{m.Name, m.Device, limitsOf(m)})
	}
	return c, nil
}

// methodFunc is a method of [Call] with parameters in JSON.
type methodFunc func(ctx context.Context, params []byte, progress Progress) (any, error)

// methods are the methods of [Call] by name.
var methods = map[string]methodFunc{
	"contents": func(context.Context, []byte, Progress) (any, error) { return contents() },
	"list": method(func(_ context.Context, q *Request, _ Progress) (*Listing, error) {
		return List(q)
	}),
	"run": method(Run),
	"watch": method(func(ctx context.Context, q *WatchRequest, _ Progress) (*Watched, error) {
		return Watch(ctx, q)
	}),
	"example": method(func(_ context.Context, q *Request, _ Progress) (*OwnRequest, error) {
		return OwnExample(q)
	}),
	"kernels": method(func(_ context.Context, q *OwnRequest, _ Progress) (*Own, error) {
		return OwnKernels(q)
	}),
	"own": method(RunOwn),
	"occupancy": method(func(_ context.Context, q *OccupancyRequest, _ Progress) (*Occupied, error) {
		return Occupancy(q)
	}),
}

// method returns f as a function of JSON.
func method[Q, R any](f func(context.Context, *Q, Progress) (*R, error)) methodFunc {
	return func(ctx context.Context, params []byte, progress Progress) (any, error) {
		q := new(Q)
		if err := json.Unmarshal(params, q); err != nil {
			return nil, err
		}
		return f(ctx, q, progress)
	}
}

// Call calls a method with parameters in JSON, and returns its result in JSON.
func Call(ctx context.Context, name string, params []byte, progress Progress) ([]byte, error) {
	f, ok := methods[name]
	if !ok {
		return nil, names.Unknown("method", name, slices.Sorted(maps.Keys(methods)))
	}
	result, err := f(ctx, params, progress)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}
