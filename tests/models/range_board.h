#pragma once
// Test support: ranks of a prefill that is cut into token ranges, as threads that pass rows and states through shared memory.

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "models/model.h"
#include "models/range_exchange.h"

namespace lathe::models::golden {

enum class StateExchange { kRelay, kChain };

/// What the ranks have said so far.
class RangeBoard {
 public:
  void put(int rank, int32_t layer, const std::string& what, std::vector<float> values);
  /// That rank says nothing more.
  void fail(int rank, const std::string& why);
  /// Waits until that rank has said it. Errors: unavailable, if it never will.
  Result<const std::vector<float>*> get(int rank, int32_t layer, const std::string& what);

 private:
  std::mutex mutex_;
  std::condition_variable said_;
  std::map<std::tuple<int, int32_t, std::string>, std::vector<float>> values_;
  std::map<int, std::string> failed_;
};

/// One rank's end. Ranges ascend with the rank; the first begins at 0. Devices must be host-visible.
class BoardExchange final : public StepHooks, public RangeExchange {
 public:
  struct Range {
    int64_t begin = 0, end = 0;
  };
  BoardExchange(RangeBoard& board, std::vector<Range> ranges, int rank, StateExchange states, int64_t taps, int64_t kpool)
      : board_(board), ranges_(std::move(ranges)), rank_(rank), states_(states), taps_(taps), kpool_(kpool) {}

  Result<void> before_layer(int32_t, std::span<const std::string>) override { return {}; }
  Result<void> after_layer(int32_t, std::span<const std::string>) override { return {}; }
  void failed(const Error& why) override { board_.fail(rank_, why.message); }
  RangeExchange* ranges() override { return this; }

  Result<void> conv_halo(const RangeSite& site, const View& raw) override;
  bool wants_pair(const RangeSite&) override { return states_ == StateExchange::kChain; }
  Result<void> kda_begin(const RangeSite& site, const View& pair_m, const View& pair_h) override;
  Result<void> kda_end(const RangeSite& site) override;
  Result<void> index_halo(const RangeSite& site) override;
  Result<void> tokens_written(const RangeSite& site) override;

 private:
  Result<std::vector<float>> fold(int32_t layer, const View& pair_h);

  RangeBoard& board_;
  std::vector<Range> ranges_;
  int rank_;
  StateExchange states_;
  int64_t taps_, kpool_;
};

}  // namespace lathe::models::golden
