#include "ops/contracts.h"
#include "ops/costing.h"

namespace lathe::ops {

namespace {

int64_t element_bytes(const View& view) { return static_cast<int64_t>(tensor::dtype_bytes(view.dtype)); }

/// One head's state with its scales.
int64_t state_bytes(const View& states, int64_t k, int64_t v) {
  return k * v * static_cast<int64_t>(tensor::dtype_bytes(states.dtype)) + (states.dtype == DType::kI8 ? v * int64_t{sizeof(float)} : 0);
}

}  // namespace

Cost cost(const MhcInParams& p) {
  Cost c;
  const int64_t rows = p.streams.dim(0);
  const int64_t s = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  add_product(c, rows, p.fn, {});
  if (rows > 0) add_weights(c, bytes(p.base) + bytes(p.scale));
  c[Counter::kBytesRead] += bytes(p.streams);
  c[Counter::kBytesWritten] = bytes(p.x) + bytes(p.post) + bytes(p.comb);
  const int64_t halves = 2 * int64_t{p.iterations} - 1;                                   // row and column passes of the Sinkhorn loop
  c[Counter::kFlops] += rows * (4 * s * d + 3 * p.fn.rows() + 2 * s * s * (halves + 1));  // Σf²; collapse; scale and base; sums and divisions
  c[Counter::kRowsNormalised] = rows;
  c[Counter::kExponentials] = rows * p.fn.rows();
  c[Counter::kDivisions] = rows * (1 + 2 * s + s * s * (halves + 1));
  return c;
}

Cost cost(const MhcOutParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.streams) + bytes(p.y) + bytes(p.post) + bytes(p.comb);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = p.out.elements() * (2 * p.streams.dim(1) + 1);
  return c;
}

Cost cost(const StreamMeanParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.streams);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = p.streams.elements();
  return c;
}

Cost cost(const ShortConvParams& p) {
  Cost c;
  const int64_t channels = p.x.dim(1);
  const int64_t taps = p.weight.dim(0);
  const auto kept = static_cast<int64_t>(tensor::dtype_bytes(p.ring.dtype));
  int64_t history = 0;
  int64_t window = 0;
  each_sequence(p.batch, p.x.dim(0), taps - 1, [&](int64_t start, int64_t rows) {
    history += rows > 0 ? std::min(start, taps - 1) : 0;
    window += std::min(p.ring.dim(1), rows);
  });
  add_weights(c, bytes(p.weight));
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.x) + bytes(p.slot) + history * channels * kept;
  c[Counter::kBytesWritten] = bytes(p.out) + window * channels * kept;
  c[Counter::kFlops] = p.x.elements() * (2 * taps + 1);
  c[Counter::kExponentials] = p.x.elements();
  c[Counter::kDivisions] = p.x.elements();
  return c;
}

Cost cost(const KdaGateParams& p) {
  Cost c;
  const int64_t gates = p.g.elements();
  const int64_t strengths = p.beta.elements();
  add_weights(c, bytes(p.a_log) + bytes(p.dt_bias));
  c[Counter::kBytesRead] += bytes(p.a) + bytes(p.b);
  c[Counter::kBytesWritten] = bytes(p.g) + bytes(p.beta);
  c[Counter::kFlops] = 3 * gates;
  c[Counter::kExponentials] = gates + strengths + p.a_log.elements();
  c[Counter::kDivisions] = (p.bounded ? gates : 0) + strengths;
  return c;
}

Cost cost(const KdaRecurrenceParams& p) {
  Cost c;
  const int64_t rows = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t k = p.q.dim(2);
  const int64_t v = p.v.dim(2);
  const int64_t state = heads * state_bytes(p.states, k, v);
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.q) + bytes(p.k) + bytes(p.v) + bytes(p.g) + bytes(p.beta) + bytes(p.state_in) + bytes(p.state_out);
  c[Counter::kBytesRead] += std::min(p.batch.sequences(), rows) * state;
  c[Counter::kBytesWritten] = bytes(p.o) + std::min(p.batch.sequences(), rows) * state + bytes(p.pair_m) + bytes(p.pair_h);
  c[Counter::kFlops] = rows * heads * (8 * k * v + 6 * k);  // decay, Sᵀk, update, Sᵀq; two norms
  if (p.pair_m.present()) c[Counter::kFlops] += rows * heads * 6 * k * (k + v);
  c[Counter::kRowsNormalised] = 2 * rows * heads;
  c[Counter::kExponentials] = rows * heads * k;
  c[Counter::kDivisions] = 2 * rows * heads;
  return c;
}

Cost cost(const KdaVerifyParams& p) {
  Cost c;
  const int64_t heads = p.q.dim(1), k = p.q.dim(2), v = p.v.dim(2);
  const int64_t entry = k * element_bytes(p.ring.keys) + v * element_bytes(p.ring.values);
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.q) + bytes(p.k) + bytes(p.v) + bytes(p.g) + bytes(p.beta) + bytes(p.state) + bytes(p.checkpoint) + bytes(p.slot);
  c[Counter::kBytesRead] += bytes(p.fold);
  c[Counter::kBytesWritten] = bytes(p.o) + p.q.dim(0) * heads * (entry + k * int64_t{sizeof(float)});
  int64_t s = 0;
  each_sequence(p.batch, p.q.dim(0), 0, [&](int64_t start, int64_t rows) {
    const int64_t entries = p.host_checkpoint != nullptr ? start - p.host_checkpoint[s] : 0;
    ++s;
    if (rows == 0) return;
    c[Counter::kBytesRead] += heads * (state_bytes(p.states, k, v) + entries * entry + (entries > 0 ? k * int64_t{sizeof(float)} : 0));
    c[Counter::kFlops] += heads * (rows * (4 * k * v + 12 * k + 4 * v) + 4 * (k + v) * (rows * entries + rows * (rows - 1) / 2));
  });
  c[Counter::kRowsNormalised] = 2 * p.q.dim(0) * heads;
  c[Counter::kExponentials] = 2 * p.q.dim(0) * heads * k;
  c[Counter::kDivisions] = 2 * p.q.dim(0) * heads;
  return c;
}

Cost cost(const KdaFlushParams& p) {
  Cost c;
  const int64_t heads = p.entering.dim(1), k = p.entering.dim(2), v = p.entering.dim(3);
  const int64_t folds = p.slot.dim(0) * heads;
  c[Counter::kBytesRead] = bytes(p.state_in) + bytes(p.into) + bytes(p.checkpoint) + bytes(p.to) + bytes(p.slot);
  c[Counter::kBytesRead] += folds * state_bytes(p.entering, k, v);
  c[Counter::kBytesWritten] = folds * state_bytes(p.states, k, v);
  if (p.folded_max == 0) return c;
  c[Counter::kBytesRead] += folds * (p.folded_max * (k * element_bytes(p.ring.keys) + v * element_bytes(p.ring.values)) + k * int64_t{sizeof(float)});
  c[Counter::kFlops] = folds * (2 * p.folded_max + 4) * k * v;
  c[Counter::kExponentials] = folds * k;
  return c;
}

Cost cost(const GatedNormParams& p) {
  Cost c;
  const int64_t rows = p.o.dim(0) * p.o.dim(1);
  add_weights(c, bytes(p.weight));
  c[Counter::kBytesRead] += bytes(p.o) + bytes(p.gate);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 5 * p.o.elements();
  c[Counter::kRowsNormalised] = rows;
  c[Counter::kExponentials] = p.o.elements();
  c[Counter::kDivisions] = rows + p.o.elements();
  return c;
}

}  // namespace lathe::ops
