#include "models/generation_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/limits.h"
#include "models/config_reader.h"

namespace lathe::models {

using base::kLimits;
using config::Json;

namespace {

/// Keys that change what is generated and that nothing here does, with the values that change nothing (null never does).
struct NotDone {
  const char* key;
  std::vector<Json> harmless;
};
const std::vector<NotDone>& not_done() {
  static const std::vector<NotDone> kKeys = {
      {"typical_p", {1}},
      {"epsilon_cutoff", {0}},
      {"eta_cutoff", {0}},
      {"penalty_alpha", {0}},
      {"encoder_repetition_penalty", {1}},
      {"no_repeat_ngram_size", {0}},
      {"num_beams", {1}},
      {"num_return_sequences", {1}},
      {"min_length", {0}},
      {"min_new_tokens", {0}},
      {"max_length", {20}},  // what writers put there that were told nothing
      {"guidance_scale", {1}},
      {"bad_words_ids", {Json::Array{}}},
      {"suppress_tokens", {Json::Array{}}},
      {"begin_suppress_tokens", {Json::Array{}}},
      {"sequence_bias", {Json::Array{}, Json::Object{}}},
      {"stop_strings", {Json::Array{}}},
      {"forced_bos_token_id", {}},
      {"forced_eos_token_id", {}},
      {"exponential_decay_length_penalty", {}},
  };
  return kKeys;
}

bool same_setting(const Json& a, const Json& b) { return a.is_number() && b.is_number() ? a.as_double() == b.as_double() : a == b; }

void warn_about_not_done(const Json& json, std::vector<std::string>& warnings) {
  for (const NotDone& entry : not_done()) {
    const Json* value = json.find(entry.key);
    if (value == nullptr || value->is_null()) continue;
    if (std::any_of(entry.harmless.begin(), entry.harmless.end(), [&](const Json& same) { return same_setting(*value, same); })) continue;
    warnings.push_back(fmt::format("{} is {}, which is not supported and ignored", entry.key, value->dump()));
  }
}

void read_number(ConfigReader& reader, std::string_view key, std::optional<double>& out) {
  // What a sampler takes is its own affair and checked there; this keeps out what is no number.
  if (reader.find({key}) != nullptr) out = reader.required_number({key}, {-kLimits.config_number, kLimits.config_number});
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(const Json& json) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "the generation config is {}, expected an object", json.kind_name());
  std::vector<std::string> warnings;  // unknown keys are other engines' business
  ConfigReader reader(json, "", warnings);
  GenerationDefaults out;
  if (reader.find({"temperature"}) != nullptr) out.temperature = reader.required_number({"temperature"}, {0, kLimits.sampling_temperature});
  if (reader.find({"top_p"}) != nullptr) out.top_p = reader.required_number({"top_p"}, {0, 1});
  read_number(reader, "min_p", out.min_p);
  read_number(reader, "repetition_penalty", out.repetition_penalty);
  read_number(reader, "presence_penalty", out.presence_penalty);
  read_number(reader, "frequency_penalty", out.frequency_penalty);
  if (reader.find({"max_new_tokens"}) != nullptr) out.max_tokens = reader.required_int({"max_new_tokens"}, {1, kLimits.model_positions});
  if (reader.find({"top_k"}) != nullptr) out.top_k = reader.required_int({"top_k"}, {0, INT32_MAX});
  for (const int64_t id : reader.int_or_list({"eos_token_id"}, {0, INT32_MAX})) out.eos.push_back(static_cast<TokenId>(id));
  if (const Json* sample = reader.find({"do_sample"}); sample != nullptr && !sample->is_null()) {
    if (!sample->is_bool()) return err(Code::kInvalidArgument, "do_sample is {}, expected true or false", sample->dump());
    if (!sample->as_bool()) out.temperature = 0.0;
  }
  (void)reader.int_or_list({"pad_token_id"}, {0, INT32_MAX});  // nothing here pads: only its type is looked at
  LATHE_TRY_VOID(reader.status());
  warn_about_not_done(json, out.warnings);
  return out;
}

Result<GenerationDefaults> read_generation_config(const std::string& directory) {
  const std::string file = directory + "/generation_config.json";
  if (!base::file_exists(file)) return GenerationDefaults{};
  LATHE_TRY(const Json json, config::read_json_file(file, kLimits.config_bytes));
  auto parsed = parse_generation_config(json);
  if (!parsed) return base::file_content<GenerationDefaults>(base::forward_error(parsed, file));
  return parsed;
}

}  // namespace lathe::models
