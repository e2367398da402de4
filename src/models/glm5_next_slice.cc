// Slices of glm5_next: the schedule of the model's first layers, its sizes, random weights.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/threads.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_release.h"
#include "models/glm5_next_tensors.h"
#include "models/random_values.h"
#include "models/slice.h"
#include "weights/safetensors.h"
#include "weights/shards.h"
#include "weights/work_folder.h"

namespace lathe::models {
namespace {

using config::Json;
using weights::shard_name;
using weights::TensorEntry;

// Raised with every change after which the same options give other bytes: shards of two kinds must not come together in one folder.
constexpr int kGenerator = 1;

constexpr const char* kCompanionFiles[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
                                           "preprocessor_config.json"};

Result<Glm5NextConfig> model_config(const std::string& path) {
  LATHE_TRY(const ParsedConfig parsed, path.empty() ? parse_glm5_next_config(glm5_next_release()) : read_glm5_next_config(path));
  return parsed.config;
}

Result<void> check_numbers(const SliceOptions& options, const Glm5NextConfig& model, const Glm5NextConfig& companion) {
  if (options.layers < 1 || options.layers > model.layers)
    return err(Code::kInvalidArgument, "the slice has {} layers, expected 1 to {}, as the model", options.layers, model.layers);
  if (options.dense_layers < -1 || options.dense_layers > options.layers)
    return err(Code::kInvalidArgument, "the slice has {} dense layers, expected 0 to {}, its layers", options.dense_layers, options.layers);
  if (options.experts < model.moe.experts_per_token || options.experts > model.moe.experts) {
    return err(Code::kInvalidArgument, "the slice has {} experts, expected {}, those that a token takes, to {}, as the model", options.experts,
               model.moe.experts_per_token, model.moe.experts);
  }
  const int64_t vocabulary = options.vocabulary == 0 ? model.vocab : options.vocabulary;
  if (vocabulary < companion.vocab || vocabulary > base::kLimits.model_vocabulary) {
    return err(Code::kInvalidArgument, "the slice has a vocabulary of {}, expected {}, those of its tokenizer, to {}", vocabulary, companion.vocab,
               base::kLimits.model_vocabulary);
  }
  return {};
}

Result<Glm5NextConfig> slice_config(const SliceOptions& options) {
  LATHE_TRY(Glm5NextConfig config, model_config(options.config));
  LATHE_TRY(const ParsedConfig companion, read_glm5_next_config(options.companion));
  LATHE_TRY_VOID(check_numbers(options, config, companion.config));
  const auto layers = static_cast<size_t>(options.layers);
  const auto model_dense = static_cast<int64_t>(std::find(config.ffns.begin(), config.ffns.end(), FfnKind::kMoe) - config.ffns.begin());
  const int64_t dense = options.dense_layers >= 0 ? options.dense_layers : std::min(model_dense, std::max<int64_t>(1, options.layers / 4));
  config.layers = options.layers;
  config.mixers.resize(layers);
  config.indexers.resize(layers);
  config.ffns.assign(layers, FfnKind::kMoe);
  std::fill_n(config.ffns.begin(), dense, FfnKind::kDense);
  config.moe.experts = options.experts;
  config.moe.groups = config.moe.groups_kept = 1;
  if (options.vocabulary != 0) config.vocab = options.vocabulary;
  config.tokens = companion.config.tokens;
  config.dtype = DType::kBF16;
  config.draft_layer = config.draft_layer && options.draft;
  if (!options.vision) config.vision.reset();
  config.quantization = {};
  if (options.fp8) {
    config.quantization.weights = WeightFormat::kFp8;
    config.quantization.excluded = modules_without(config, [](const TensorSpec& spec) { return spec.fp8_in_release; });
  }
  LATHE_TRY(const ParsedConfig checked, parse_glm5_next_config(glm5_next_config_json(config)));
  return checked.config;
}

/// Centre and width of a tensor's values: matrices keep the size of what they multiply, and nothing is all zero or all one.
RandomTensor distribution_of(const TensorSpec& spec) {
  const auto ends = [&](std::string_view tail) { return std::string_view(spec.name).ends_with(tail); };
  const bool norm = spec.name.find("norm") != std::string::npos && ends(".weight");
  if (norm) return {.centre = 1.0f, .width = 0.1f};
  if (ends("_base") || ends("A_log") || ends("_ape")) return {.width = 0.5f};
  if (ends("_scale")) return {.centre = 1.0f, .width = 0.2f};
  if (ends("dt_bias")) return {.centre = -2.0f, .width = 1.0f};  // decays of about half a nat a token
  if (ends("bias")) return {.width = 0.05f};
  const int64_t inputs = spec.elements() / spec.shape[0];  // the columns of a matrix, the taps of a convolution
  return {.width = 1.0f / std::sqrt(static_cast<float>(inputs))};
}

/// A file of the checkpoint: tensors and what they are drawn from.
struct Shard {
  std::vector<TensorEntry> tensors;
  std::vector<RandomTensor> values;
  uint64_t bytes = 0;

  void add(std::string name, const std::vector<int64_t>& shape, const RandomTensor& random) {
    uint64_t size = tensor::dtype_bytes(random.dtype);
    for (const int64_t n : shape) size *= static_cast<uint64_t>(n);
    bytes += size;
    tensors.push_back({.name = std::move(name), .dtype = random.dtype, .shape = shape});
    values.push_back(random);
  }
};

/// Whether the FP8 release stores a tensor so and the slice does as well.
bool is_fp8(const TensorSpec& spec, const SliceOptions& options) { return options.fp8 && spec.fp8_in_release; }

std::vector<Shard> make_shards(const Glm5NextConfig& config, const SliceOptions& options) {
  std::vector<Shard> shards(1);
  for (const TensorSpec& spec : glm5_next_inventory(config)) {
    Shard one;  // a matrix and its scales stay together
    RandomTensor random = distribution_of(spec);
    random.key = random_key(options.seed, spec.name);
    random.dtype = spec.f32_in_release ? DType::kF32 : DType::kBF16;
    if (is_fp8(spec, options)) {
      RandomTensor scales = random;
      scales.dtype = DType::kF32;
      scales.scales = true;
      random.dtype = DType::kF8E4M3;
      const std::string name = spec.name + "_scale_inv";
      scales.key = random_key(options.seed, name);
      one.add(name, {scale_blocks(spec.shape[0]), scale_blocks(spec.shape[1])}, scales);
    }
    one.add(spec.name, spec.shape, random);
    if (shards.back().bytes > 0 && shards.back().bytes + one.bytes > options.shard_bytes) shards.emplace_back();
    Shard& shard = shards.back();
    shard.bytes += one.bytes;
    std::move(one.tensors.begin(), one.tensors.end(), std::back_inserter(shard.tensors));
    shard.values.insert(shard.values.end(), one.values.begin(), one.values.end());
  }
  return shards;
}

SliceReport report_of(const Glm5NextConfig& config, const std::vector<Shard>& shards) {
  SliceReport report{.layers = config.layers,
                     .kda_layers = config.count(MixerKind::kKda),
                     .dense_layers = config.count(FfnKind::kDense),
                     .vocabulary = config.vocab,
                     .shards = static_cast<int64_t>(shards.size())};
  for (const TensorSpec& spec : glm5_next_inventory(config)) report.parameters += spec.elements();
  for (const Shard& shard : shards) {
    report.tensors += static_cast<int64_t>(shard.tensors.size());
    report.bytes += shard.bytes;
  }
  return report;
}

/// Everything that the files depend on, on one line.
std::string work_of(const SliceOptions& options, const Json& config) {
  return fmt::format("random weights {}, {} layers, {} experts, {}, draw {}, shards of {} bytes, config {:016x}", kGenerator, options.layers,
                     options.experts, options.fp8 ? "fp8" : "bf16", options.seed, options.shard_bytes, random_key(0, config.dump()));
}

constexpr std::string_view kCard = R"(# A slice with random weights

The sizes are those of a published model; layers and experts are fewer and the weights are drawn at random, so that real shapes can be measured on a
small machine. Its text means nothing. Tokenizer, template and defaults are those of a small trained model: rows of the embedding and of the head
behind the ids of that tokenizer are padding and are never drawn.
)";

/// What stands beside the weights.
Result<void> write_rest(const std::string& folder, const std::string& companion, const Json& config, const std::vector<Shard>& shards) {
  std::vector<std::span<const TensorEntry>> tensors;
  for (const Shard& shard : shards) tensors.emplace_back(shard.tensors);
  LATHE_TRY_VOID(weights::write_shard_index(folder, tensors));
  LATHE_TRY_VOID(base::write_file(folder + "/config.json", config.dump({.key_separator = ": ", .indent = 1})));
  LATHE_TRY_VOID(base::write_file(folder + "/README.md", kCard));
  for (const char* name : kCompanionFiles) {
    const std::string from = fmt::format("{}/{}", companion, name);
    if (!base::file_exists(from)) continue;
    LATHE_TRY(const std::string content, base::read_file(from, base::kLimits.json_bytes));
    LATHE_TRY_VOID(base::write_file(fmt::format("{}/{}", folder, name), content));
  }
  return {};
}

}  // namespace

Result<SliceReport> plan_slice(const SliceOptions& options) {
  LATHE_TRY(const Glm5NextConfig config, slice_config(options));
  return report_of(config, make_shards(config, options));
}

Result<SliceReport> make_slice(const std::string& path, const SliceOptions& options, base::FunctionRef<bool(uint64_t done)> progress) {
  LATHE_TRY(const Glm5NextConfig config, slice_config(options));
  const std::vector<Shard> shards = make_shards(config, options);
  const Json json = glm5_next_config_json(config);
  LATHE_TRY(weights::WorkFolder work, weights::WorkFolder::open(path, work_of(options, json)));
  SliceReport report = report_of(config, shards);
  uint64_t missing = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!work.has(shard_name(i, shards.size()))) missing += shards[i].bytes;
  }
  LATHE_TRY_VOID(base::check_disk_space(path, missing));
  base::ThreadPool pool(options.threads);
  const RandomValues values;
  weights::StreamOptions stream{.pool = &pool, .progress = &progress};
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    if (work.has(name)) {
      ++report.shards_kept;
    } else {
      const auto fill = [&](size_t part, uint64_t begin, std::span<std::byte> out) -> Result<void> {
        values.fill(shards[i].values[part], begin, out);
        return {};
      };
      LATHE_TRY_VOID(weights::write_safetensors(work.folder() + "/" + name, {.tensors = shards[i].tensors, .fill = fill}, stream));
    }
    stream.done_before += shards[i].bytes;
  }
  LATHE_TRY_VOID(write_rest(work.folder(), options.companion, json, shards));
  LATHE_TRY_VOID(work.finish());
  return report;
}

}  // namespace lathe::models
