#include "ops/contracts.h"
#include "ops/costing.h"

namespace lathe::ops {
namespace {

/// One row with its scales.
int64_t row_bytes(const Paged& paged) {
  return paged.pool.dim(1) * static_cast<int64_t>(tensor::dtype_bytes(paged.pool.dtype)) +
         (paged.scales.present() ? paged.scales.dim(1) * int64_t{sizeof(float)} : 0);
}

/// Keys that a row at `position` attends to: the chosen pools and the tail, or all there are.
int64_t keys_of(const Selection& selection, int64_t position) {
  const int64_t complete = (position + 1) / selection.kpool;
  return std::min(selection.pools.dim(1), complete) * selection.kpool + (position + 1) % selection.kpool;
}

struct Attention {
  int64_t pairs = 0;    ///< (row, key)
  int64_t fetched = 0;  ///< keys that must be read: for each sequence as many as its greediest row attends to
};

Attention attention(const Ragged& batch, const Paged& latents, const Selection& selection, int64_t rows) {
  Attention a;
  each_sequence(batch, rows, capacity(latents) - 1, [&](int64_t start, int64_t count) {
    int64_t most = 0;
    for (int64_t position = start; position < start + count; ++position) {
      const int64_t keys = keys_of(selection, position);
      a.pairs += keys;
      most = std::max(most, keys);
    }
    a.fetched += most;
  });
  return a;
}

/// Bytes of the same rows of every head; a head's rows bring the scales of the blocks that they lie in.
int64_t head_bytes(const KvB& kv_b, int64_t heads, tensor::Range rows) {
  const int64_t head_rows = kv_b.nope + kv_b.value;
  int64_t sum = 0;
  for (int64_t h = 0; h < heads; ++h) {
    sum += tensor::slice_matrix(kv_b.matrix, {h * head_rows + rows.begin, h * head_rows + rows.end}, {0, kv_b.matrix.cols()}).bytes();
  }
  return sum;
}

}  // namespace

Cost cost(const WriteLatentsParams& p) {
  Cost c;
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.x);
  c[Counter::kBytesWritten] = p.x.dim(0) * row_bytes(p.pool);
  return c;
}

Cost cost(const IndexKeysParams& p) {
  Cost c;
  const int64_t rows = p.k.dim(0);
  const int64_t dx = p.k.dim(1);
  const int64_t pool = p.ape.dim(0);
  int64_t pools = 0;
  int64_t fetched = 0;  // ring rows of tokens before this step
  int64_t kept = 0;     // ring rows written
  each_sequence(p.batch, rows, pool - 1, [&](int64_t start, int64_t count) {
    const int64_t complete = (start + count) / pool - start / pool;
    pools += complete;
    fetched += complete > 0 ? start % pool : 0;
    kept += std::min(count, p.ring.dim(1));
  });
  add_weights(c, bytes(p.norm_weight) + bytes(p.norm_bias) + bytes(p.ape));
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.k) + bytes(p.gate) + bytes(p.slot) + fetched * 2 * dx * int64_t{sizeof(float)};
  c[Counter::kBytesWritten] = pools * row_bytes(p.keys) + kept * 2 * dx * int64_t{sizeof(float)};
  c[Counter::kFlops] = 7 * rows * dx + 5 * pools * pool * dx;
  c[Counter::kRowsNormalised] = rows;
  c[Counter::kExponentials] = pools * pool * dx;
  c[Counter::kDivisions] = rows + pools * dx;
  return c;
}

Cost cost(const IndexSelectParams& p) {
  Cost c;
  const int64_t heads = p.q.dim(1);
  const int64_t dx = p.q.dim(2);
  const int64_t most = p.selection.dim(1);
  int64_t scored = 0;
  int64_t fetched = 0;
  each_sequence(p.batch, p.q.dim(0), capacity(p.keys) * p.kpool - 1, [&](int64_t start, int64_t rows) {
    int64_t furthest = 0;
    for (int64_t position = start; position < start + rows; ++position) {
      const int64_t pools = (position + 1) / p.kpool;
      if (pools <= most && !p.scores.present()) continue;
      scored += pools;
      furthest = pools;
    }
    fetched += furthest;
  });
  add_ragged(c, p.batch);
  if (scored > 0) c[Counter::kBytesRead] += bytes(p.q) + bytes(p.weights) + bytes(p.keys.table);
  c[Counter::kBytesRead] += fetched * row_bytes(p.keys);
  c[Counter::kBytesWritten] = bytes(p.selection) + bytes(p.scores);
  c[Counter::kFlops] = scored * heads * (2 * dx + 2);
  return c;
}

Cost cost(const MlaAbsorbParams& p) {
  Cost c;
  const int64_t rows = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t half = heads * p.kv_b.nope * p.kv_b.matrix.cols();
  if (rows > 0) add_weights(c, head_bytes(p.kv_b, heads, {0, p.kv_b.nope}));
  c[Counter::kBytesRead] += bytes(p.q);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 2 * rows * half;
  return c;
}

Cost cost(const MlaAttendParams& p) {
  Cost c;
  const int64_t rows = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t width = p.q.dim(2);
  const Attention a = attention(p.batch, p.latents, p.selection, rows);
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.q) + bytes(p.selection.pools) + bytes(p.selection.tail_begin) + bytes(p.latents.table);
  c[Counter::kBytesRead] += a.fetched * row_bytes(p.latents);
  c[Counter::kBytesWritten] = bytes(p.out) + bytes(p.row_max) + bytes(p.row_sum);
  c[Counter::kFlops] = a.pairs * heads * 4 * width;
  c[Counter::kRowsNormalised] = rows * heads;
  c[Counter::kExponentials] = a.pairs * heads;
  c[Counter::kDivisions] = rows * heads;
  return c;
}

Cost cost(const MlaUnabsorbParams& p) {
  Cost c;
  const int64_t rows = p.z.dim(0);
  const int64_t half = p.z.dim(1) * p.kv_b.value * p.kv_b.matrix.cols();
  if (rows > 0) add_weights(c, head_bytes(p.kv_b, p.z.dim(1), {p.kv_b.nope, p.kv_b.nope + p.kv_b.value}));
  c[Counter::kBytesRead] += bytes(p.z);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 2 * rows * half;
  return c;
}

Cost cost(const MlaExpandedParams& p) {
  Cost c;
  const int64_t rows = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t width = p.kv_b.matrix.cols();
  const int64_t head_rows = p.kv_b.nope + p.kv_b.value;
  const Attention a = attention(p.batch, p.latents, p.selection, rows);
  if (rows > 0) add_weights(c, bytes(p.kv_b.matrix));
  add_ragged(c, p.batch);
  c[Counter::kBytesRead] += bytes(p.q) + bytes(p.selection.pools) + bytes(p.selection.tail_begin) + bytes(p.latents.table);
  c[Counter::kBytesRead] += a.fetched * row_bytes(p.latents);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = heads * head_rows * 2 * (a.fetched * width + a.pairs);
  c[Counter::kRowsNormalised] = rows * heads;
  c[Counter::kExponentials] = a.pairs * heads;
  c[Counter::kDivisions] = rows * heads;
  return c;
}

}  // namespace lathe::ops
