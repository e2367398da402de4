#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/outputs.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "config/json.h"
#include "evaluate/logits.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

namespace lathe::apps {
namespace {

/// What the ids have no room for.
Result<void> check_pieces(const LogitsOptions& options, const evaluate::LogitsJob& job) {
  const auto length = static_cast<int64_t>(job.ids.size());
  if (options.decode_from != -1 && (options.decode_from < 0 || options.decode_from >= length)) {
    return err(Code::kInvalidArgument, "--decode-from is {}, expected 0 to {}: there are {} ids", options.decode_from, length - 1, length);
  }
  const int64_t read = options.decode_from >= 0 ? options.decode_from : length;
  int64_t left = read;
  for (const int64_t chunk : job.chunks) {
    if (chunk < 1) return err(Code::kInvalidArgument, "--chunks '{}' has a chunk of {} tokens, expected at least 1", options.chunks, chunk);
    if (chunk > left && read < length) {
      return err(Code::kInvalidArgument, "--chunks '{}' goes beyond --decode-from {}: expected chunks of at most {} together", options.chunks, read,
                 read);
    }
    if (chunk > left) {
      return err(Code::kInvalidArgument, "--chunks '{}' is more than the {} ids: expected chunks of at most {} together", options.chunks, length,
                 length);
    }
    left -= chunk;
  }
  return {};
}

Result<std::vector<TokenId>> read_ids(const std::string& path) {
  LATHE_TRY(const config::Json json, config::read_json_file(path));
  if (!json.is_array()) return err(Code::kDataLoss, "{} holds {}, expected a list of token ids", path, json.kind_name());
  std::vector<TokenId> ids;
  for (const config::Json& value : json.as_array()) {
    if (!value.is_int() || value.as_int() < 0 || value.as_int() > INT32_MAX) {
      return err(Code::kDataLoss, "{}: entry {} is {}, expected a token id", path, ids.size(), value.dump());
    }
    ids.push_back(static_cast<TokenId>(value.as_int()));
  }
  if (ids.empty()) return err(Code::kDataLoss, "{}: there are no ids, expected at least one", path);
  return ids;
}

Result<void> check_ids(const std::string& path, std::span<const TokenId> ids, int64_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocabulary) return err(Code::kDataLoss, "{}: entry {} is {}, the model has tokens 0 to {}", path, i, ids[i], vocabulary - 1);
  }
  return {};
}

Result<void> check_files(const LogitsOptions& options, const std::string& model) {
  const NamedFile inputs[] = {{"--ids", options.ids_file}, {"--pixels", options.pixels}, {"--settings", options.settings_file}};
  return check_output({"--out", options.out_file}, {.model = model, .files = inputs});
}

Result<std::vector<engine::PromptImage>> read_images(engine::Engine& engine, const std::string& path, std::span<const TokenId> ids) {
  LATHE_TRY(weights::Checkpoint file, weights::Checkpoint::open(path));
  LATHE_TRY(const View values, file.take("pixel_values"));
  LATHE_TRY(const View grid, file.take("grid"));
  if (values.dtype != DType::kF32 || values.rank != 2 || values.dim(1) != engine.info().patch_values) {
    return err(Code::kInvalidArgument, "{}: pixel_values is {}, expected f32[patches, {}]", path, tensor::describe(values),
               engine.info().patch_values);
  }
  const bool single = grid.rank == 1 && grid.dim(0) == 3;
  if (grid.dtype != DType::kI64 || !(single || (grid.rank == 2 && grid.dim(1) == 3))) {
    return err(Code::kInvalidArgument, "{}: grid is {}, expected i64[3] or i64[n, 3]", path, tensor::describe(grid));
  }
  const std::span<const float> pixels(values.f32(), static_cast<size_t>(values.elements()));
  const auto bad = std::find_if(pixels.begin(), pixels.end(), [](float value) { return !std::isfinite(value); });
  if (bad != pixels.end()) {
    const int64_t index = bad - pixels.begin();
    return err(Code::kInvalidArgument, "{}: pixel_values[{}, {}] is {}, expected a finite number", path, index / values.dim(1), index % values.dim(1),
               *bad);
  }
  std::vector<std::array<int64_t, 3>> grids(static_cast<size_t>(grid.elements() / 3));
  std::memcpy(grids.data(), grid.data, static_cast<size_t>(grid.elements()) * sizeof(int64_t));
  auto images = evaluate::place_images(engine, ids, pixels, grids);
  if (!images) return base::forward_error(images, path);
  return images;
}

}  // namespace

Result<int> logits_verb(const config::Settings& settings, const LogitsOptions& options) {
  if (options.ids_file.empty() || options.out_file.empty())
    return err(Code::kInvalidArgument, "logits needs --ids FILE.json and --out OUT.safetensors");
  LATHE_TRY(engine::EngineOptions engine_settings, engine_options(settings));
  LATHE_TRY_VOID(check_files(options, engine_settings.model));
  std::unique_ptr<engine::Engine> engine;  // outlives the job, whose image rows lie on its device
  evaluate::LogitsJob job;
  LATHE_TRY(job.ids, read_ids(options.ids_file));
  LATHE_TRY(job.chunks, split_integers("--chunks", options.chunks, INT64_MIN));
  LATHE_TRY_VOID(check_pieces(options, job));
  LATHE_TRY(const std::vector<int64_t> at, split_integers("--at", options.at, INT64_MIN));
  LATHE_TRY(job.at, evaluate::resolve_positions(at, static_cast<int64_t>(job.ids.size())));
  job.decode_from = options.decode_from;
  job.draft = options.draft;
  if (settings.origin("engine.context") == config::SettingOrigin::kDefault)
    engine_settings.context_tokens = std::max<int64_t>(static_cast<int64_t>(job.ids.size()), 1);
  if (const std::string path = engine_settings.model + "/tokenizer.json"; base::file_exists(path)) {  // rows behind its ids are padding
    LATHE_TRY(const auto tokenizer, base::file_content(text::Tokenizer::load(path)));
    engine_settings.sampled_vocabulary = tokenizer->vocab_size();
  }
  LATHE_TRY(engine, engine::Engine::create(engine_settings));
  LATHE_TRY_VOID(check_ids(options.ids_file, job.ids, engine->info().vocabulary));
  if (job.draft && !engine->info().has_draft) return err(Code::kFailedPrecondition, "--mtp: {} has no draft layer", engine_settings.model);
  if (options.pixels.empty()) {
    const TokenId placeholder = engine->info().image_token;
    const auto places = placeholder < 0 ? 0 : std::count(job.ids.begin(), job.ids.end(), placeholder);
    if (places > 0) {
      return err(Code::kDataLoss, "{}: the ids have {} placeholders of pictures (id {}), expected --pixels with the pictures", options.ids_file,
                 places, placeholder);
    }
  } else {
    LATHE_TRY(job.images, base::file_content(read_images(*engine, options.pixels, job.ids)));
  }
  Progress progress("computing logits", static_cast<int64_t>(job.ids.size()), {});
  LATHE_TRY(evaluate::LogitsTable table, evaluate::compute_logits(*engine, job, [&](int64_t done) { progress.update(done); }));
  progress.finish();
  std::vector<weights::NamedView> tensors;
  tensors.push_back({"logits", tensor::make_view(table.logits.data(), DType::kF32, {table.rows, table.vocabulary})});
  if (job.draft) tensors.push_back({"mtp_logits", tensor::make_view(table.draft_logits.data(), DType::kF32, {table.rows, table.vocabulary})});
  LATHE_TRY_VOID(weights::write_safetensors(options.out_file, tensors));
  return 0;
}

}  // namespace lathe::apps
