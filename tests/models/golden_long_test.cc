// Goal: right far out. The micro model of golden/long up to a million tokens, with chunk borders at, before and after the multiples of 65,536, and steps of one
// token at the end of every checked length.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/basic.h"
#include "ops/mla.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

constexpr int64_t kChunk = 2048;
constexpr int64_t kStepsAtEnd = 3;
constexpr int64_t kPool = 4;
constexpr int64_t kPoolsMax = 64;
constexpr int32_t kSparseLayer = 3;
constexpr double kLogits = 1e-3;
constexpr double kStates = 1e-4;

/// The prompt by formula: one sequence of which every prompt is a prefix.
std::vector<TokenId> long_ids(int64_t count) {
  std::vector<TokenId> ids;
  ids.reserve(static_cast<size_t>(count));
  uint64_t x = 20261130;
  for (int64_t t = 0; t < count; ++t) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    const uint64_t r = x >> 33;
    int64_t id = 1 + static_cast<int64_t>(r % 240);
    if (t % 65536 >= 613 && t % 65536 < 618) {
      id = 241 + static_cast<int64_t>(r % 8);
    } else if (t % 4096 < 16) {
      id = 1 + t / 4096 % 240;
    } else if (t >= 4096 && t % 1000 >= 875) {
      id = ids[static_cast<size_t>(t - 777)];
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

uint64_t checksum(const std::vector<TokenId>& ids, int64_t count) {
  uint64_t h = 0;
  for (int64_t i = 0; i < count; ++i) h = h * 31 + static_cast<uint64_t>(ids[static_cast<size_t>(i)]);
  return h;
}

/// Keeps the rows of checked positions of three call sites.
class CheckedRows final : public backend::OpObserver {
 public:
  explicit CheckedRows(std::set<int64_t> positions) : positions_(std::move(positions)) {}
  void set_start(int64_t start) { start_ = start; }
  void after(backend::OpCall& call, backend::Device& device) override {
    if (call.site->layer != kSparseLayer && call.site->layer != -1) return;
    const std::string site = call.site->name;
    if (site == "dsa.select") keep(device, selection_, static_cast<ops::IndexSelectParams*>(call.params)->selection);
    if (site == "norm.input") keep(device, mixer_input_, static_cast<ops::RmsNormParams*>(call.params)->out);
    if (site == "final.norm") keep(device, final_, static_cast<ops::RmsNormParams*>(call.params)->out);
  }
  using Rows = std::map<int64_t, std::vector<float>>;
  const Rows& selection() const { return selection_; }
  const Rows& mixer_input() const { return mixer_input_; }
  const Rows& final() const { return final_; }

 private:
  void keep(backend::Device& device, Rows& rows, const View& view) {
    const int64_t end = start_ + view.dim(0);
    for (auto at = positions_.lower_bound(start_); at != positions_.end() && *at < end; ++at) {
      rows[*at] = copy_to_floats(device, view.rows(*at - start_, *at - start_ + 1));
    }
  }
  std::set<int64_t> positions_;
  int64_t start_ = 0;
  Rows selection_, mixer_input_, final_;
};

class GoldenLong : public testing::Test {
 protected:
  GoldenLong() : gold_(data_path("golden/long/golden.safetensors")), positions_(gold_.integers("positions")) {}

  void read_up_to(int64_t length);
  /// Ends of chunks: every kChunk tokens, at the checked lengths, and one before, at and one after each multiple of 65,536.
  std::vector<int64_t> borders(int64_t length) const;
  void check_states(Rig& rig, SequenceId sequence, int64_t length);
  void check_rows(Rig& rig, SequenceId sequence, const CheckedRows& rows, const std::map<int64_t, std::vector<float>>& logits);

  static constexpr int64_t kLengths[] = {4099, 65537, 131075, 262147, 524291, 1048576};
  GoldenFile gold_;
  std::vector<int64_t> positions_;
};

std::vector<int64_t> GoldenLong::borders(int64_t length) const {
  std::set<int64_t> ends;
  for (int64_t end = kChunk; end < length; end += kChunk) ends.insert(end);
  for (int64_t multiple = 65536; multiple <= length; multiple += 65536) ends.insert({multiple - 1, multiple, multiple + 1});
  for (const int64_t checked : kLengths) {
    for (int64_t back = 0; back <= kStepsAtEnd; ++back) ends.insert(checked - back);
  }
  std::vector<int64_t> out;
  for (const int64_t end : ends) {
    if (end <= length) out.push_back(end);
  }
  return out;
}

void GoldenLong::check_states(Rig& rig, SequenceId sequence, int64_t length) {
  constexpr int64_t kColumns = 4;
  for (const int layer : {0, 1, 2}) {
    const std::string suffix = "." + std::to_string(length) + "." + std::to_string(layer);
    EXPECT_LE(relative_frobenius(rig.state(sequence, layer, "kda.state"), gold_.floats("kda_state" + suffix)), kStates) << suffix;
    const std::vector<float> ring = rig.state(sequence, layer, "kda.conv");
    const std::vector<float> columns = gold_.floats("conv_state" + suffix);
    const int64_t channels = gold_.dim("conv_state" + suffix, 0);
    const int64_t rows = static_cast<int64_t>(ring.size()) / channels;
    std::vector<float> mine;
    std::vector<float> theirs;
    for (int64_t back = 1; back < kColumns; ++back) {
      for (int64_t c = 0; c < channels; ++c) {
        mine.push_back(ring[static_cast<size_t>((length - back) % rows * channels + c)]);
        theirs.push_back(columns[static_cast<size_t>(c * kColumns + kColumns - back)]);
      }
    }
    EXPECT_LE(relative_frobenius(mine, theirs), kStates) << "window" << suffix;
  }
}

void GoldenLong::check_rows(Rig& rig, SequenceId sequence, const CheckedRows& rows, const std::map<int64_t, std::vector<float>>& logits) {
  const int64_t width = rig.vocabulary();
  const std::vector<int64_t> pools = gold_.integers("pools");
  const std::vector<int64_t> greedy = gold_.integers("greedy");
  std::vector<float> mine[4];
  std::vector<float> theirs[4];
  const auto compare = [&](int which, const std::vector<float>& got, const char* tensor, int64_t row) {
    const std::vector<float> all = gold_.floats(tensor);
    const int64_t columns = gold_.dim(tensor, 1);
    mine[which].insert(mine[which].end(), got.begin(), got.end());
    theirs[which].insert(theirs[which].end(), all.begin() + row * columns, all.begin() + (row + 1) * columns);
  };
  for (size_t i = 0; i < positions_.size(); ++i) {
    const int64_t t = positions_[i];
    if (!logits.contains(t)) continue;
    const auto row = static_cast<int64_t>(i);
    EXPECT_LE(worst_difference(logits.at(t), slice_rows(gold_.floats("logits"), width, row, row + 1)), kLogits) << "position " << t;
    EXPECT_EQ(arg_max(logits.at(t), 0, width), greedy[i]) << "position " << t;
    const std::vector<float>& chosen = rows.selection().at(t);
    EXPECT_EQ(std::set<int64_t>(chosen.begin(), chosen.end()),
              std::set<int64_t>(pools.begin() + row * kPoolsMax, pools.begin() + (row + 1) * kPoolsMax))
        << "position " << t;
    compare(0, rows.mixer_input().at(t), "mixer_input", row);
    compare(1, rows.final().at(t), "final", row);
    compare(2, rig.cached_rows(sequence, kSparseLayer, "mla.latent", t, t + 1), "latent", row);
    const int64_t complete = (t + 1) / kPool;
    if (complete > 0) compare(3, rig.cached_rows(sequence, kSparseLayer, "index.keys", complete - 1, complete), "last_pool_key", row);
  }
  for (int which = 0; which < 4; ++which) EXPECT_LE(relative_frobenius(mine[which], theirs[which]), kStates) << which;
}

void GoldenLong::read_up_to(int64_t length) {
  const std::vector<TokenId> ids = long_ids(length);
  constexpr int64_t kBlock = 256;
  Rig rig({.directory = data_path("golden/long"),
           .model = {.precision = Precision::kExact, .max_batch_tokens = kChunk, .vision = false, .shards = {}, .groups = {}},
           .isa = "",
           .threads = 2,
           .block_tokens = kBlock,
           .blocks = length / kBlock + 1,
           .slots = 1,
           .dispatch = {}});
  CheckedRows rows({positions_.begin(), positions_.end()});
  rig.dispatch().set_observer(&rows);
  const SequenceId sequence = rig.open();
  std::map<int64_t, std::vector<float>> logits;
  int64_t begin = 0;
  for (const int64_t end : borders(length)) {
    std::vector<int32_t> at;
    for (const int64_t position : positions_) {
      if (begin <= position && position < end) at.push_back(static_cast<int32_t>(position - begin));
    }
    // The last tokens of a checked length come as decode steps.
    const bool step =
        std::any_of(std::begin(kLengths), std::end(kLengths), [&](int64_t checked) { return checked - kStepsAtEnd <= begin && begin < checked; });
    rows.set_start(begin);
    must(rig.store().append(sequence, end - begin, 0), "append");
    const StepItem item{.sequence = sequence,
                        .kind = step ? ItemKind::kDecode : ItemKind::kPrefill,
                        .tokens = std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                        .rows = {},
                        .logits = Logits::kAt,
                        .at = at};
    const StepResult result = must(rig.model().step({&item, 1}, rig.store()), "step");
    rig.store().commit(sequence, 0);
    for (size_t i = 0; i < at.size(); ++i) logits[begin + at[i]] = rig.host(result.logits.rows(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1));
    if (std::find(std::begin(kLengths), std::end(kLengths), end) != std::end(kLengths)) check_states(rig, sequence, end);
    begin = end;
  }
  check_rows(rig, sequence, rows, logits);
  rig.dispatch().set_observer(nullptr);
}

TEST_F(GoldenLong, IdsByFormula) {
  const std::vector<TokenId> ids = long_ids(1048576);
  EXPECT_EQ(checksum(ids, 4099), 12151585043518280873u);
  EXPECT_EQ(checksum(ids, 65537), 12820248383817566242u);
  EXPECT_EQ(checksum(ids, 1048576), 16768655453301646302u);
}

TEST_F(GoldenLong, UpTo4099) { read_up_to(4099); }
TEST_F(GoldenLong, UpTo65537) { read_up_to(65537); }
TEST_F(GoldenLong, UpTo262147) { read_up_to(262147); }
TEST_F(GoldenLong, UpTo1048576) { read_up_to(1048576); }

}  // namespace
}  // namespace lathe::models::golden
