#include "range_board.h"

#include <algorithm>

#include "rig.h"

namespace lathe::models::golden {
namespace {

/// A view of host-visible memory as one run of floats.
std::span<float> floats(const View& view) {
  LATHE_CHECK(view.contiguous(), "strided {}", tensor::describe(view));
  return {view.f32(), static_cast<size_t>(view.elements())};
}

std::vector<float> packed(const View& rows) {
  std::vector<float> out;
  for (int64_t row = 0; row < rows.dim(0); ++row) {
    const float* const values = rows.f32() + row * rows.step(0);
    out.insert(out.end(), values, values + rows.dim(1));
  }
  return out;
}

/// Row of a token or pool family in its segment.
std::span<float> cache_row(const RangeSite& site, const std::string& family, int64_t row) {
  const View plane = site.store.plane(site.layer, family);
  const int64_t per_block = site.store.block_rows(site.store.family(site.layer, family));
  const int64_t at = site.store.block_table(site.sequence)[static_cast<size_t>(row / per_block)] * per_block + row % per_block;
  return floats(plane.rows(at, at + 1));
}

std::span<float> ring(const RangeSite& site, const std::string& family) {
  const int64_t rows = site.store.family(site.layer, family).planes.front().rows_per_unit;
  const int64_t first = site.store.slot(site.sequence) * rows;
  return floats(site.store.plane(site.layer, family).rows(first, first + rows));
}

std::span<float> state(const RangeSite& site) {
  const int64_t row = site.store.state_row(site.sequence, site.store.family(site.layer, "kda.state"));
  return floats(site.store.plane(site.layer, "kda.state").rows(row, row + 1));
}

std::vector<float> cache_rows(const RangeSite& site, const std::string& family, int64_t begin, int64_t end) {
  std::vector<float> out;
  for (int64_t row = begin; row < end; ++row) {
    const std::span<float> values = cache_row(site, family, row);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

void set_cache_rows(const RangeSite& site, const std::string& family, int64_t begin, const std::vector<float>& values) {
  for (size_t done = 0; done < values.size(); ++begin) {
    const std::span<float> row = cache_row(site, family, begin);
    std::copy_n(values.begin() + static_cast<int64_t>(done), row.size(), row.begin());
    done += row.size();
  }
}

}  // namespace

void RangeBoard::put(int rank, int32_t layer, const std::string& what, std::vector<float> values) {
  const std::lock_guard lock(mutex_);
  values_[{rank, layer, what}] = std::move(values);
  said_.notify_all();
}

void RangeBoard::fail(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  failed_.emplace(rank, why);
  said_.notify_all();
}

Result<const std::vector<float>*> RangeBoard::get(int rank, int32_t layer, const std::string& what) {
  std::unique_lock lock(mutex_);
  const std::tuple key{rank, layer, what};
  said_.wait(lock, [&] { return values_.contains(key) || failed_.contains(rank); });
  const auto found = values_.find(key);
  if (found == values_.end()) return err(Code::kUnavailable, "rank {} failed: {}", rank, failed_.at(rank));
  return &found->second;
}

Result<void> BoardExchange::conv_halo(const RangeSite& site, const View& raw) {
  board_.put(rank_, site.layer, "raw", packed(raw));
  const std::span<float> window = ring(site, "kda.conv");
  const int64_t width = raw.dim(1);
  const int64_t rows = static_cast<int64_t>(window.size()) / width;
  // A range shorter than the window leaves rows to the ranges before it.
  for (int64_t position = std::max<int64_t>(0, site.begin - (taps_ - 1)); position < site.begin; ++position) {
    const auto owner = std::find_if(ranges_.begin(), ranges_.end(), [position](const Range& r) { return r.begin <= position && position < r.end; });
    LATHE_TRY(const std::vector<float>* theirs, board_.get(static_cast<int>(owner - ranges_.begin()), site.layer, "raw"));
    std::copy_n(theirs->begin() + (position - owner->begin) * width, width, window.begin() + position % rows * width);
  }
  return {};
}

/// S_begin of this rank from the pairs of the ranks before it, starting from zero.
Result<std::vector<float>> BoardExchange::fold(int32_t layer, const View& pair_h) {
  const int64_t heads = pair_h.dim(0);
  const int64_t k = pair_h.dim(1);
  const int64_t v = pair_h.dim(2);
  std::vector<float> s(static_cast<size_t>(heads * k * v), 0.0f);
  for (int rank = 0; rank < rank_; ++rank) {
    LATHE_TRY(const std::vector<float>* m, board_.get(rank, layer, "pair_m"));
    LATHE_TRY(const std::vector<float>* start, board_.get(rank, layer, "pair_h"));
    std::vector<float> next = *start;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < k; ++j) {
          const float factor = (*m)[static_cast<size_t>((h * k + i) * k + j)];
          for (int64_t c = 0; c < v; ++c) next[static_cast<size_t>((h * k + i) * v + c)] += factor * s[static_cast<size_t>((h * k + j) * v + c)];
        }
      }
    }
    s = std::move(next);
  }
  return s;
}

Result<void> BoardExchange::kda_begin(const RangeSite& site, const View& pair_m, const View& pair_h) {
  if (states_ == StateExchange::kChain) {
    const auto copy = [](const View& view) { return std::vector<float>(floats(view).begin(), floats(view).end()); };
    board_.put(rank_, site.layer, "pair_m", copy(pair_m));
    board_.put(rank_, site.layer, "pair_h", copy(pair_h));
    LATHE_TRY(const std::vector<float> entering, fold(site.layer, pair_h));
    std::copy(entering.begin(), entering.end(), state(site).begin());
    return {};
  }
  if (rank_ == 0) return {};
  LATHE_TRY(const std::vector<float>* entering, board_.get(rank_ - 1, site.layer, "state"));
  std::copy(entering->begin(), entering->end(), state(site).begin());
  return {};
}

Result<void> BoardExchange::kda_end(const RangeSite& site) {
  const std::span<float> s = state(site);
  board_.put(rank_, site.layer, "state", {s.begin(), s.end()});
  return {};
}

Result<void> BoardExchange::index_halo(const RangeSite& site) {
  if (rank_ == 0) return {};
  LATHE_TRY(const std::vector<float>* before, board_.get(rank_ - 1, site.layer, "tail"));
  std::copy(before->begin(), before->end(), ring(site, "index.tail").begin());
  return {};
}

Result<void> BoardExchange::tokens_written(const RangeSite& site) {
  const std::span<float> tail = ring(site, "index.tail");
  board_.put(rank_, site.layer, "tail", {tail.begin(), tail.end()});
  board_.put(rank_, site.layer, "latents", cache_rows(site, "mla.latent", site.begin, site.end));
  // A pool belongs to the range of its last token.
  board_.put(rank_, site.layer, "keys", cache_rows(site, "index.keys", site.begin / kpool_, site.end / kpool_));
  for (int rank = 0; rank < rank_; ++rank) {
    const Range& range = ranges_[static_cast<size_t>(rank)];
    LATHE_TRY(const std::vector<float>* latents, board_.get(rank, site.layer, "latents"));
    set_cache_rows(site, "mla.latent", range.begin, *latents);
    LATHE_TRY(const std::vector<float>* keys, board_.get(rank, site.layer, "keys"));
    set_cache_rows(site, "index.keys", range.begin / kpool_, *keys);
  }
  return {};
}

}  // namespace lathe::models::golden
