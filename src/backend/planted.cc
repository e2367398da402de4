#include "backend/planted.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "kernels/ref/reference.h"
#include "ops/mla.h"
#include "ops/moe.h"

namespace lathe::backend {
namespace {

using kernels::ref::run_reference;

/// The newest raw key of every sequence is lost: pools that end in a later step are wrong.
void run_pool_tail(const void* params, const ops::LaunchContext& context) {
  run_reference(ops::OpId::kIndexKeys, params, context);
  const auto& p = *static_cast<const ops::IndexKeysParams*>(params);
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    const int32_t rows = p.batch.begin.i32()[s + 1] - p.batch.begin.i32()[s];
    if (rows == 0) continue;
    const int64_t row = (p.batch.start.i32()[s] + rows - 1) % p.ring.dim(1);
    float* const key = p.ring.f32() + p.slot.i32()[s] * p.ring.step(0) + row * p.ring.step(1);
    std::fill_n(key, p.ring.dim(3), 0.0f);
  }
}

/// The last chosen pool of every row is not attended to.
void run_dropped_pool(const void* params, const ops::LaunchContext& context) {
  run_reference(ops::OpId::kIndexSelect, params, context);
  const View& selection = static_cast<const ops::IndexSelectParams*>(params)->selection;
  for (int64_t t = 0; t < selection.dim(0); ++t) {
    int32_t* const row = selection.i32() + t * selection.step(0);
    int64_t count = 0;
    while (count < selection.dim(1) && row[count] >= 0) ++count;
    if (count > 0) row[count - 1] = -1;
  }
}

/// The first two experts have each other's gate matrix.
void run_swapped_expert(const void* params, const ops::LaunchContext& context) {
  ops::MoeParams p = *static_cast<const ops::MoeParams*>(params);
  std::vector<MatrixView> gate(p.gate.items, p.gate.items + p.gate.count);
  if (gate.size() > 1) std::swap(gate[0], gate[1]);
  p.gate.items = gate.data();
  run_reference(ops::OpId::kMoe, &p, context);
}

}  // namespace

bool planted(const char* name) {
  const char* given = std::getenv("LATHE_PLANT");
  return given != nullptr && std::string_view(given) == name;
}

std::vector<ops::Variant> with_planted_faults(std::vector<ops::Variant> table) {
  const ops::Variant faults[] = {
      {ops::OpId::kIndexKeys, "planted", [](const void*) { return planted("pool_tail"); }, run_pool_tail, nullptr},
      {ops::OpId::kIndexSelect, "planted", [](const void*) { return planted("dropped_pool"); }, run_dropped_pool, nullptr},
      {ops::OpId::kMoe, "planted", [](const void*) { return planted("swapped_expert"); }, run_swapped_expert, nullptr},
  };
  table.insert(table.begin(), std::begin(faults), std::end(faults));
  return table;
}

}  // namespace lathe::backend
