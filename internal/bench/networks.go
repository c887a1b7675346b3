package bench

import "tilework/dtype"

// network holds the sizes of the layers of a published neural network, as its authors give them.
type network struct {
	name   string
	input  input
	served []dtype.Type // the types in which it is served
	sizes
	further []layer // that sizes do not give
}

// sizes holds the numbers of features in a transformer. A network lacks the layers of a size of 0.
type sizes struct {
	width      int // between the layers
	query, key int // of all heads for queries, and of those for keys or values
	inner      int // of the feed-forward layers; negative if these have no gate
	expert     int // of the feed-forward layers of an expert, which have a gate
	experts    int // outputs of the router
	vocabulary int
}

// layer is a product with the weights of a layer: n outputs of k inputs for each token.
type layer struct {
	n, k int
	what string
}

// layers returns the layers of a network that multiply.
func (x *network) layers() (all []layer) {
	add := func(n, k int, what string) {
		if n > 0 && k > 0 {
			all = append(all, layer{n, k, what})
		}
	}
	if x.query > 0 {
		add(x.query+2*x.key, x.width, "qkv")
		add(x.width, x.query, "out")
	}
	add(2*x.inner, x.width, "gate and up")
	add(-x.inner, x.width, "up")
	add(x.width, max(x.inner, -x.inner), "down")
	add(2*x.expert, x.width, "expert gate and up")
	add(x.width, x.expert, "expert down")
	add(x.experts, x.width, "router")
	add(x.vocabulary, x.width, "logits")
	return append(all, x.further...)
}

// input is the kind of a network's input.
type input uint8

const (
	text input = iota // any number of tokens
	image
	audio
	protein
	inputs
)

// tokens holds the numbers of tokens of one input, from which batches are made: of an image, of 10
// or 30 seconds of speech, or of a protein with the padding of its network. Text has no entry.
var tokens = [inputs][]int{
	image:   {197, 257, 577, 729, 1024, 1025, 4096},
	audio:   {376, 499, 1500},
	protein: {258, 514, 1026},
}

// The types in which networks are served: large ones in 16 bits and quantised, older and smaller
// ones in float32 too.
var (
	halves  = []dtype.Type{dtype.F16, dtype.BF16}
	large   = []dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.I8}
	small   = []dtype.Type{dtype.F32, dtype.F16, dtype.BF16}
	encoder = []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.I8}
)

// networks lists the networks from which the suite draws.
var networks = []network{
	{"GPT-2", text, encoder, sizes{768, 768, 768, -3072, 0, 0, 50257}, nil},
	{"GPT-2 XL", text, small, sizes{1600, 1600, 1600, -6400, 0, 0, 50257}, nil},
	{"GPT-J 6B", text, halves, sizes{4096, 4096, 4096, -16384, 0, 0, 50400}, nil},
	{"OPT 13B", text, large, sizes{5120, 5120, 5120, -20480, 0, 0, 50272}, nil},
	{"Pythia 12B", text, halves, sizes{5120, 5120, 5120, -20480, 0, 0, 50688}, nil},
	{"BLOOM 7B", text, large, sizes{4096, 4096, 4096, -16384, 0, 0, 250880}, nil},
	{"Falcon 7B", text, halves, sizes{4544, 4544, 64, -18176, 0, 0, 65024}, nil},
	{"Llama 2 7B", text, large, sizes{4096, 4096, 4096, 11008, 0, 0, 32000}, nil},
	{"Llama 2 13B", text, large, sizes{5120, 5120, 5120, 13824, 0, 0, 32000}, nil},
	{"Llama 2 70B", text, large, sizes{8192, 8192, 1024, 28672, 0, 0, 32000}, nil},
	{"Llama 3.2 1B", text, large, sizes{2048, 2048, 512, 8192, 0, 0, 128256}, nil},
	{"Llama 3.2 3B", text, large, sizes{3072, 3072, 1024, 8192, 0, 0, 128256}, nil},
	{"Llama 3.1 8B", text, large, sizes{4096, 4096, 1024, 14336, 0, 0, 128256}, nil},
	{"Llama 3.1 70B", text, large, sizes{8192, 8192, 1024, 28672, 0, 0, 128256}, nil},
	{"Llama 3.1 405B", text, large, sizes{16384, 16384, 1024, 53248, 0, 0, 128256}, nil},
	{"Mistral 7B", text, large, sizes{4096, 4096, 1024, 14336, 0, 0, 32768}, nil},
	{"Mistral Nemo 12B", text, large, sizes{5120, 4096, 1024, 14336, 0, 0, 131072}, nil},
	{"Mistral Small 3 24B", text, large, sizes{5120, 4096, 1024, 32768, 0, 0, 131072}, nil},
	{"Mistral Large 2 123B", text, large, sizes{12288, 12288, 1024, 28672, 0, 0, 32768}, nil},
	{"Qwen2.5 0.5B", text, small, sizes{896, 896, 128, 4864, 0, 0, 151936}, nil},
	{"Qwen2.5 1.5B", text, large, sizes{1536, 1536, 256, 8960, 0, 0, 151936}, nil},
	{"Qwen2.5 3B", text, large, sizes{2048, 2048, 256, 11008, 0, 0, 151936}, nil},
	{"Qwen2.5 7B", text, large, sizes{3584, 3584, 512, 18944, 0, 0, 152064}, nil},
	{"Qwen2.5 14B", text, large, sizes{5120, 5120, 1024, 13824, 0, 0, 152064}, nil},
	{"Qwen2.5 72B", text, large, sizes{8192, 8192, 1024, 29568, 0, 0, 152064}, nil},
	{"Qwen3 0.6B", text, large, sizes{1024, 2048, 1024, 3072, 0, 0, 151936}, nil},
	{"Qwen3 1.7B", text, large, sizes{2048, 2048, 1024, 6144, 0, 0, 151936}, nil},
	{"Qwen3 4B", text, large, sizes{2560, 4096, 1024, 9728, 0, 0, 151936}, nil},
	{"Qwen3 8B", text, large, sizes{4096, 4096, 1024, 12288, 0, 0, 151936}, nil},
	{"Qwen3 14B", text, large, sizes{5120, 5120, 1024, 17408, 0, 0, 151936}, nil},
	{"Qwen3 32B", text, large, sizes{5120, 8192, 1024, 25600, 0, 0, 151936}, nil},
	{"Gemma 7B", text, large, sizes{3072, 4096, 4096, 24576, 0, 0, 256000}, nil},
	{"Gemma 2 2B", text, large, sizes{2304, 2048, 1024, 9216, 0, 0, 256000}, nil},
	{"Gemma 2 9B", text, large, sizes{3584, 4096, 2048, 14336, 0, 0, 256000}, nil},
	{"Gemma 2 27B", text, large, sizes{4608, 4096, 2048, 36864, 0, 0, 256000}, nil},
	{"Gemma 3 1B", text, small, sizes{1152, 1024, 256, 6912, 0, 0, 262144}, nil},
	{"Gemma 3 4B", text, large, sizes{2560, 2048, 1024, 10240, 0, 0, 262144}, nil},
	{"Gemma 3 12B", text, large, sizes{3840, 4096, 2048, 15360, 0, 0, 262144}, nil},
	{"Gemma 3 27B", text, large, sizes{5376, 4096, 2048, 21504, 0, 0, 262144}, nil},
	{"Phi-2", text, halves, sizes{2560, 2560, 2560, -10240, 0, 0, 51200}, nil},
	{"Phi-3 mini", text, large, sizes{3072, 3072, 3072, 8192, 0, 0, 32064}, nil},
	{"Phi-4 mini", text, large, sizes{3072, 3072, 1024, 8192, 0, 0, 200064}, nil},
	{"Phi-4", text, large, sizes{5120, 5120, 1280, 17920, 0, 0, 100352}, nil},
	{"SmolLM2 135M", text, small, sizes{576, 576, 192, 1536, 0, 0, 49152}, nil},
	{"SmolLM3 3B", text, halves, sizes{2048, 2048, 512, 11008, 0, 0, 128256}, nil},
	{"OLMo 2 13B", text, halves, sizes{5120, 5120, 5120, 13824, 0, 0, 100352}, nil},
	{"OLMo 2 32B", text, large, sizes{5120, 5120, 1024, 27648, 0, 0, 100352}, nil},
	{"StarCoder2 3B", text, halves, sizes{3072, 3072, 256, -12288, 0, 0, 49152}, nil},
	{"StarCoder2 15B", text, halves, sizes{6144, 6144, 512, -24576, 0, 0, 49152}, nil},
	{"Yi 34B", text, large, sizes{7168, 7168, 1024, 20480, 0, 0, 64000}, nil},
	{"InternLM2.5 20B", text, halves, sizes{6144, 6144, 1024, 16384, 0, 0, 92544}, nil},
	{"Granite 3 8B", text, large, sizes{4096, 4096, 1024, 12800, 0, 0, 49155}, nil},
	{"Command R 35B", text, halves, sizes{8192, 8192, 8192, 22528, 0, 0, 256000}, nil},
	{"GLM-4 9B", text, halves, sizes{4096, 4096, 256, 13696, 0, 0, 151552}, nil},
	{"Seed-OSS 36B", text, halves, sizes{5120, 10240, 1024, 27648, 0, 0, 155136}, nil},
	{"Mamba-2 2.7B", text, halves, sizes{vocabulary: 50288, width: 2560}, []layer{
		{10576, 2560, "in"}, {2560, 5120, "out"}}},

	{"Mixtral 8x7B", text, large, sizes{4096, 4096, 1024, 0, 14336, 8, 32000}, nil},
	{"Mixtral 8x22B", text, large, sizes{6144, 6144, 1024, 0, 16384, 8, 32768}, nil},
	{"DBRX", text, halves, sizes{6144, 6144, 1024, 0, 10752, 16, 100352}, nil},
	{"OLMoE 1B-7B", text, halves, sizes{2048, 2048, 2048, 0, 1024, 64, 50304}, nil},
	{"Qwen3 30B-A3B", text, large, sizes{2048, 4096, 512, 0, 768, 128, 151936}, nil},
	{"Qwen3 235B-A22B", text, large, sizes{4096, 8192, 512, 0, 1536, 128, 151936}, nil},
	{"gpt-oss 20B", text, halves, sizes{2880, 4096, 512, 0, 2880, 32, 201088}, nil},
	{"GLM-4.5 Air", text, large, sizes{4096, 12288, 1024, 10944, 1408, 128, 151552}, nil},
	{"GLM-4.5", text, large, sizes{5120, 12288, 1024, 12288, 1536, 160, 151552}, nil},
	{"Llama 4 Scout", text, large, sizes{5120, 5120, 1024, 0, 8192, 16, 202048}, nil},
	{"DeepSeek-V2 Lite", text, halves, sizes{2048, 0, 0, 10944, 1408, 64, 102400}, []layer{
		{3072, 2048, "query"}, {576, 2048, "key and value down"}, {4096, 512, "key and value up"}, {2048, 2048, "out"}}},
	{"DeepSeek-V3", text, large, sizes{7168, 0, 0, 18432, 2048, 256, 129280}, []layer{
		{1536, 7168, "query down"}, {24576, 1536, "query up"}, {576, 7168, "key and value down"},
		{32768, 512, "key and value up"}, {7168, 16384, "out"}}},
	{"Kimi K2", text, large, sizes{7168, 0, 0, 18432, 2048, 384, 163840}, []layer{
		{1536, 7168, "query down"}, {12288, 1536, "query up"}, {576, 7168, "key and value down"},
		{16384, 512, "key and value up"}, {7168, 8192, "out"}}},

	{"MiniLM L6", text, encoder, sizes{384, 384, 384, -1536, 0, 0, 0}, nil},
	{"BERT base", text, encoder, sizes{768, 768, 768, -3072, 0, 0, 30522}, nil},
	{"BERT large", text, encoder, sizes{1024, 1024, 1024, -4096, 0, 0, 30522}, nil},
	{"XLM-RoBERTa large", text, encoder, sizes{1024, 1024, 1024, -4096, 0, 0, 250002}, nil},
	{"ModernBERT large", text, small, sizes{1024, 1024, 1024, 2624, 0, 0, 50368}, nil},
	{"T5 base", text, small, sizes{768, 768, 768, -3072, 0, 0, 32128}, nil},
	{"Flan-T5 XXL", text, halves, sizes{4096, 4096, 4096, 10240, 0, 0, 32128}, nil},

	{"ViT-B/16", image, encoder, sizes{768, 768, 768, -3072, 0, 0, 0}, nil},
	{"CLIP ViT-L/14", image, encoder, sizes{1024, 1024, 1024, -4096, 0, 0, 0}, nil},
	{"ViT-H/14", image, small, sizes{1280, 1280, 1280, -5120, 0, 0, 0}, nil},
	{"SigLIP so400m", image, small, sizes{1152, 1152, 1152, -4304, 0, 0, 0}, nil},
	{"DINOv2 giant", image, small, sizes{1536, 1536, 1536, 4096, 0, 0, 0}, nil},
	{"InternViT 6B", image, halves, sizes{3200, 3200, 3200, -12800, 0, 0, 0}, nil},
	{"Qwen2.5-VL vision", image, halves, sizes{1280, 1280, 1280, 3420, 0, 0, 0}, nil},

	{"Whisper small", audio, encoder, sizes{768, 768, 768, -3072, 0, 0, 0}, nil},
	{"Whisper large", audio, encoder, sizes{1280, 1280, 1280, -5120, 0, 0, 51866}, nil},
	{"wav2vec 2.0 large", audio, small, sizes{1024, 1024, 1024, -4096, 0, 0, 32}, nil},
	{"HuBERT extra large", audio, small, sizes{1280, 1280, 1280, -5120, 0, 0, 0}, nil},

	{"DiT-XL/2", image, small, sizes{1152, 1152, 1152, -4608, 0, 0, 0}, nil},
	{"Stable Diffusion XL", image, halves, sizes{1280, 1280, 1280, 5120, 0, 0, 0}, []layer{
		{5120, 640, "gate and up of 640"}, {640, 2560, "down of 640"}}},
	{"Stable Diffusion 3.5 large", image, halves, sizes{2432, 2432, 2432, -9728, 0, 0, 0}, nil},
	{"FLUX.1", image, large, sizes{3072, 3072, 3072, -12288, 0, 0, 0}, []layer{
		{21504, 3072, "qkv and up"}, {3072, 15360, "out and down"}}},
	{"Wan 2.1 14B", image, large, sizes{5120, 5120, 5120, -13824, 0, 0, 0}, nil},

	{"ESM-2 650M", protein, small, sizes{1280, 1280, 1280, -5120, 0, 0, 33}, nil},
	{"ESM-2 3B", protein, halves, sizes{2560, 2560, 2560, -10240, 0, 0, 33}, nil},
	{"ESM-2 15B", protein, halves, sizes{5120, 5120, 5120, -20480, 0, 0, 33}, nil},
	{"ESM3 1.4B", protein, small, sizes{1536, 1536, 1536, 4096, 0, 0, 0}, nil},
	{"ProtT5 XL", protein, small, sizes{1024, 4096, 4096, -16384, 0, 0, 128}, nil},
}
