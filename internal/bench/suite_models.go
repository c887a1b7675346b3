package bench

import (
	"math/rand/v2"
	"slices"
	"sync"

	"tilework/dtype"
)

// ModelSuite is the name of the suite of layers of published networks.
const ModelSuite = "models"

// chosen lists the layers of the fixed suite, and the numbers of tokens of their inputs: of one
// step of decoding, of small batches and of prompts, or of an image or 30 seconds of speech.
var chosen = []struct {
	network string
	tokens  []int
	layers  []string
}{
	{"GPT-2", []int{1, 1024}, []string{"qkv", "down", "logits"}},
	{"BERT base", []int{128, 512}, []string{"out", "up", "logits"}},
	{"ViT-B/16", []int{197, 8 * 197}, []string{"qkv", "up", "down"}},
	{"CLIP ViT-L/14", []int{577, 4 * 577}, []string{"out", "up", "down"}},
	{"Whisper large", []int{1500, 5}, []string{"out", "up", "logits"}},
	{"Phi-3 mini", []int{1, 48, 1000}, []string{"qkv", "down", "logits"}},
	{"Llama 3.1 8B", []int{3, 96, 4096}, []string{"qkv", "gate and up", "down"}},
	{"Llama 3.1 70B", []int{24, 2048}, []string{"qkv", "out", "down"}},
	{"Qwen2.5 3B", []int{1, 80, 777}, []string{"qkv", "gate and up", "logits"}},
	{"Qwen3 32B", []int{8, 160, 3000}, []string{"out", "gate and up", "down"}},
	{"Gemma 2 9B", []int{2, 33, 8192}, []string{"qkv", "out", "down"}},
	{"gpt-oss 20B", []int{1, 40, 1333}, []string{"qkv", "out", "expert gate and up"}},
	{"DeepSeek-V3", []int{16, 129, 4000}, []string{"query down", "key and value down", "expert gate and up",
		"expert down"}},
}

// modelSuite returns the samples of the chosen layers, or those that d draws.
func modelSuite(d Draw) []Sample {
	if d.Count == 0 {
		return chosenLayers()
	}
	return drawLayers(d)
}

var chosenLayers = sync.OnceValue(func() (all []Sample) {
	for _, c := range chosen {
		x := &networks[slices.IndexFunc(networks, func(x network) bool { return x.name == c.network })]
		for _, tokens := range c.tokens {
			for _, l := range x.layers() {
				if slices.Contains(c.layers, l.what) {
					all = append(all, x.sample(tokens, l))
				}
			}
		}
	}
	return all
})

// sample returns the product of a layer, whose weights are stored transposed, as PyTorch does.
func (x *network) sample(tokens int, l layer) Sample {
	return Sample{Shape: Shape{tokens, l.n, l.k}, TransB: true, Why: x.name + " " + l.what}
}

// The limits of a drawn layer.
const (
	maxTokens        = 8192
	maxLayerElements = 1 << 29 // 1 GiB in 16 bits
)

// drawLayers draws d.Count layers of the networks that are served in d.Type. Text and proteins
// have log-uniform numbers of tokens, and images and speech those of whole inputs. In 16 bits or
// more, half of the weights are stored untransposed. The first samples of two counts are equal.
func drawLayers(d Draw) []Sample {
	var served []*network
	for i := range networks {
		if slices.Contains(networks[i].served, d.Type) {
			served = append(served, &networks[i])
		}
	}
	limit := float64(maxGPUFlops)
	if d.CPU {
		limit = maxCPUFlops
	}
	samples := make([]Sample, d.Count)
	for i := range samples {
		rng := rand.New(rand.NewPCG(d.Seed, uint64(i)))
		s := &samples[i]
		for tooLarge := true; tooLarge; tooLarge = s.flops() > limit || s.elements() > maxLayerElements {
			x := served[rng.IntN(len(served))]
			all := x.layers()
			*s = x.sample(x.drawTokens(rng), all[rng.IntN(len(all))])
			s.TransB = rng.IntN(2) == 0 || d.Type.Size() == 1
		}
	}
	return samples
}

// drawTokens draws the number of tokens of a batch for the network, up to maxTokens.
func (x *network) drawTokens(rng *rand.Rand) int {
	each := tokens[x.input]
	if each == nil {
		return logUniform(rng, 1, maxTokens)
	}
	one := each[rng.IntN(len(each))]
	return one * logUniform(rng, 1, maxTokens/one)
}

// isServed reports whether a network of the suite is served in type t.
func isServed(t dtype.Type) bool {
	return slices.ContainsFunc(networks, func(x network) bool { return slices.Contains(x.served, t) })
}
