// How a pass fails: once, on every rank that it sums with, and without a trace for the next one.

#include "models/glm5_next_text.h"

namespace lathe::models {

void Glm5NextModel::begin_pass(const Pass& pass) {
  told_ = false;
  arena_.reset();
  dispatch_.set_tokens(pass.batch.positions());
  note(pass.batch.upload(device(), dispatch_.planning() ? Upload::kDry : Upload::kCopy));
}

Result<void> Glm5NextModel::end_pass(const Pass& pass) {
  share_verdict();
  stands(pass);  // hooks hear of what failed after the last of them
  return dispatch_.take_error();
}

/// A rank can still fail behind the last sum of the pass, and the others must not keep what it gives up: one more sum, without rows, tells them.
void Glm5NextModel::share_verdict() {
  if (dispatch_.planning()) return;
  for (backend::Group* const group : sum_groups_) {
    device().synchronise();
    const bool failed = dispatch_.failure() != nullptr;
    note(group->tree_sum({.out = tensor::make_view(nowhere(), DType::kF32, {0, 1}), .failed = failed}));
  }
}

bool Glm5NextModel::stands(const Pass& pass) {
  const Error* const failure = dispatch_.failure();
  if (failure == nullptr) return true;
  if (pass.hooks != nullptr && !told_) pass.hooks->failed(*failure);
  told_ = true;
  return false;
}

void Glm5NextModel::note(Result<void> done) {
  if (!done) dispatch_.fail(std::move(done.error()));
}

void Glm5NextModel::before_layer(const Pass& pass, int32_t layer) {
  if (pass.hooks == nullptr || !stands(pass)) return;
  note(pass.hooks->before_layer(layer, layer_families_[static_cast<size_t>(layer)]));
}

void Glm5NextModel::after_layer(const Pass& pass, int32_t layer) {
  if (pass.hooks == nullptr) return;
  device().synchronise();
  if (stands(pass)) note(pass.hooks->after_layer(layer, layer_families_[static_cast<size_t>(layer)]));
}

void Glm5NextModel::sum_nodes(const Cut& cut, const View& partials, const View& present, const View& y) {
  if (dispatch_.planning()) return;
  device().synchronise();
  // A rank that has failed comes nevertheless: the others wait for it, and learn it here.
  const bool failed = dispatch_.failure() != nullptr;
  note(cut.group->tree_sum({.leaves = cut.total, .nodes = cut.nodes, .partials = partials, .present = present, .out = y, .failed = failed}));
}

void Glm5NextModel::combine(const Cut& cut, const View& values, Share share) {
  if (dispatch_.planning()) return;
  device().synchronise();
  if (share == Share::kNothing) device().fill_zero(values.data, values.elements() * 4);
  const View rows = values.rank == 1 ? values.reshape({values.dim(0), 1}) : values;
  note(cut.group->reduce({.values = rows, .failed = dispatch_.failure() != nullptr}));
}

}  // namespace lathe::models
