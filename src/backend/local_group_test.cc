// Goal: whatever the number of ranks and the cut, a sum has the bits of the whole tree; zero-size shares take part.
#include "backend/collective.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "backend/test_support.h"

namespace lathe::backend {
namespace {

using tensor::TreeNode;

void on_every_rank(std::vector<std::unique_ptr<Group>>& group, const std::function<void(Group&)>& body) {
  std::vector<std::thread> threads;
  for (auto& end : group) threads.emplace_back([&body, &end] { body(*end); });
  for (std::thread& thread : threads) thread.join();
}

constexpr int64_t kRows = 5;
constexpr int64_t kWidth = 3;

struct Leaves {
  int64_t count;
  std::vector<float> values;   ///< [count, kRows, kWidth]
  std::vector<int32_t> given;  ///< [count, kRows]
};

Leaves make_leaves(int64_t count, bool sparse) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> normal;
  Leaves leaves{.count = count, .values = std::vector<float>(static_cast<size_t>(count * kRows * kWidth)), .given = {}};
  for (float& value : leaves.values) value = normal(random) * 1000.0f;
  for (int64_t i = 0; i < count * kRows; ++i) leaves.given.push_back(!sparse || random() % 3 == 0 ? 1 : 0);
  if (sparse) std::fill_n(leaves.values.begin(), leaves.values.size(), -0.0f);  // an absent −0 must not become +0
  return leaves;
}

/// Partial of a node for row t: its own leaves in tree order.
void partial(const Leaves& leaves, TreeNode node, int64_t t, float* out, int32_t& present) {
  std::vector<TreeNode> nodes;
  std::vector<const float*> rows;
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    if (leaves.given[static_cast<size_t>(leaf * kRows + t)] == 0) continue;
    nodes.push_back({leaf, leaf + 1});
    rows.push_back(&leaves.values[static_cast<size_t>((leaf * kRows + t) * kWidth)]);
  }
  present = nodes.empty() ? 0 : 1;
  // A node is a subtree of the same shape wherever it stands in the whole tree.
  for (TreeNode& inner : nodes) inner.begin -= node.begin, inner.end -= node.begin;
  tensor::tree_combine({node.end - node.begin, nodes, rows.data(), kWidth}, out);
}

std::vector<float> whole(const Leaves& leaves) {
  std::vector<float> out(static_cast<size_t>(kRows * kWidth));
  int32_t ignored = 0;
  for (int64_t t = 0; t < kRows; ++t) partial(leaves, {0, leaves.count}, t, &out[static_cast<size_t>(t * kWidth)], ignored);
  return out;
}

TEST(LocalGroup, ReductionsAreThoseOfAllRanks) {
  constexpr int64_t kColumns = 3;
  for (const int ranks : {1, 2, 5}) {
    for (const int64_t rows : {0, 1, 7}) {
      auto group = make_local_group(ranks);
      on_every_rank(group, [&](Group& end) {
        const int rank = end.rank();
        std::vector<int32_t> sums(static_cast<size_t>(rows * kColumns));
        std::vector<float> greatest(sums.size());
        for (size_t i = 0; i < sums.size(); ++i) {
          sums[i] = static_cast<int32_t>(i) * 1000 - rank;
          greatest[i] = static_cast<float>((i + static_cast<size_t>(rank)) % static_cast<size_t>(ranks));
        }
        if (rows > 1 && rank == ranks - 1) greatest[4] = std::numeric_limits<float>::quiet_NaN();
        ASSERT_TRUE(end.reduce({.values = tensor::make_view(sums.data(), DType::kI32, {rows, kColumns})}).has_value());
        ASSERT_TRUE(end.reduce({.values = tensor::make_view(greatest.data(), DType::kF32, {rows, kColumns})}).has_value());
        for (size_t i = 0; i < sums.size(); ++i) {
          EXPECT_EQ(sums[i], static_cast<int32_t>(i) * 1000 * ranks - ranks * (ranks - 1) / 2) << i;
          if (rows > 1 && i == 4) {
            EXPECT_TRUE(std::isnan(greatest[i]));
          } else {
            EXPECT_EQ(greatest[i], static_cast<float>(ranks - 1)) << i;
          }
        }
      });
    }
  }
}

TEST(LocalGroup, AReductionThatOneRankFailsIsAnErrorOfAll) {
  auto group = make_local_group(3);
  on_every_rank(group, [&](Group& end) {
    std::vector<int32_t> values = {end.rank(), 5};
    const View view = tensor::make_view(values.data(), DType::kI32, {1, 2});
    const Result<void> failed = end.reduce({.values = view, .failed = end.rank() == 1});
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, Code::kUnavailable);
    EXPECT_EQ(values[1], 5);
    ASSERT_TRUE(end.reduce({.values = view}).has_value());
    EXPECT_EQ(values[1], 15);
  });
}

TEST(LocalGroup, TreeSumHasTheBitsOfTheWholeSum) {
  for (const bool sparse : {false, true}) {
    for (const int64_t count : {1, 2, 3, 7, 16}) {
      const Leaves leaves = make_leaves(count, sparse);
      const std::vector<float> want = whole(leaves);
      for (const int ranks : {1, 2, 3, 5}) {  // more ranks than leaves: some have none
        auto group = make_local_group(ranks);
        on_every_rank(group, [&](Group& end) {
          const tensor::Shard shard = tensor::default_shard({.kind = tensor::ShardKind::kRow, .total = count}, end.rank(), end.size());
          Group::TreeSum sum{.leaves = count, .nodes = tensor::tree_cover(count, shard.begin, shard.end), .partials = {}, .present = {}, .out = {}};
          const auto nodes = static_cast<int64_t>(sum.nodes.size());
          std::vector<float> partials(static_cast<size_t>(nodes * kRows * kWidth));
          std::vector<int32_t> present(static_cast<size_t>(nodes * kRows));
          for (int64_t i = 0; i < nodes * kRows; ++i) {
            partial(leaves, sum.nodes[static_cast<size_t>(i / kRows)], i % kRows, &partials[static_cast<size_t>(i * kWidth)],
                    present[static_cast<size_t>(i)]);
          }
          std::vector<float> out(static_cast<size_t>(kRows * kWidth), 77.0f);
          if (nodes > 0) sum.partials = tensor::make_view(partials.data(), DType::kF32, {nodes, kRows, kWidth});
          if (nodes > 0 && sparse) sum.present = tensor::make_view(present.data(), DType::kI32, {nodes, kRows});
          sum.out = tensor::make_view(out.data(), DType::kF32, {kRows, kWidth});
          for (int round = 0; round < 3; ++round) EXPECT_TRUE(end.tree_sum(sum).has_value());
          EXPECT_EQ(std::memcmp(out.data(), want.data(), out.size() * sizeof(float)), 0)
              << count << " leaves, rank " << end.rank() << " of " << ranks;
        });
      }
    }
  }
}

TEST(LocalGroup, ARankThatFailedFailsTheSumOfAllAndTheNextOneHolds) {
  auto group = make_local_group(3);
  on_every_rank(group, [](Group& end) {
    std::array<float, 4> part{};
    part.fill(static_cast<float>(end.rank() + 1));
    std::array<float, 4> out{};
    out.fill(77.0f);
    for (const int failing : {1, -1, 2, -1}) {
      Group::TreeSum sum{.leaves = 3,
                         .nodes = {{end.rank(), end.rank() + 1}},
                         .partials = tensor::make_view(part.data(), DType::kF32, {1, 1, 4}),
                         .present = {},
                         .out = tensor::make_view(out.data(), DType::kF32, {1, 4}),
                         .failed = end.rank() == failing};
      if (sum.failed) sum.partials = {};
      out.fill(77.0f);
      const Result<void> summed = end.tree_sum(sum);
      EXPECT_EQ(summed.has_value(), failing < 0);
      EXPECT_EQ(out[3], failing < 0 ? 6.0f : 77.0f);
      if (!summed) {
        EXPECT_EQ(summed.error().code, Code::kUnavailable);
        EXPECT_EQ(summed.error().message, fmt::format("rank {} of 3 failed and has no part of a sum to give", failing));
      }
    }
  });
}

TEST(LocalGroup, GathersColumnsInRankOrder) {
  auto group = make_local_group(3);
  on_every_rank(group, [](Group& end) {
    const int64_t width = std::array<int64_t, 3>{2, 0, 3}[static_cast<size_t>(end.rank())];
    std::vector<float> mine(static_cast<size_t>(kRows * width));
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(100 * end.rank() + static_cast<int>(i));
    std::vector<float> out(static_cast<size_t>(kRows * 5));
    end.gather_columns(tensor::make_view(mine.data(), DType::kF32, {kRows, width}), tensor::make_view(out.data(), DType::kF32, {kRows, 5}));
    for (int64_t t = 0; t < kRows; ++t) {
      const float* row = &out[static_cast<size_t>(t * 5)];
      EXPECT_EQ(row[0], static_cast<float>(2 * t));
      EXPECT_EQ(row[1], static_cast<float>(2 * t + 1));
      EXPECT_EQ(row[2], static_cast<float>(200 + 3 * t));
      EXPECT_EQ(row[4], static_cast<float>(200 + 3 * t + 2));
    }
  });
}

TEST(LocalGroup, NoRowsIsLegal) {
  auto group = make_local_group(2);
  on_every_rank(group, [](Group& end) {
    end.gather_columns(tensor::make_view(nullptr, DType::kF32, {0, 2}), tensor::make_view(nullptr, DType::kF32, {0, 4}));
    const Result<void> summed = end.tree_sum({.leaves = 2,
                                              .nodes = {{end.rank(), end.rank() + 1}},
                                              .partials = tensor::make_view(nullptr, DType::kF32, {1, 0, 4}),
                                              .present = {},
                                              .out = tensor::make_view(nullptr, DType::kF32, {0, 4})});
    EXPECT_TRUE(summed.has_value());
    end.barrier();
  });
}

TEST(LocalGroup, WaitsForOtherRanksAreRecorded) {
  testing::KeptSpans keep;
  auto group = make_local_group(3, &keep);
  on_every_rank(group, [](Group& end) {
    base::this_thread_place().rank = end.rank();
    end.barrier();
  });
  int waits = 0;
  for (const base::Span& span : keep.spans) {
    EXPECT_STREQ(span.name, "group");
    EXPECT_LE(span.ready_ns, span.start_ns);
    EXPECT_LE(span.start_ns, span.end_ns);
    if (std::string(span.category) == "wait") ++waits;  // the others are locks that met at the mutex
  }
  EXPECT_EQ(waits, 2) << "all ranks but the last one wait";
}

}  // namespace
}  // namespace lathe::backend
