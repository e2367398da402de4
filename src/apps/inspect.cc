#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "models/glm5_next_cache.h"
#include "models/glm5_next_totals.h"
#include "ops/op.h"

namespace lathe::apps {
namespace {

using config::Json;
using models::Glm5NextConfig;
using models::Glm5NextTotals;
using models::TensorTotals;

/// 12,345,678
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

Json dimensions_json(const Glm5NextConfig& c) {
  Json::Object out{{"model_type", c.model_type},
                   {"vocabulary", c.vocab},
                   {"hidden", c.hidden},
                   {"layers", c.layers},
                   {"dense_width", c.intermediate},
                   {"max_positions", c.max_positions},
                   {"streams", c.mhc.streams},
                   {"kda_heads", c.kda.heads},
                   {"kda_head_dim", c.kda.head_dim},
                   {"conv_width", c.kda.conv_width},
                   {"mla_heads", c.mla.heads},
                   {"q_lora", c.mla.q_lora_rank},
                   {"kv_lora", c.mla.kv_lora_rank},
                   {"nope", c.mla.nope_dim},
                   {"value", c.mla.v_dim},
                   {"index_heads", c.indexer.heads},
                   {"index_head_dim", c.indexer.head_dim},
                   {"index_topk", c.indexer.topk_tokens},
                   {"kpool", c.indexer.kpool},
                   {"experts", c.moe.experts},
                   {"experts_per_token", c.moe.experts_per_token},
                   {"shared_experts", c.moe.shared_experts},
                   {"expert_width", c.moe.intermediate},
                   {"draft_layer", c.draft_layer},
                   {"vision_blocks", c.vision ? Json(c.vision->depth) : Json()}};
  return out;
}

Json totals_json(const TensorTotals& totals) {
  return Json::Object{{"tensors", totals.tensors}, {"fp8_matrices", totals.fp8_matrices}, {"parameters", totals.parameters}, {"bytes", totals.bytes}};
}

Json kinds_json(const Glm5NextTotals& totals) {
  Json::Object out;
  for (int kind = 0; kind < models::kTensorKinds; ++kind) {
    const auto which = static_cast<models::TensorKind>(kind);
    out.emplace_back(std::string(models::tensor_kind_name(which)), totals_json(totals.kind(which)));
  }
  return out;
}

Json layers_json(const Glm5NextConfig& c, const Glm5NextTotals& totals, const std::vector<models::FlopRow>& decode) {
  Json::Array out;
  for (size_t layer = 0; layer < totals.layers.size(); ++layer) {
    const bool draft = layer == static_cast<size_t>(c.layers);
    const TensorTotals sum = models::sum(totals.layers[layer]);
    out.push_back(Json::Object{{"layer", static_cast<int64_t>(layer)},
                               {"mixer", std::string(draft ? "dsa (draft)" : models::mixer_name(c.mixers[layer]))},
                               {"ffn", std::string(draft ? "moe" : models::ffn_name(c.ffns[layer]))},
                               {"indexer", std::string(draft ? "full" : models::indexer_name(c.indexers[layer]))},
                               {"parameters", sum.parameters},
                               {"bytes", sum.bytes},
                               {"decode_flops", models::flops_of_layer(c, decode, static_cast<int64_t>(layer))}});
  }
  return out;
}

double total_flops(const std::vector<models::FlopRow>& rows) {
  double sum = 0;
  for (const models::FlopRow& row : rows) sum += row.per_layer * static_cast<double>(row.layers);
  return sum;
}

Json flops_json(const std::vector<models::FlopRow>& rows) {
  Json::Array parts;
  for (const models::FlopRow& row : rows) {
    parts.push_back(Json::Object{{"part", std::string(row.part)}, {"per_layer", row.per_layer}, {"layers", row.layers}});
  }
  return Json::Object{{"per_token", total_flops(rows)}, {"parts", std::move(parts)}};
}

/// What the store of one sequence of `context` tokens reserves, by family.
Result<Json> reserved_json(const Glm5NextConfig& c, engine::EngineOptions options, int64_t context) {
  options.context_tokens = context;
  options.sequences = 1;
  const models::ModelOptions of_model{
      .precision = options.precision, .tentative_max = options.tentative_max, .draft = options.draft, .shards = {}, .groups = {}};
  LATHE_TRY(const models::Glm5NextShards shards, models::resolve_shards(c, {}, {}));
  models::ModelInfo info;
  info.block_tokens_multiple = c.indexer.kpool;
  const auto families = models::glm5_next_cache_families(c, shards, of_model);
  Json out = Json::Object{};
  int64_t total = 0;
  for (const cache::FamilyBytes& entry : cache::reserved_cache_bytes(families, engine::store_options(options, info))) {
    out.set(entry.family, entry.bytes);
    total += entry.bytes;
  }
  out.set("total", total);
  return out;
}

Json step_json(const models::StepBytes& step, int64_t batch) {
  return Json::Object{{"batch", batch},
                      {"fixed_weights", step.fixed_weights},
                      {"expert_weights", step.expert_weights},
                      {"kda_state", step.kda_state},
                      {"conv", step.conv},
                      {"attention", step.attention},
                      {"total", step.total()}};
}

const char* route_name(backend::Route route) {
  switch (route) {
    case backend::Route::kNative: return "native";
    case backend::Route::kComposition: return "composition";
    case backend::Route::kHostReference: return "host reference";
    case backend::Route::kUnplanned: return "unplanned";
  }
  return "";
}

/// One entry per distinct (op site, choice): layers that agree are counted together.
Json kernels_json(const backend::Dispatch& dispatch) {
  Json::Array out;
  std::vector<std::string> seen;
  for (const backend::OpSite* site : dispatch.sites()) {
    const std::string variant = site->variant != nullptr ? site->variant->name : site->composition != nullptr ? site->composition->name : "ref";
    const std::string key = fmt::format("{}|{}|{}|{}", site->name, variant, route_name(site->route), site->reason);
    const auto found = std::find(seen.begin(), seen.end(), key);
    if (found != seen.end()) {
      Json& entry = out[static_cast<size_t>(found - seen.begin())];
      entry.set("sites", entry.find("sites")->as_int() + 1);
      continue;
    }
    seen.push_back(key);
    out.push_back(
        Json::Object{{"site", site->name}, {"kernel", variant}, {"route", route_name(site->route)}, {"reason", site->reason}, {"sites", 1}});
  }
  return out;
}

Json engine_json(engine::Engine& engine) {
  const models::ModelInfo& info = engine.info();
  return Json::Object{
      {"device", engine.device().describe()},
      {"threads", engine.options().cpu.threads > 0 ? engine.options().cpu.threads : base::default_thread_count()},
      {"weight_bytes", info.weight_bytes},
      {"uploaded_bytes", info.uploaded_bytes},
      {"activation_bytes", info.activation_bytes},
      {"cache_bytes_reserved", engine.store().bytes()},
      {"fallback_sites", static_cast<int64_t>(std::count_if(engine.dispatch().sites().begin(), engine.dispatch().sites().end(),
                                                            [](const backend::OpSite* s) { return s->route != backend::Route::kNative; }))},
      {"kernels", kernels_json(engine.dispatch())}};
}

// The same facts as a page for people.

void table_row(std::string& out, const std::string& name, const std::vector<std::string>& cells) {
  out += fmt::format("  {:<34}", name);
  for (const std::string& cell : cells) out += fmt::format(" {:>20}", cell);
  out += '\n';
}

std::string cell(const Json& object, const char* key) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return "-";
  if (value->is_number()) return grouped(value->as_double());
  return value->is_string() ? value->as_string() : value->dump();
}

std::string page(const Json& all) {
  std::string out = "Dimensions\n";
  for (const auto& [key, value] : all.find("dimensions")->as_object()) table_row(out, key, {cell(*all.find("dimensions"), key.c_str())});
  out += "\nLayers\n";
  table_row(out, "layer", {"mixer", "ffn", "parameters", "bytes", "decode FLOP"});
  for (const Json& layer : all.find("layers")->as_array()) {
    table_row(out, cell(layer, "layer"),
              {cell(layer, "mixer"), cell(layer, "ffn"), cell(layer, "parameters"), cell(layer, "bytes"), cell(layer, "decode_flops")});
  }
  out += "\nWeights by kind\n";
  table_row(out, "kind", {"tensors", "parameters", "bytes"});
  for (const auto& [kind, totals] : all.find("kinds")->as_object())
    table_row(out, kind, {cell(totals, "tensors"), cell(totals, "parameters"), cell(totals, "bytes")});
  table_row(out, "total", {cell(*all.find("total"), "tensors"), cell(*all.find("total"), "parameters"), cell(*all.find("total"), "bytes")});
  out += fmt::format("\nFLOP per token at a context of {} tokens (head included)\n", cell(all, "context"));
  table_row(out, "decode", {cell(*all.find("flops_decode"), "per_token")});
  table_row(out, "prefill, mean over the prompt", {cell(*all.find("flops_prefill"), "per_token")});
  out += "\nBytes that a decode step must move\n";
  for (const auto& [key, value] : all.find("decode_step_bytes")->as_object()) table_row(out, key, {grouped(value.as_double())});
  out += fmt::format("\nCache bytes reserved for one sequence of {} tokens\n", cell(all, "context"));
  for (const auto& [key, value] : all.find("cache_bytes")->as_object()) table_row(out, key, {grouped(value.as_double())});
  const Json* engine = all.find("engine");
  if (engine == nullptr) return out;
  out += "\nEngine\n";
  for (const auto& [key, value] : engine->as_object()) {
    if (!value.is_array()) table_row(out, key, {cell(*engine, key.c_str())});
  }
  out += "\nKernels\n";
  for (const Json& kernel : engine->find("kernels")->as_array()) {
    out += fmt::format("  {:<26} {:<16} {:<14} x{:<4} {}\n", cell(kernel, "site"), cell(kernel, "kernel"), cell(kernel, "route"),
                       kernel.find("sites")->as_int(), cell(kernel, "reason"));
  }
  return out;
}

Json config_facts(const models::ParsedConfig& parsed, const Glm5NextTotals& totals, int64_t context, int64_t batch, bool exact) {
  const Glm5NextConfig& c = parsed.config;
  const models::CacheFormat format =
      exact ? models::CacheFormat{models::RowFormat::kF32, models::RowFormat::kF32, DType::kF32} : models::CacheFormat{.raw = DType::kF32};
  const auto decode = models::flop_rows(c, {.context = context});
  const auto prefill = models::flop_rows(c, {.context = context, .prefill = true});
  Json::Array warnings;
  for (const std::string& warning : parsed.warnings) warnings.push_back(warning);
  Json all = Json::Object{
      {"dimensions", dimensions_json(c)}, {"warnings", std::move(warnings)}, {"total", totals_json(totals.all())}, {"kinds", kinds_json(totals)}};
  all.set("layers", layers_json(c, totals, decode));
  all.set("context", context);
  all.set("flops_decode", flops_json(decode));
  all.set("flops_prefill", flops_json(prefill));
  all.set("decode_step_bytes", step_json(models::decode_step_bytes(c, totals, {.batch = batch, .context = context, .format = format}), batch));
  return all;
}

}  // namespace

Result<int> inspect_verb(const config::Settings& settings, const InspectOptions& options) {
  LATHE_TRY(engine::EngineOptions engine_settings, engine_options(settings));
  const std::string path = engine_settings.model;
  LATHE_TRY(const models::ParsedConfig parsed, models::read_glm5_next_config(path));
  const bool with_weights =
      base::is_directory(path) && (base::file_exists(path + "/model.safetensors") || base::file_exists(path + "/model.safetensors.index.json"));
  const int64_t context = std::min(settings.get_int("engine.context"), parsed.config.max_positions);
  const bool exact = engine_settings.precision == models::Precision::kExact;
  Json all;
  if (with_weights) {
    engine_settings.context_tokens = context;
    engine_settings.sequences = static_cast<int32_t>(options.batch);
    LATHE_TRY(const std::unique_ptr<engine::Engine> engine, engine::Engine::create(engine_settings));
    LATHE_TRY(weights::Checkpoint checkpoint, weights::Checkpoint::open(path));
    LATHE_TRY(const models::Glm5NextWeights weights, models::bind_glm5_next(parsed.config, checkpoint));
    all = config_facts(parsed, models::totals_from_weights(parsed.config, weights), context, options.batch, exact);
    all.set("engine", engine_json(*engine));
  } else {
    all = config_facts(parsed, models::totals_from_config(parsed.config), context, options.batch, exact);
  }
  LATHE_TRY(Json reserved, reserved_json(parsed.config, engine_settings, context));
  all.set("cache_bytes", std::move(reserved));
  for (const std::string& warning : parsed.warnings) base::log(base::LogLevel::kWarning, "{}", warning);
  print(options.json ? all.dump({.key_separator = ": ", .indent = 1}) + "\n" : page(all));
  return 0;
}

}  // namespace lathe::apps
