// Watches a glm5_next model in exact mode: what enters its matrices (calibrate.h).

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "backend/cpu/cpu_device.h"
#include "models/calibrate.h"
#include "models/glm5_next_quantize.h"
#include "models/glm5_next_table.h"
#include "models/glm5_next_text.h"
#include "models/random_values.h"
#include "ops/moe.h"

namespace lathe::models {
namespace {

/// Sums of the rows seen so far.
struct Sums {
  int64_t rows = 0;
  std::vector<double> square;
  double amax_square = 0;

  void add(const float* x) {
    float amax = 0;
    for (size_t c = 0; c < square.size(); ++c) {
      square[c] += static_cast<double>(x[c]) * static_cast<double>(x[c]);
      amax = std::max(amax, std::fabs(x[c]));
    }
    amax_square += static_cast<double>(amax) * static_cast<double>(amax);
    ++rows;
  }
  void add(const View& x) {
    for (int64_t t = 0; t < x.dim(0); ++t) add(x.f32() + t * x.step(0));
  }
  void add(const Sums& other) {
    for (size_t c = 0; c < square.size(); ++c) square[c] += other.square[c];
    amax_square += other.amax_square;
    rows += other.rows;
  }
};

/// Which statistics belong to which matrix: by its values' address in the loaded model, and by its name.
class Places final : public TensorVisitor {
 public:
  void matrix(TensorSpec spec, MatrixView& place) override {
    if (!spec.int8_default || !place.present()) return;
    const bool inner = spec.kind == TensorKind::kExpert && spec.name.find(".down_proj") != std::string::npos;
    size_t index = sums.size();
    if (spec.kind == TensorKind::kExpert && !inner) {
      const auto [found, fresh] = expert_input_.try_emplace(spec.layer, index);
      index = found->second;
    }
    if (index == sums.size()) sums.push_back({.square = std::vector<double>(static_cast<size_t>(place.cols()))});
    if (inner) of_layer[spec.layer].push_back(index);
    at[place.values.data] = index;
    of[spec.name] = index;
  }
  void vector(TensorSpec, View&) override {}

  std::vector<Sums> sums;
  std::unordered_map<const void*, size_t> at;
  std::map<std::string, size_t> of;
  std::map<int32_t, std::vector<size_t>> of_layer;  ///< inner activations of a layer's experts

 private:
  std::map<int32_t, size_t> expert_input_;
};

class Watcher final : public backend::OpObserver {
 public:
  explicit Watcher(Places& places) : places_(places) {}

  void before(backend::OpCall& call, backend::Device& device) override {
    switch (call.site->op) {
      case ops::OpId::kMatmul: {
        const auto& p = *static_cast<const ops::MatmulParams*>(call.params);
        for (int32_t i = 0; i < p.part_count; ++i) see(p.parts[static_cast<size_t>(i)].weight, p.x);
        return;
      }
      case ops::OpId::kGateUp: {
        const auto& p = *static_cast<const ops::GateUpParams*>(call.params);
        see(p.gate, p.x), see(p.up, p.x);
        return;
      }
      case ops::OpId::kMoe: return see_experts(*static_cast<const ops::MoeParams*>(call.params), device);
      default: return;
    }
  }

 private:
  Sums* sums_of(const MatrixView& weight) {
    const auto found = places_.at.find(weight.values.data);
    return found == places_.at.end() ? nullptr : &places_.sums[found->second];
  }
  void see(const MatrixView& weight, const View& x) {
    if (Sums* const sums = sums_of(weight)) sums->add(x);
  }

  void see_experts(const ops::MoeParams& p, backend::Device& device) {
    if (p.gate.count == 0) return;
    see(p.gate.items[0], p.x);  // all experts of the layer share it
    for (int32_t e = 0; e < p.gate.count; ++e) {
      Sums* const sums = sums_of(p.down.items[e]);
      const int64_t rows = gather(p, p.expert_begin + e);
      if (sums == nullptr || rows == 0) continue;
      inner_.resize(static_cast<size_t>(rows * p.gate.items[e].rows()));
      const View inner = tensor::make_view(inner_.data(), DType::kF32, {rows, p.gate.items[e].rows()});
      const ops::GateUpParams once_more{.x = tensor::make_view(rows_.data(), DType::kF32, {rows, p.x.dim(1)}),
                                        .gate = p.gate.items[e],
                                        .up = p.up.items[e],
                                        .gate_bias = {},
                                        .up_bias = {},
                                        .out = inner,
                                        .limit = p.limit,
                                        .compute = p.compute};
      const auto table = device.table();
      const auto kernel = std::find_if(table.begin(), table.end(), [&](const ops::Variant& v) {
        return v.op == ops::OpId::kGateUp && (v.supports == nullptr || v.supports(&once_more));
      });
      if (kernel == table.end()) continue;  // the layer's own statistics stand in
      device.launch(*kernel, &once_more, nullptr);
      device.synchronise();
      sums->add(inner);
    }
  }
  /// Rows of x that the expert gets, into rows_.
  int64_t gather(const ops::MoeParams& p, int32_t expert) {
    rows_.clear();
    int64_t rows = 0;
    for (int64_t t = 0; t < p.x.dim(0); ++t) {
      const int32_t* const ids = p.ids.i32() + t * p.ids.step(0);
      if (std::find(ids, ids + p.ids.dim(1), expert) == ids + p.ids.dim(1)) continue;
      const float* const x = p.x.f32() + t * p.x.step(0);
      rows_.insert(rows_.end(), x, x + p.x.dim(1));
      ++rows;
    }
    return rows;
  }

  Places& places_;
  std::vector<float> rows_, inner_;
};

struct Reading {
  std::span<const TokenId> ids;
  int64_t batch_tokens = 0;
  CalibrateProgress progress;
};

/// The ids as one sequence, in steps; the draft layer reads them too.
Result<void> read_ids(Model& model, cache::Store& store, const Reading& reading) {
  const std::span<const TokenId> ids = reading.ids;
  const auto total = static_cast<int64_t>(ids.size());
  LATHE_TRY(const SequenceId sequence, store.open());
  for (int64_t at = 0; at < total;) {
    const int64_t count = std::min(reading.batch_tokens, total - at);
    LATHE_TRY_VOID(store.append(sequence, count, 0));
    const StepItem item{.sequence = sequence,
                        .kind = ItemKind::kPrefill,
                        .tokens = ids.subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                        .rows = {},
                        .logits = Logits::kNone,
                        .at = {}};
    LATHE_TRY(const StepResult result, model.step({&item, 1}, store));
    const int64_t drafted = std::min(count, total - at - 1);  // the last position has no next token
    if (model.info().has_draft && drafted > 0) {
      const DraftItem draft{.sequence = sequence,
                            .start = at,
                            .tokens = ids.subspan(static_cast<size_t>(at) + 1, static_cast<size_t>(drafted)),
                            .rows = {},
                            .logits = Logits::kNone};
      const auto done = model.draft_prefill({&draft, 1}, result.hidden, store);
      if (!done) return base::forward_error(done);
    }
    store.commit(sequence, 0);
    at += count;
    if (!reading.progress(at, total)) return err(Code::kCancelled, "stopped after {} of {} tokens of the calibration", at, total);
  }
  store.close(sequence);
  return {};
}

Calibration finished(Places& places, std::span<const TokenId> ids) {
  for (const auto& [layer, experts] : places.of_layer) {
    Sums all{.square = std::vector<double>(places.sums[experts.front()].square.size())};
    for (const size_t index : experts) all.add(places.sums[index]);
    for (const size_t index : experts) {
      if (places.sums[index].rows < kFewRows) places.sums[index] = all;
    }
  }
  Calibration out;
  for (const Sums& sums : places.sums) {
    ChannelStats stats{.rows = sums.rows, .square = std::vector<float>(sums.square.size())};
    const auto rows = static_cast<double>(std::max<int64_t>(sums.rows, 1));
    const double mean = std::accumulate(sums.square.begin(), sums.square.end(), 0.0) / static_cast<double>(std::max<size_t>(sums.square.size(), 1));
    for (size_t c = 0; c < stats.square.size(); ++c) stats.square[c] = static_cast<float>((sums.square[c] + mean / 100) / rows);
    stats.amax_square = sums.amax_square / rows;
    out.stats.push_back(std::move(stats));
  }
  out.of = std::move(places.of);
  out.tokens = static_cast<int64_t>(ids.size());
  out.fingerprint = random_key(0, std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size_bytes()));
  return out;
}

}  // namespace

const ChannelStats* Calibration::find(const std::string& name) const {
  const auto found = of.find(name);
  return found == of.end() || stats[found->second].rows == 0 ? nullptr : &stats[found->second];
}

Result<Calibration> calibrate_glm5_next(const std::string& directory, std::span<const TokenId> ids, const CalibrateOptions& options,
                                        CalibrateProgress progress) {
  if (ids.empty()) return err(Code::kInvalidArgument, "the text for calibration has no tokens, expected at least one");
  LATHE_TRY(const auto device, backend::make_cpu_device({.threads = options.threads, .isa = ""}));
  LATHE_TRY(const auto dispatch, backend::Dispatch::create(*device, {.host_reference = backend::reference_table()}));
  const auto tokens = static_cast<int64_t>(ids.size());
  LATHE_TRY(
      const auto loaded,
      Glm5NextModel::load(
          directory, *dispatch,
          {.precision = Precision::kExact, .max_batch_tokens = std::min(options.batch_tokens, tokens), .vision = false, .shards = {}, .groups = {}}));
  auto& model = static_cast<Glm5NextModel&>(*loaded);
  Places places;
  Glm5NextWeights weights = model.weights();  // the walk wants places it could write to
  visit_tensors(model.config(), places, weights);
  constexpr int64_t kBlock = 64;
  const int64_t multiple = std::max<int64_t>(model.info().block_tokens_multiple, 1);
  const int64_t block = (kBlock + multiple - 1) / multiple * multiple;
  LATHE_TRY(const auto store,
            cache::Store::create(*device, model.cache_families(), {.block_tokens = block, .blocks = (tokens + block - 1) / block, .slots = 1}));
  Watcher watcher(places);
  dispatch->set_observer(&watcher);
  const Result<void> done = read_ids(model, *store, {.ids = ids, .batch_tokens = std::min(options.batch_tokens, tokens), .progress = progress});
  dispatch->set_observer(nullptr);
  if (!done) return base::forward_error(done, directory);
  return finished(places, ids);
}

}  // namespace lathe::models
