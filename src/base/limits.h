#pragma once
// Every limit on input, in one place. A limit that is hit becomes an error that names it.

#include <cstddef>
#include <cstdint>

namespace lathe::base {

struct Limits {
  size_t safetensors_header_bytes = 100u << 20;
  size_t safetensors_tensors = 1u << 20;
  size_t json_bytes = 256u << 20;
  size_t json_depth = 64;
  size_t config_bytes = 16u << 20;
  size_t template_bytes = 1u << 20;
  size_t template_steps = 20'000'000;
  size_t template_probe_steps = 200'000;  ///< of a few words, which take a few thousand: what asks a template how it behaves
  size_t template_output_bytes = 64u << 20;
  size_t template_depth = 100;
  uint32_t template_value_depth = 200;  ///< nesting of a value: refused when it is built, so that no walk can run out of stack
  size_t template_time_format_bytes = 1000;
  int64_t template_width = 1000;     ///< width or precision of a value in a format
  int64_t template_range = 100'000;  ///< length of range(), as Jinja2's sandbox
  size_t prompt_bytes = 64u << 20;
  int64_t tokenizer_ids = 1 << 20;      ///< the largest vocabularies have some 300,000; larger ids would let a small file take much memory
  size_t tokenizer_added_bytes = 1024;  ///< of one added token; real ones have a few dozen
  uint32_t split_steps = 50'000'000;    ///< of one regex match: patterns that backtrack without bound end here, not after minutes
  size_t split_stack_bytes = 8u << 20;
  size_t image_bytes = 32u << 20;
  int64_t image_pixels = 64 << 20;
  int32_t image_side = 16384;
  int64_t image_patch = 256;        ///< pixels of a patch side
  int64_t image_group = 16;         ///< patches of a merged side, frames of a patch
  int64_t image_tokens = 1 << 20;   ///< rows of one picture
  int64_t image_patches = 1 << 20;  ///< of one picture, and its steps in time
  // A model's config: far beyond every real one, so low that a product of any three sizes fits int64.
  int64_t model_parameters = int64_t{1} << 50;
  int64_t model_tensors = 1 << 22;
  int64_t model_width = int64_t{1} << 20;
  int64_t model_vocabulary = int64_t{1} << 24;
  int64_t model_layers = 1 << 10;
  int64_t model_heads = 1 << 14;
  int64_t model_head_dim = 1 << 14;
  int64_t model_experts = 1 << 14;
  int64_t model_shared_experts = 1024;
  int64_t model_small = 64;  ///< streams, patch edges in merge units, channels
  int64_t model_topk = int64_t{1} << 24;
  int64_t model_pool = 1024;         ///< positions of an index pool
  int64_t model_conv_width = 256;    ///< taps; real models have 4
  int64_t model_iterations = 1000;   ///< of a normalisation: they cost time for every token
  int64_t model_schedule = 1 << 20;  ///< periods and offsets of layer schedules
  int64_t model_positions = int64_t{1} << 31;
  // Settings and requests.
  int64_t threads = 4096;
  int64_t processors = 8192;         ///< numbers of processors; the largest kernels have as many
  int64_t context_tokens = 1 << 24;  ///< prompt and answer together; an answer alone as well
  int64_t batch_tokens = 1 << 16;    ///< rows of a step
  int64_t sampling_top_k = 1 << 20;
  double sampling_temperature_min = 0.001;  ///< below it greedy is meant, and logits would overflow
  double sampling_temperature = 100;
  double sampling_repetition_penalty = 10;
  double sampling_penalty = 2;  ///< of presence and frequency, in logits, either way
  double sampling_bias = 100;   ///< of one token, in logits, either way
  double config_number = 1e6;   ///< a number of a generation config, either way: its own range is looked at by the sampler
  // Bytes of text that a token of an evaluation stands for: real tokenizers give 2 to 6. What is far from it would make bits per byte look measured.
  double eval_bytes_per_token_min = 0.1;
  double eval_bytes_per_token = 1000;
  int64_t benchmark_tokens = 1 << 16;         ///< rows of an op in `bench ops`
  int64_t benchmark_sequences = 1 << 17;      ///< of all batches of `bench model`: all of them are open at once
  int64_t benchmark_pairs = 1000;             ///< runs of each arm of `bench ab`
  size_t benchmark_output_bytes = 64u << 20;  ///< what `bench ab` reads from a program it compares
};

inline constexpr Limits kLimits{};

}  // namespace lathe::base
