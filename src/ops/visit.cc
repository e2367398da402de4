#include "ops/visit.h"

#include <algorithm>

namespace lathe::ops {

namespace {

bool same(const View& a, const View& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.shape == b.shape && a.stride == b.stride;
}

}  // namespace

void VisitAdapter::in(const char* name, MatrixStack& stack) {
  MatrixView* own = nullptr;
  const MatrixView* const items = stack.items;
  for (int32_t i = 0; i < stack.count; ++i) {
    MatrixView item = items[i];
    in(name, item);
    if (own == nullptr && (!same(item.values, items[i].values) || !same(item.scales, items[i].scales))) {
      visitor.stacks_.push_back(std::make_unique<MatrixView[]>(static_cast<size_t>(stack.count)));
      own = visitor.stacks_.back().get();
      std::copy_n(items, stack.count, own);
      stack.items = own;
    }
    if (own != nullptr) own[i] = item;
  }
}

}  // namespace lathe::ops
