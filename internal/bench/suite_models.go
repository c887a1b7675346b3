package bench

// model holds the products of a published neural network.
type model struct {
	name   string
	tokens []int // of the measured inputs: M
	layers []layer
}

// layer is a product with the weights of a layer, which are stored transposed, as PyTorch does.
type layer struct {
	n, k int
	what string
}

// models lists the networks of the suite with the sizes that their authors published. The numbers
// of tokens are those of one step of decoding, of small batches and of prompts, or those that an
// image or 30 seconds of speech take.
var models = []model{
	{"GPT-2", []int{1, 1024}, []layer{
		{2304, 768, "qkv"}, {768, 3072, "down"}, {50257, 768, "logits"}}},
	{"BERT base", []int{128, 512}, []layer{
		{768, 768, "out"}, {3072, 768, "up"}, {30522, 768, "logits"}}},
	{"ViT-B/16", []int{197, 8 * 197}, []layer{
		{2304, 768, "qkv"}, {3072, 768, "up"}, {768, 3072, "down"}}},
	{"CLIP ViT-L/14", []int{577, 4 * 577}, []layer{
		{1024, 1024, "out"}, {4096, 1024, "up"}, {1024, 4096, "down"}}},
	{"Whisper large", []int{1500, 5}, []layer{
		{1280, 1280, "out"}, {5120, 1280, "up"}, {51866, 1280, "logits"}}},
	{"Phi-3 mini", []int{1, 48, 1000}, []layer{
		{9216, 3072, "qkv"}, {3072, 8192, "down"}, {32064, 3072, "logits"}}},
	{"Llama 3.1 8B", []int{3, 96, 4096}, []layer{
		{6144, 4096, "qkv"}, {28672, 4096, "gate and up"}, {4096, 14336, "down"}}},
	{"Llama 3.1 70B", []int{24, 2048}, []layer{
		{10240, 8192, "qkv"}, {8192, 8192, "out"}, {8192, 28672, "down"}}},
	{"Qwen2.5 3B", []int{1, 80, 777}, []layer{
		{2560, 2048, "qkv"}, {22016, 2048, "gate and up"}, {151936, 2048, "logits"}}},
	{"Qwen3 32B", []int{8, 160, 3000}, []layer{
		{5120, 8192, "out"}, {51200, 5120, "gate and up"}, {5120, 25600, "down"}}},
	{"Gemma 2 9B", []int{2, 33, 8192}, []layer{
		{8192, 3584, "qkv"}, {3584, 4096, "out"}, {3584, 14336, "down"}}},
	{"gpt-oss 20B", []int{1, 40, 1333}, []layer{
		{5120, 2880, "qkv"}, {2880, 4096, "out"}, {5760, 2880, "expert gate and up"}}},
	{"DeepSeek-V3", []int{16, 129, 4000}, []layer{
		{1536, 7168, "query down"}, {576, 7168, "key and value down"}, {4096, 7168, "expert gate and up"},
		{7168, 2048, "expert down"}}},
}

// modelSuite returns the products of all models.
func modelSuite() []Sample {
	var all []Sample
	for _, m := range models {
		for _, tokens := range m.tokens {
			for _, l := range m.layers {
				all = append(all, Sample{Shape: Shape{tokens, l.n, l.k}, TransB: true, Why: m.name + " " + l.what})
			}
		}
	}
	return all
}
