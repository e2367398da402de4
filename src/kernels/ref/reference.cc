#include "kernels/ref/reference.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ref/kernels.h"

namespace lathe::kernels::ref {
namespace {

bool any(const void*) { return true; }

// The list of kernels.h names them as registry.cc does, so the op is found by its name.
std::array<ops::Variant, ops::kOpCount> table() {
  std::array<ops::Variant, ops::kOpCount> variants;
  size_t next = 0;
#define LATHE_REF_ENTRY(kernel)                                                                                     \
  {                                                                                                                 \
    const std::optional<ops::OpId> op = ops::op_by_name(#kernel);                                                   \
    LATHE_CHECK(op.has_value(), "no op is called {}", #kernel);                                                     \
    variants[next++] = {.op = *op, .name = "ref", .supports = any, .run = kernel, .run_counted = kernel##_counted}; \
  }
  LATHE_REF_KERNELS(LATHE_REF_ENTRY)
#undef LATHE_REF_ENTRY
  LATHE_CHECK(next == variants.size(), "{} reference kernels for {} ops", next, variants.size());
  return variants;
}

}  // namespace

std::span<const ops::Variant> reference_variants() {
  static const std::array<ops::Variant, ops::kOpCount> variants = table();
  return variants;
}

const ops::Variant& reference_of(ops::OpId op) {
  const std::span<const ops::Variant> all = reference_variants();
  const auto found = std::find_if(all.begin(), all.end(), [op](const ops::Variant& variant) { return variant.op == op; });
  LATHE_CHECK(found != all.end(), "op {} has no reference", static_cast<int>(op));
  return *found;
}

void run_reference(ops::OpId op, const void* params, const ops::LaunchContext& context) { reference_of(op).run(params, context); }

}  // namespace lathe::kernels::ref
