#include "feedback/shadow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/reference.h"
#include "ops/mla.h"
#include "ops/moe.h"

namespace lathe::feedback {
namespace {

/// Counts in-place views and, in replace mode, points outputs to fresh memory.
class Outputs final : public ops::ViewVisitor {
 public:
  struct Pair {
    View original, replacement;
    std::unique_ptr<std::vector<char>> memory;
  };
  void view(const char*, ops::Role role, View& view) override {
    if (role == ops::Role::kInOut) in_place = true;
    if (role != ops::Role::kOut) return;
    for (const View& input : inputs) {
      if (overlap(input, view)) in_place = true;
    }
    Pair pair{.original = view, .replacement = view, .memory = std::make_unique<std::vector<char>>(static_cast<size_t>(view.extent_bytes()))};
    pair.replacement.data = pair.memory->data();
    view = pair.replacement;
    pairs.push_back(std::move(pair));
  }
  static bool overlap(const View& a, const View& b) {
    const auto* const x = static_cast<const char*>(a.data);
    const auto* const y = static_cast<const char*>(b.data);
    return x < y + b.extent_bytes() && y < x + a.extent_bytes();
  }
  std::vector<View> inputs;
  std::vector<Pair> pairs;
  bool in_place = false;
};

/// Lists inputs, so that an output over one of them is noticed.
class Inputs final : public ops::ViewVisitor {
 public:
  void view(const char*, ops::Role role, View& view) override {
    if (role == ops::Role::kIn) inputs.push_back(view);
  }
  std::vector<View> inputs;
};

template <class Visit>
void for_each_offset(const View& view, Visit visit) {
  std::array<int64_t, tensor::kMaxRank> index{};
  const int64_t count = view.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis) offset += index[static_cast<size_t>(axis)] * view.step(axis);
    visit(offset);
    for (int axis = view.rank - 1; axis >= 0 && ++index[static_cast<size_t>(axis)] == view.dim(axis); --axis) index[static_cast<size_t>(axis)] = 0;
  }
}

double difference(const View& got, const View& want) {
  double largest = 0;
  double worst = 0;
  for_each_offset(want, [&](int64_t offset) {
    const auto a = static_cast<double>(tensor::load_as_float(got.dtype, got.data, offset));
    const auto b = static_cast<double>(tensor::load_as_float(want.dtype, want.data, offset));
    largest = std::max(largest, std::fabs(b));
    worst = std::max(worst, std::isnan(a) || std::isnan(b) ? (std::isnan(a) && std::isnan(b) ? 0.0 : 1e30) : std::fabs(a - b));
  });
  return worst == 0 ? 0 : worst / std::max(largest, 1e-30);
}

}  // namespace

Result<void> ShadowObserver::run_reference(ops::OpId op, const void* params) {
  context_.run(kernels::ref::reference_of(op), params, nullptr);
  return context_.take_error();
}

Result<double> ShadowObserver::compare_selection(const void* params) {
  auto p = *static_cast<const ops::IndexSelectParams*>(params);
  const View got = p.selection;
  int64_t most = 0;  // pools of the longest row
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    const int64_t rows = p.batch.begin.i32()[s + 1] - p.batch.begin.i32()[s];
    most = std::max<int64_t>(most, (p.batch.start.i32()[s] + rows) / p.kpool);
  }
  if (most == 0 || got.dim(0) == 0) return 0;
  std::vector<int32_t> chosen(static_cast<size_t>(got.dim(0) * got.dim(1)));
  std::vector<float> scores(static_cast<size_t>(got.dim(0) * most));
  p.selection = tensor::make_view(chosen.data(), DType::kI32, {got.dim(0), got.dim(1)});
  p.scores = tensor::make_view(scores.data(), DType::kF32, {got.dim(0), most});
  LATHE_TRY_VOID(run_reference(ops::OpId::kIndexSelect, &p));
  int64_t wrong = 0;
  for (int64_t t = 0; t < got.dim(0); ++t) {
    const int32_t* const ours = got.i32() + t * got.step(0);
    const int32_t* const theirs = chosen.data() + t * got.dim(1);
    const float* const score = scores.data() + t * most;
    bool bad = false;
    float lowest = std::numeric_limits<float>::infinity();  // of the reference's choice
    float largest = 0;
    for (int64_t i = 0; i < got.dim(1) && theirs[i] >= 0; ++i) {
      lowest = std::min(lowest, score[theirs[i]]);
      largest = std::max(largest, std::fabs(score[theirs[i]]));
    }
    for (int64_t i = 0; i < got.dim(1); ++i) {
      bad = bad || (ours[i] >= 0) != (theirs[i] >= 0) || (i > 0 && ours[i] >= 0 && ours[i] <= ours[i - 1]) || ours[i] >= most;
      bad = bad || (ours[i] >= 0 && ours[i] < most && score[ours[i]] < lowest - static_cast<float>(kNearTie) * largest);
    }
    wrong += bad ? 1 : 0;
  }
  return static_cast<double>(wrong) / static_cast<double>(got.dim(0));
}

Result<double> ShadowObserver::compare_route(const void* params) {
  auto p = *static_cast<const ops::RouteParams*>(params);
  const View got_ids = p.ids;
  const View got_weights = p.weights;
  const int64_t tokens = got_ids.dim(0);
  const int64_t k = got_ids.dim(1);
  std::vector<int32_t> ids(static_cast<size_t>(tokens * k));
  std::vector<float> weights(static_cast<size_t>(tokens * k));
  if (tokens == 0) return 0;
  p.ids = tensor::make_view(ids.data(), DType::kI32, {tokens, k});
  p.weights = tensor::make_view(weights.data(), DType::kF32, {tokens, k});
  LATHE_TRY_VOID(run_reference(ops::OpId::kRoute, &p));
  double worst = 0;
  const auto biased = [&](int64_t t, int32_t e) {
    return 1.0 / (1.0 + std::exp(-static_cast<double>(p.logits.f32()[t * p.logits.step(0) + e]))) +
           static_cast<double>(tensor::load_as_float(p.bias.dtype, p.bias.data, e));
  };
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t* const ours = got_ids.i32() + t * got_ids.step(0);
    const int32_t* const theirs = ids.data() + t * k;
    for (int64_t i = 0; i < k; ++i) {
      // With groups a choice may turn as a whole; otherwise expert by expert.
      const bool tie = ours[i] != theirs[i] && std::fabs(biased(t, ours[i]) - biased(t, theirs[i])) < kNearTie;
      const double difference = std::fabs(static_cast<double>(got_weights.f32()[t * got_weights.step(0) + i]) -
                                          static_cast<double>(weights[static_cast<size_t>(t * k + i)]));
      if (ours[i] == theirs[i]) worst = std::max(worst, difference / std::max(1e-30, static_cast<double>(p.scale)));
      if (ours[i] != theirs[i] && !tie) worst = 1;
    }
  }
  return worst;
}

Result<double> ShadowObserver::compare(const ops::OpInfo& info, const void* params) {
  if (info.id == ops::OpId::kIndexSelect) return compare_selection(params);
  if (info.id == ops::OpId::kRoute) return compare_route(params);
  std::vector<std::max_align_t> copy(info.params_bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(copy.data(), params, info.params_bytes);
  Inputs inputs;
  info.visit(copy.data(), inputs);
  Outputs outputs;
  outputs.inputs = std::move(inputs.inputs);
  info.visit(copy.data(), outputs);
  if (outputs.in_place) return -1;
  LATHE_TRY_VOID(run_reference(info.id, copy.data()));
  double worst = 0;
  for (const Outputs::Pair& pair : outputs.pairs) worst = std::max(worst, difference(pair.original, pair.replacement));
  return worst;
}

void ShadowObserver::after(backend::OpCall& call, backend::Device&) {
  const void* const on_host = mirror_.map(call);
  if (on_host == nullptr) return;
  const Result<double> worst = compare(*call.info, on_host);
  if (!worst) {
    if (status_) status_ = base::forward_error(worst, "the reference");
    return;
  }
  if (*worst < 0) return;
  Finding& finding = findings_[static_cast<size_t>(call.info->id)];
  ++finding.calls;
  if (*worst >= finding.worst) {
    finding.worst = *worst;
    finding.where = fmt::format("{} layer {}", call.site->name, call.site->layer);
  }
}

}  // namespace lathe::feedback
