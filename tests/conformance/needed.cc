// The least work of a call whose index views can be read: cost() where the contract leaves nothing open, and the data's own numbers where cost() has to assume.

#include <algorithm>
#include <set>

#include "ops/costing.h"
#include "work.h"

namespace lathe::conformance {
namespace {

using ops::bytes;
using ops::Cost;
using ops::Counter;

int64_t element_bytes(const View& view) { return static_cast<int64_t>(tensor::dtype_bytes(view.dtype)); }

int64_t state_bytes(const View& states, int64_t keys, int64_t values) {
  return keys * values * element_bytes(states) + (states.dtype == DType::kI8 ? values * 4 : 0);
}

Cost needed(const ops::EmbedParams& p) {
  Cost c = cost(p);
  if (!p.override_row.present()) return c;
  for (int64_t t = 0; t < p.out.dim(0); ++t) {
    if (p.override_row.i32()[t] < 0) continue;
    const int64_t row = p.table.cols() * element_bytes(p.table.values);  // of the table, which an image row does not touch
    c[Counter::kWeightBytes] -= row;
    c[Counter::kBytesRead] += p.table.cols() * element_bytes(p.overrides) - row;
  }
  return c;
}

Cost needed(const ops::KdaRecurrenceParams& p) {
  Cost c = cost(p);
  const int64_t state = p.q.dim(1) * state_bytes(p.states, p.q.dim(2), p.v.dim(2));
  const int64_t assumed = std::min(p.batch.sequences(), p.q.dim(0)) * state;
  c[Counter::kBytesRead] -= assumed, c[Counter::kBytesWritten] -= assumed;
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    if (p.batch.begin.i32()[s] < p.batch.begin.i32()[s + 1] && p.state_in.i32()[s] >= 0) c[Counter::kBytesRead] += state;
  }
  for (int64_t t = 0; t < p.q.dim(0); ++t) c[Counter::kBytesWritten] += p.state_out.i32()[t] >= 0 ? state : 0;
  return c;
}

/// Rings hold what lies behind the checkpoint; a fold inside the window empties them for the rows behind it.
Cost needed(const ops::KdaVerifyParams& p) {
  Cost c = cost(p);
  const int64_t heads = p.q.dim(1), k = p.q.dim(2), v = p.v.dim(2);
  const int64_t entry = k * element_bytes(p.ring.keys) + v * element_bytes(p.ring.values);
  c[Counter::kFlops] = 0;
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    const int64_t begin = p.batch.begin.i32()[s], end = p.batch.begin.i32()[s + 1], start = p.batch.start.i32()[s];
    int64_t checkpoint = p.checkpoint.i32()[s];
    if (begin == end) continue;
    if (p.state.i32()[s] < 0) c[Counter::kBytesRead] -= heads * state_bytes(p.states, k, v);
    if (start > checkpoint) c[Counter::kBytesRead] += heads * ((start - checkpoint) * entry + k * 4);
    for (int64_t t = begin; t < end; ++t) {
      if (p.fold.i32()[t] != 0) checkpoint = start + t - begin;
      c[Counter::kFlops] += heads * (4 * k * v + (start + t - begin - checkpoint) * 4 * (k + v) + 12 * k + 4 * v);
    }
  }
  return c;
}

Cost needed(const ops::KdaFlushParams& p) {
  Cost c;
  const int64_t heads = p.entering.dim(1), k = p.entering.dim(2), v = p.entering.dim(3);
  const int64_t entry = k * element_bytes(p.ring.keys) + v * element_bytes(p.ring.values);
  c[Counter::kBytesRead] = bytes(p.state_in) + bytes(p.into) + bytes(p.checkpoint) + bytes(p.to) + bytes(p.slot);
  for (int64_t s = 0; s < p.slot.dim(0); ++s) {
    const int64_t rows = p.to.i32()[s] - p.checkpoint.i32()[s];
    if (p.into.i32()[s] < 0) continue;
    if (p.state_in.i32()[s] >= 0) c[Counter::kBytesRead] += heads * state_bytes(p.entering, k, v);
    c[Counter::kBytesWritten] += heads * state_bytes(p.states, k, v);
    if (rows == 0) continue;
    c[Counter::kBytesRead] += heads * (rows * entry + k * 4);
    c[Counter::kFlops] += heads * (2 * rows + 4) * k * v;
    c[Counter::kExponentials] += heads * k;
  }
  return c;
}

int64_t row_bytes(const ops::Paged& paged) {
  return paged.pool.dim(1) * element_bytes(paged.pool) + (paged.scales.present() ? paged.scales.dim(1) * 4 : 0);
}

/// Which outputs had an expert is read from `present`: the call has run.
Cost needed(const ops::MoeParams& p) {
  const int64_t width = p.x.dim(1), chosen = p.ids.dim(1);
  Cost c;
  std::set<int64_t> experts;
  int64_t pairs = 0, rows = 0;
  for (int64_t t = 0; t < p.x.dim(0); ++t) {
    const int64_t before = pairs;
    for (int64_t j = 0; j < chosen; ++j) {
      const int64_t expert = p.ids.i32()[t * p.ids.step(0) + j] - p.expert_begin;
      if (expert < 0 || expert >= p.gate.count) continue;
      ++pairs;
      experts.insert(expert);
    }
    rows += pairs > before ? 1 : 0;
  }
  int64_t sums = rows;
  if (p.present.present()) {
    sums = 0;
    ops::cases::each_element(p.present, [&](int64_t at) { sums += p.present.i32()[at]; });
  }
  for (const int64_t e : experts) add_weights(c, p.gate.items[e].bytes() + p.up.items[e].bytes() + p.down.items[e].bytes());
  c[Counter::kBytesRead] += bytes(p.ids) + bytes(p.weights) + rows * width * 4;
  c[Counter::kBytesWritten] = bytes(p.y) + bytes(p.present);
  if (pairs == 0) return c;
  const int64_t inner = p.gate.items[0].rows();
  c[Counter::kFlops] = pairs * width * (6 * inner + 1) + (pairs - sums) * width;
  add_swiglu(c, pairs * inner);
  return c;
}

Cost needed(const ops::VisionAttendParams& p) {
  Cost c = cost(p);
  c[Counter::kExponentials] = 0;
  for (int64_t i = 0; i + 1 < p.segment_begin.dim(0); ++i) {
    const int64_t rows = p.segment_begin.i32()[i + 1] - p.segment_begin.i32()[i];
    c[Counter::kExponentials] += rows * rows * p.qkv.dim(2);
  }
  c[Counter::kFlops] = c[Counter::kExponentials] * 4 * p.qkv.dim(3);
  return c;
}

/// Rows that take all their pools without a score read neither q nor weights.
Cost needed(const ops::IndexSelectParams& p) {
  Cost c = cost(p);
  const int64_t heads = p.q.dim(1);
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    for (int64_t t = p.batch.begin.i32()[s]; c[Counter::kFlops] > 0 && t < p.batch.begin.i32()[s + 1]; ++t) {
      const int64_t pools = (p.batch.start.i32()[s] + t - p.batch.begin.i32()[s] + 1) / p.kpool;
      if (pools == 0 || (pools <= p.selection.dim(1) && !p.scores.present())) c[Counter::kBytesRead] -= heads * (p.q.dim(2) + 1) * 4;
    }
  }
  return c;
}

Cost needed(const ops::MlaAttendParams& p) {
  Cost c = cost(p);
  const Keys keys = keys_of(p.batch, p.selection);
  const int64_t heads = p.q.dim(1), width = p.q.dim(2);
  c[Counter::kBytesRead] = bytes(p.batch.begin) + bytes(p.batch.start) + bytes(p.q) + bytes(p.selection.pools) + bytes(p.selection.tail_begin) +
                           bytes(p.latents.table) + keys.different * row_bytes(p.latents);
  c[Counter::kFlops] = keys.pairs * heads * 4 * width;
  c[Counter::kExponentials] = keys.pairs * heads;
  return c;
}

Cost needed(const ops::MlaExpandedParams& p) {
  Cost c = cost(p);
  const Keys keys = keys_of(p.batch, p.selection);
  const int64_t heads = p.q.dim(1), width = p.kv_b.matrix.cols(), head_rows = p.kv_b.nope + p.kv_b.value;
  const int64_t weights = keys.different > 0 ? p.kv_b.matrix.bytes() : 0;
  c[Counter::kWeightBytes] = weights;
  c[Counter::kBytesRead] = bytes(p.batch.begin) + bytes(p.batch.start) + bytes(p.q) + bytes(p.selection.pools) + bytes(p.selection.tail_begin) +
                           bytes(p.latents.table) + weights + keys.different * row_bytes(p.latents);
  c[Counter::kFlops] = heads * head_rows * 2 * (keys.different * width + keys.pairs);
  c[Counter::kExponentials] = keys.pairs * heads;
  return c;
}

template <class Params>
Cost needed(const Params& p) {
  return cost(p);
}

}  // namespace

Keys keys_of(const ops::Ragged& batch, const ops::Selection& selection) {
  Keys keys;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    std::set<int64_t> all;
    for (int64_t t = batch.begin.i32()[s]; t < batch.begin.i32()[s + 1]; ++t) {
      const int64_t position = batch.start.i32()[s] + t - batch.begin.i32()[s], kpool = selection.kpool;
      const int64_t tail = selection.tail_begin.present() ? selection.tail_begin.i32()[t] : (position + 1) / kpool * kpool;
      const int32_t* const pools = selection.pools.i32() + t * selection.pools.step(0);
      for (int64_t i = 0; i < selection.pools.dim(1) && pools[i] >= 0; ++i) {
        for (int64_t j = 0; j < kpool; ++j) all.insert(pools[i] * kpool + j), ++keys.pairs;
      }
      for (int64_t at = tail; at <= position; ++at) all.insert(at), ++keys.pairs;
    }
    keys.different += static_cast<int64_t>(all.size());
    for (const int64_t at : all) keys.tiles.insert({s, at / kExpandedTile});
  }
  return keys;
}

ops::Cost needed_work(ops::OpId op, const void* params) {
  ops::Cost out;
  ops::cases::with_params(op, const_cast<void*>(params), [&](const auto& p) { out = needed(p); });
  return out;
}

}  // namespace lathe::conformance
