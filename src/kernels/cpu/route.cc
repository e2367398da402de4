// route, one kernel for all levels: a few hundred scores a token, nothing to gain from wide registers.
//
// Idea    scores and biased scores of a token stay in the worker's scratch; the k best are found by k passes over the biased ones, which is cheaper than
//         sorting for the k of a mixture (2 to 8) and needs no memory.
// Floor   the exponentials of the logits.
#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "ops/moe.h"

namespace lathe::kernels::cpu {
namespace {

/// Larger first; NaN below every number.
bool better(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(b) && !std::isnan(a);
  return a > b;
}

/// Scratch of one worker: [E] each, groups first E of them.
struct Scores {
  float* plain;
  float* biased;
  float* group;
  uint8_t* open;  ///< whether an expert may still be chosen
};

/// Best open entry of `value`, the lowest on ties; −1 if none is open.
int64_t best_open(const float* value, const uint8_t* open, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (open[i] != 0 && (best < 0 || better(value[i], value[best]))) best = i;
  }
  return best;
}

/// Closes the experts of all but the best groups.
void keep_groups(const ops::RouteParams& p, const Scores& s, int64_t experts) {
  const int64_t size = experts / p.groups;
  for (int64_t g = 0; g < p.groups; ++g) {
    std::fill_n(s.open, experts, uint8_t{0});
    std::fill_n(s.open + g * size, size, uint8_t{1});
    const int64_t first = best_open(s.biased, s.open, experts);
    s.open[first] = 0;
    s.group[g] = s.biased[first] + s.biased[best_open(s.biased, s.open, experts)];
  }
  std::fill_n(s.open, p.groups, uint8_t{1});
  for (int64_t i = 0; i < p.groups_kept; ++i) s.open[best_open(s.group, s.open, p.groups)] = 0;
  // What is closed now was kept: spread from the last group down, so that no flag is overwritten before it is read.
  for (int64_t g = p.groups - 1; g >= 0; --g) std::fill_n(s.open + g * size, size, static_cast<uint8_t>(1 - s.open[g]));
}

void route_row(const ops::RouteParams& p, const Scores& s, int64_t t) {
  const int64_t experts = p.logits.dim(1), chosen = p.ids.dim(1);
  const float* const logits = p.logits.f32() + t * p.logits.step(0);
  int32_t* const ids = p.ids.i32() + t * p.ids.step(0);
  float* const weights = p.weights.f32() + t * p.weights.step(0);
  for (int64_t e = 0; e < experts; ++e) {
    s.plain[e] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logits[e]))));
    s.biased[e] = s.plain[e] + vector_at(p.bias, e);
  }
  if (p.groups > 1) {
    keep_groups(p, s, experts);
  } else {
    std::fill_n(s.open, experts, uint8_t{1});
  }
  for (int64_t i = 0; i < chosen; ++i) {
    const int64_t e = best_open(s.biased, s.open, experts);
    s.open[e] = 0;
    int64_t at = i;
    for (; at > 0 && ids[at - 1] > e; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
  }
  double sum = 1e-20;
  for (int64_t i = 0; i < chosen; ++i) sum += static_cast<double>(s.plain[ids[i]]);
  for (int64_t i = 0; i < chosen; ++i) {
    const auto weight = static_cast<double>(s.plain[ids[i]]);
    weights[i] = static_cast<float>((p.normalise ? weight / sum : weight) * static_cast<double>(p.scale));
  }
}

}  // namespace

void LATHE_KERNEL(route_scalar)(const void* params, const ops::LaunchContext& context) {
  const auto& p = *static_cast<const ops::RouteParams*>(params);
  const int64_t experts = p.logits.dim(1), chosen = p.ids.dim(1);
  const int64_t row_bytes = round_up(experts * 4, 64);
  for_pieces(context, p.logits.dim(0), experts * (chosen + 16), [&](int64_t begin, int64_t end, int worker) {
    char* const memory = static_cast<char*>(context.scratch->local(worker, 4 * row_bytes));
    if (memory == nullptr) return;
    const Scores s{.plain = reinterpret_cast<float*>(memory),
                   .biased = reinterpret_cast<float*>(memory + row_bytes),
                   .group = reinterpret_cast<float*>(memory + 2 * row_bytes),
                   .open = reinterpret_cast<uint8_t*>(memory + 3 * row_bytes)};
    for (int64_t t = begin; t < end; ++t) route_row(p, s, t);
    const int64_t scores = (end - begin) * experts, kept = (end - begin) * chosen;
    LATHE_COUNT(context, kBytesRead, scores * 4);
    LATHE_COUNT(context, kBytesWritten, kept * 8);
    LATHE_COUNT(context, kFlops, scores + 2 * kept);
    LATHE_COUNT(context, kExponentials, scores);
    LATHE_COUNT(context, kDivisions, scores + (p.normalise ? kept : 0));
    LATHE_COUNT(context, kRowsNormalised, p.normalise ? end - begin : 0);
  });
  const int64_t bias_bytes = experts * static_cast<int64_t>(tensor::dtype_bytes(p.bias.dtype));
  LATHE_COUNT(context, kBytesRead, bias_bytes);
  LATHE_COUNT(context, kWeightBytes, bias_bytes);
}

}  // namespace lathe::kernels::cpu
