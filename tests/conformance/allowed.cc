// What kernels of kernels/cpu may do beyond what is needed: everything that their design repeats, and nothing else.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ops/costing.h"
#include "work.h"

namespace lathe::conformance {
namespace {

using ops::bytes;
using ops::Cost;
using ops::Counter;

/// Which kernel, where.
struct Place {
  std::string_view level;
  int threads = 1;
  /// Rows of a panel: a task of a product has one at least, and reads x for itself.
  int64_t panel() const { return level == "scalar" ? 8 : level == "avx2" ? 16 : 32; }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t element_bytes(const View& view) { return static_cast<int64_t>(tensor::dtype_bytes(view.dtype)); }
int64_t row_bytes(const ops::Paged& paged) {
  return paged.pool.dim(1) * element_bytes(paged.pool) + (paged.scales.present() ? paged.scales.dim(1) * 4 : 0);
}

/// x is read once for each task, and a task takes one panel or more.
void allow_x_again(Cost& c, const View& x, int64_t panels) {
  if (x.dim(0) > 0) c[Counter::kBytesRead] += std::max<int64_t>(panels - 1, 0) * bytes(x);
}
void allow_weights(Cost& c, int64_t total) { add_weights(c, total); }

void allow(const ops::MatmulParams& p, const Place& place, Cost& c) {
  int64_t panels = 0;
  for (int32_t i = 0; i < p.part_count; ++i) panels += divide_up(p.parts[static_cast<size_t>(i)].weight.rows(), place.panel());
  allow_x_again(c, p.x, panels);
}

void allow(const ops::GateUpParams& p, const Place& place, Cost& c) { allow_x_again(c, p.x, divide_up(p.gate.rows(), place.panel())); }

/// A row of x is copied to each expert that it chose.
void allow(const ops::MoeParams& p, const Place&, Cost& c) {
  const int64_t width = p.x.dim(1);
  for (int64_t t = 0; t < p.x.dim(0); ++t) {
    int64_t pairs = 0;
    for (int64_t j = 0; j < p.ids.dim(1); ++j) {
      const int64_t expert = p.ids.i32()[t * p.ids.step(0) + j] - p.expert_begin;
      pairs += expert >= 0 && expert < p.gate.count ? 1 : 0;
    }
    c[Counter::kBytesRead] += std::max<int64_t>(pairs - 1, 0) * width * 4;
  }
}

/// A fold inside a window moves the checkpoint for the rows behind it; kda_flush, which moves it in memory, repeats that work.
void allow(const ops::KdaVerifyParams& p, const Place&, Cost& c) {
  const int64_t heads = p.q.dim(1), k = p.q.dim(2), v = p.v.dim(2);
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    const int64_t begin = p.batch.begin.i32()[s], end = p.batch.begin.i32()[s + 1], start = p.batch.start.i32()[s];
    int64_t checkpoint = p.checkpoint.i32()[s];
    for (int64_t t = begin; t < end; ++t) {
      const int64_t folded = start + t - begin - checkpoint;
      if (p.fold.i32()[t] == 0 || folded == 0) continue;
      c[Counter::kFlops] += heads * (2 * folded + 4) * k * v;
      c[Counter::kExponentials] += heads * k;
      checkpoint += folded;
    }
  }
}

/// Few rows read fn again for every tile of three or four, and blocks have four at least.
void allow(const ops::MhcInParams& p, const Place&, Cost& c) {
  allow_weights(c, std::max<int64_t>(divide_up(p.streams.dim(0), 2) - 1, 0) * p.fn.bytes());
}

/// A task decodes its head's rows once for 32 rows or more.
void allow(const ops::MlaAbsorbParams& p, const Place&, Cost& c) {
  allow_weights(c, std::max<int64_t>(divide_up(p.q.dim(0), 32) - 1, 0) * c[Counter::kWeightBytes]);
}
void allow(const ops::MlaUnabsorbParams& p, const Place&, Cost& c) {
  allow_weights(c, std::max<int64_t>(divide_up(p.z.dim(0), 48) - 1, 0) * c[Counter::kWeightBytes]);
}

/// A row's keys are read for each group of heads: 16, or fewer so that every thread has work.
void allow(const ops::MlaAttendParams& p, const Place& place, Cost& c) {
  const int64_t rows = p.q.dim(0), groups = std::max(divide_up(p.q.dim(1), 16), rows > 0 ? int64_t{2} * place.threads / rows : 0);
  const Keys keys = keys_of(p.batch, p.selection);
  c[Counter::kBytesRead] += (keys.pairs * groups - keys.different) * row_bytes(p.latents);
}

/// Each head expands the keys of a tile for itself: its latents are read once a head, its weights once a tile. A row's maximum may grow in every tile.
void allow(const ops::MlaExpandedParams& p, const Place&, Cost& c) {
  const int64_t heads = p.q.dim(1), head_rows = p.kv_b.nope + p.kv_b.value;
  const Keys keys = keys_of(p.batch, p.selection);
  c[Counter::kBytesRead] += (heads - 1) * keys.different * row_bytes(p.latents);
  int64_t weights = 0;
  for (int64_t h = 0; h < heads; ++h) {
    weights += tensor::slice_matrix(p.kv_b.matrix, {h * head_rows, (h + 1) * head_rows}, {0, p.kv_b.matrix.cols()}).bytes();
  }
  allow_weights(c, static_cast<int64_t>(keys.tiles.size()) * weights - c[Counter::kWeightBytes]);
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    const int64_t tiles = std::count_if(keys.tiles.begin(), keys.tiles.end(), [&](const auto& tile) { return tile.first == s; });
    c[Counter::kExponentials] += std::max<int64_t>(tiles - 1, 0) * heads * (p.batch.begin.i32()[s + 1] - p.batch.begin.i32()[s]);
  }
}

/// Keys are packed for each block of rows of a sequence; rows and their weights are read for each piece of the pools, of which there are two a thread at most.
void allow(const ops::IndexSelectParams& p, const Place& place, Cost& c) {
  int64_t pools = 0, furthest = 0;
  bool scored = p.scores.present();
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    const int64_t rows = p.batch.begin.i32()[s + 1] - p.batch.begin.i32()[s], last = rows > 0 ? (p.batch.start.i32()[s] + rows) / p.kpool : 0;
    scored |= last > p.selection.dim(1);
    furthest += last;
    pools += last * rows;
  }
  if (!scored) return;
  c[Counter::kBytesRead] += (pools - furthest) * row_bytes(p.keys);
  c[Counter::kBytesRead] += 2 * place.threads * (bytes(p.q) + bytes(p.weights)) + bytes(p.keys.table);
}

/// Keys and values are read for each block of 16 rows.
void allow(const ops::VisionAttendParams& p, const Place&, Cost& c) {
  for (int64_t i = 0; i + 1 < p.segment_begin.dim(0); ++i) {
    const int64_t rows = p.segment_begin.i32()[i + 1] - p.segment_begin.i32()[i];
    c[Counter::kBytesRead] += std::max<int64_t>(divide_up(rows, 16) - 1, 0) * 2 * rows * p.qkv.dim(2) * p.qkv.dim(3) * 4;
  }
}

template <class Params>
void allow(const Params&, const Place&, Cost&) {}

/// Where the fast kernels need less than the contract: the entries of a row or column of the Sinkhorn loop share one division.
void shared_divisions(const ops::MhcInParams& p, Cost& c) {
  const int64_t streams = p.streams.dim(1);
  c[Counter::kDivisions] = p.streams.dim(0) * (1 + 2 * streams + 2 * int64_t{p.iterations} * streams);
}

}  // namespace

ops::Cost allowed_work(ops::OpId op, const void* params, std::string_view level, int threads) {
  ops::Cost c = needed_work(op, params);
  ops::cases::with_params(op, const_cast<void*>(params), [&](const auto& p) { allow(p, {.level = level, .threads = threads}, c); });
  return c;
}

std::vector<std::string> check_work(const Case& item, const Counted& run) {
  const bool reference = std::string_view(run.variant.name) == "ref";
  ops::Cost least = needed_work(item.op, run.params), most = allowed_work(item.op, run.params, run.variant.name, run.threads);
  if (reference) most = ops::op_info(item.op).cost(run.params);
  if (!reference && item.op == ops::OpId::kMhcIn) {
    shared_divisions(*static_cast<const ops::MhcInParams*>(run.params), least);
    most[Counter::kDivisions] = least[Counter::kDivisions];
  }
  std::vector<std::string> wrong;
  for (int i = 0; i < ops::kCounterCount; ++i) {
    const auto counter = static_cast<Counter>(i);
    const int64_t done = run.counters.done[static_cast<size_t>(i)].load();
    if (done < least[counter]) wrong.push_back(fmt::format("{}: {} done, {} needed", ops::counter_name(counter), done, least[counter]));
    if (done > most[counter] && (!reference || item.exact_counts)) {
      wrong.push_back(fmt::format("{}: {} done, {} allowed", ops::counter_name(counter), done, most[counter]));
    }
    if (reference && item.exact_counts && least[counter] != most[counter]) {
      wrong.push_back(fmt::format("{}: cost() says {}, the data {}", ops::counter_name(counter), most[counter], least[counter]));
    }
  }
  return wrong;
}

}  // namespace lathe::conformance
