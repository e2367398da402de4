#include "ops/contracts.h"
#include "ops/costing.h"

namespace lathe::ops {

namespace {

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
