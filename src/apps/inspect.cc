#include "apps/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "backend/cpu/thread_choice.h"
#include "base/log.h"
#include "models/model_description.h"
#include "models/registry.h"

namespace lathe::apps {
namespace {

using config::Json;

/// 12,345,678
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

/// What the store of one sequence reserves, by family.
Json reserved_json(const models::ModelDescription& model, engine::EngineOptions options) {
  options.context_tokens = model.context;
  options.sequences = 1;
  Json out = Json::Object{};
  int64_t total = 0;
  for (const cache::FamilyBytes& entry : cache::reserved_cache_bytes(model.cache_families, engine::store_options(options, model.info))) {
    out.set(entry.family, entry.bytes);
    total += entry.bytes;
  }
  out.set("total", total);
  return out;
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

/// The machine's processors, those that may be used, and where the threads go.
Json topology_json(const backend::ThreadChoice& choice) {
  const base::Topology& all = base::system_topology();
  std::set<int> cores, packages, nodes;
  for (const base::Processor& p : all.processors) cores.insert(p.core), packages.insert(p.package), nodes.insert(p.node);
  Json::Array places, measured;
  for (const base::WorkerPlace& place : choice.plan.workers) {
    places.push_back(Json::Object{{"node", place.node}, {"processors", place.cpus.empty() ? "any" : base::cpu_list_text(place.cpus)}});
  }
  for (const backend::BandwidthSample& sample : choice.measured) {
    measured.push_back(Json::Object{{"threads", sample.threads}, {"bytes_per_second", sample.bytes_per_second}});
  }
  const auto count = [](const std::set<int>& set) { return static_cast<int64_t>(set.size()); };
  return Json::Object{{"processors", static_cast<int64_t>(all.processors.size())},
                      {"cores", count(cores)},
                      {"packages", count(packages)},
                      {"nodes", count(nodes)},
                      {"quota", all.quota > 0 ? Json(all.quota) : Json()},
                      {"usable_processors", choice.plan.processors},
                      {"usable_cores", choice.plan.cores},
                      {"bandwidth", std::move(measured)},
                      {"places", std::move(places)}};
}

/// Instruction sets and threads that a run with these options would use. Errors: as make_cpu_device.
Result<Json> machine_json(const backend::CpuOptions& cpu) {
  LATHE_TRY(const backend::IsaLevel chosen, backend::chosen_isa(cpu));
  Json::Array available;
  for (const backend::IsaLevel level : backend::available_isa_levels()) available.push_back(backend::isa_name(level));
  LATHE_TRY(const backend::ThreadChoice threads, backend::choose_threads(cpu));
  return Json(Json::Object{{"isa", backend::isa_name(chosen)},
                           {"isa_available", std::move(available)},
                           {"threads", threads.plan.threads},
                           {"threads_reason", threads.plan.reason},
                           {"topology", topology_json(threads)}});
}

/// The model as it would run: its kernels planned, with weights where there are some. No cache is reserved, so the context need not fit this machine.
Result<Json> engine_json(const engine::EngineOptions& options, const models::ModelOptions& of_model) {
  LATHE_TRY(const std::unique_ptr<backend::Device> device, backend::make_cpu_device(options.cpu));
  LATHE_TRY(const std::unique_ptr<backend::Dispatch> dispatch,
            backend::Dispatch::create(
                *device, {.no_fallback = options.no_fallback, .kernels = options.kernels, .host_reference = backend::reference_table()}));
  LATHE_TRY(const std::unique_ptr<models::Model> model, models::load_model(options.model, *dispatch, of_model));
  const models::ModelInfo& info = model->info();
  const auto fallbacks = std::count_if(dispatch->sites().begin(), dispatch->sites().end(),
                                       [](const backend::OpSite* site) { return site->route != backend::Route::kNative; });
  return Json(Json::Object{{"device", device->describe()},
                           {"weight_bytes", info.weight_bytes},
                           {"uploaded_bytes", info.uploaded_bytes},
                           {"activation_bytes", info.activation_bytes},
                           {"fallback_sites", static_cast<int64_t>(fallbacks)},
                           {"kernels", kernels_json(*dispatch)}});
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

void byte_table(std::string& out, const Json& section, std::initializer_list<const char*> without) {
  for (const auto& [key, value] : section.as_object()) {
    if (std::find(without.begin(), without.end(), key) == without.end()) table_row(out, key, {grouped(value.as_double())});
  }
}

void append_model(std::string& out, const Json& all) {
  out += "Dimensions\n";
  for (const auto& [key, value] : all.find("dimensions")->as_object()) table_row(out, key, {cell(*all.find("dimensions"), key.c_str())});
  out += fmt::format("\nQuantisation: {}\n\nLayers\n", all.find("quantisation")->as_string());
  table_row(out, "layer", {"mixer", "ffn", "parameters", "bytes", "decode FLOP"});
  for (const Json& layer : all.find("layers")->as_array()) {
    table_row(out, cell(layer, "layer"),
              {cell(layer, "mixer"), cell(layer, "ffn"), cell(layer, "parameters"), cell(layer, "bytes"), cell(layer, "decode_flops")});
  }
  out += "\nWeights by kind\n";
  const auto totals_row = [&](const std::string& name, const Json& totals) {
    table_row(
        out, name,
        {cell(totals, "tensors"), cell(totals, "parameters"), cell(totals, "bytes"), cell(totals, "fp8_matrices"), cell(totals, "int8_matrices")});
  };
  table_row(out, "kind", {"tensors", "parameters", "bytes", "fp8 matrices", "int8 matrices"});
  for (const auto& [kind, totals] : all.find("kinds")->as_object()) totals_row(kind, totals);
  totals_row("total", *all.find("total"));
}

void append_work(std::string& out, const Json& all) {
  const std::string context = cell(all, "context");
  const Json& decode = *all.find("decode_step_bytes");
  const Json& prefill = *all.find("prefill_token_bytes");
  out += fmt::format("\nFLOP per token at a context of {} tokens\n", context);
  table_row(out, "decode, head included", {cell(*all.find("flops_decode"), "per_token")});
  table_row(out, "prefill, mean over the prompt", {cell(*all.find("flops_prefill"), "per_token")});
  out += fmt::format("\nBytes that a decode step of {} sequences must move, each at a context of {} tokens\n", cell(decode, "batch"), context);
  byte_table(out, decode, {"batch"});
  table_row(out, "per token", {grouped(decode.find("total")->as_double() / decode.find("batch")->as_double())});
  out += fmt::format("\nBytes per token of a prompt of {} tokens that is read in chunks of {} (--batch-tokens)\n", context, cell(prefill, "chunk"));
  byte_table(out, prefill, {"chunk"});
  out += fmt::format("\nCache bytes reserved for one sequence of {} tokens: {}\n", context, cell(all, "cache_formats"));
  byte_table(out, *all.find("cache_bytes"), {});
}

void append_machine(std::string& out, const Json& all) {
  const Json& machine = *all.find("machine");
  std::vector<std::string> available;
  for (const Json& name : machine.find("isa_available")->as_array()) available.push_back(name.as_string());
  out += "\nThis machine\n";
  table_row(out, "instruction set", {cell(machine, "isa")});
  out += fmt::format("  {:<34} {}\n", "instruction sets available", fmt::join(available, ", "));
  table_row(out, "threads", {cell(machine, "threads")});
  out += fmt::format("  {:<34} {}\n", "", cell(machine, "threads_reason"));
  const Json& topology = *machine.find("topology");
  out += fmt::format("  {:<34} {} processors, {} cores, {} packages, {} memory nodes; usable {} processors of {} cores\n", "topology",
                     cell(topology, "processors"), cell(topology, "cores"), cell(topology, "packages"), cell(topology, "nodes"),
                     cell(topology, "usable_processors"), cell(topology, "usable_cores"));
  const Json& engine = *all.find("engine");
  for (const auto& [key, value] : engine.as_object()) {
    if (value.is_number()) table_row(out, key, {cell(engine, key.c_str())});
  }
  out += all.find("weights")->as_bool() ? "\nKernels\n" : "\nKernels (planned from the config: there are no weights)\n";
  for (const Json& kernel : engine.find("kernels")->as_array()) {
    out += fmt::format("  {:<26} {:<16} {:<14} x{:<4} {}\n", cell(kernel, "site"), cell(kernel, "kernel"), cell(kernel, "route"),
                       kernel.find("sites")->as_int(), cell(kernel, "reason"));
  }
}

std::string page(const Json& all) {
  std::string out;
  append_model(out, all);
  append_work(out, all);
  append_machine(out, all);
  return out;
}

}  // namespace

Result<Json> inspect_facts(const engine::EngineOptions& engine, int64_t batch) {
  LATHE_TRY(Json machine, machine_json(engine.cpu));
  models::ModelOptions of_model = engine::model_options(engine);
  LATHE_TRY(models::ModelDescription model, models::describe_model(engine.model, {.context = engine.context_tokens,
                                                                                  .context_at_most = engine.context_is_default,
                                                                                  .batch = batch,
                                                                                  .chunk_tokens = engine.batch_tokens,
                                                                                  .model = of_model}));
  of_model.weights = model.weights;
  Json::Array warnings;
  for (const std::string& warning : model.warnings) warnings.push_back(warning);
  Json all = std::move(model.facts);
  all.set("warnings", std::move(warnings));
  all.set("context", model.context);
  all.set("weights", model.weights);
  all.set("cache_bytes", reserved_json(model, engine));
  all.set("machine", std::move(machine));
  LATHE_TRY(Json planned, engine_json(engine, of_model));
  all.set("engine", std::move(planned));
  return all;
}

Result<int> inspect_verb(const config::Settings& settings, const InspectOptions& options) {
  LATHE_TRY(const engine::EngineOptions engine, engine_options(settings));
  LATHE_TRY(const Json all, inspect_facts(engine, options.batch));
  print(options.json ? all.dump({.key_separator = ": ", .indent = 1}) + "\n" : page(all));
  return 0;
}

}  // namespace lathe::apps
