// Goal: what a step refuses, what it puts out where, and that a steady decode step allocates nothing.

#include <gtest/gtest.h>

#include <filesystem>

#include "backend/allocations.h"
#include "backend/observe_ops.h"
#include "base/file.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

RigOptions builtin() {
  return {.directory = data_path("builtin"),
          .model = {.precision = Precision::kFast, .max_batch_tokens = 32, .tentative_max = 2, .shards = {}, .groups = {}},
          .isa = "",
          .slots = 3,
          .dispatch = {}};
}

class Step : public testing::Test {
 protected:
  Step() : rig_(builtin()), sequence_(rig_.open()) {}
  /// The message of a step that must fail; "" if it does not.
  std::string refused(StepItem item) {
    item.sequence = sequence_;
    const auto result = rig_.model().step({&item, 1}, rig_.store());
    return result ? "" : result.error().message;
  }
  void append(int64_t tokens, int64_t tentative = 0) { must(rig_.store().append(sequence_, tokens, tentative), "append"); }
  static void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << "  lacks  " << part;
  }
  static StepItem item(const std::vector<TokenId>& tokens) { return {.sequence = {}, .tokens = tokens, .rows = {}, .at = {}}; }

  Rig rig_;
  SequenceId sequence_;
};

TEST_F(Step, RefusesWhatItCannotRun) {
  const std::vector<TokenId> none;
  const std::vector<TokenId> outside = {5, 3584};
  const std::vector<TokenId> two = {1, 2};
  const std::vector<TokenId> many(33, 1);
  append(40);
  expect_parts(refused(item(none)), {"without tokens"});
  expect_parts(refused(item(outside)), {"token 3584", "vocabulary of 3584"});
  expect_parts(refused(item(many)), {"33 tokens", "loaded for 32"});
  StepItem wrong = item(two);
  wrong.tentative = 3;
  expect_parts(refused(wrong), {"3 of 2 tokens are tentative"});
  wrong = item(two);
  wrong.tentative = 1, wrong.kind = ItemKind::kPrefill;
  expect_parts(refused(wrong), {"tentative", "decode items"});
  wrong = item(two);
  const int32_t at[] = {1, 1};
  wrong.logits = Logits::kAt, wrong.at = at;
  expect_parts(refused(wrong), {"logits wanted at 1 of 2"});
  wrong = item(two);
  const View hidden = tensor::make_view(nullptr, DType::kF32, {2, 384});
  const EmbeddingRows rows{.begin = 1, .rows = hidden};
  wrong.rows = {&rows, 1};
  expect_parts(refused(wrong), {"embedding rows", "do not fit 2 tokens"});
  wrong = item(two);
  wrong.sequence = sequence_;
  const StepItem twice[] = {wrong, wrong};
  EXPECT_FALSE(rig_.model().step(twice, rig_.store()).has_value());
  EXPECT_FALSE(rig_.model().step({}, rig_.store()).has_value());
  wrong.sequence = SequenceId{77};
  EXPECT_FALSE(rig_.model().step({&wrong, 1}, rig_.store()).has_value());
}

TEST_F(Step, NeedsRoomInTheStore) {
  const std::vector<TokenId> two = {1, 2};
  const SequenceId other = rig_.open();
  const StepItem unappended{.sequence = other, .tokens = two, .rows = {}, .at = {}};
  const auto result = rig_.model().step({&unappended, 1}, rig_.store());
  ASSERT_FALSE(result.has_value());
}

TEST_F(Step, LogitsWhereTheyAreWanted) {
  const std::vector<TokenId> tokens = {10, 20, 30, 40, 50};
  const std::vector<float> all = rig_.feed(sequence_, tokens);
  const int64_t width = rig_.vocabulary();
  const int32_t at[] = {0, 3};
  std::vector<SequenceId> sequences = {rig_.open(), rig_.open()};
  for (const SequenceId id : sequences) must(rig_.store().append(id, 5, 0), "append");
  const StepItem items[] = {{.sequence = sequences[0], .kind = ItemKind::kPrefill, .tokens = tokens, .rows = {}, .logits = Logits::kAt, .at = at},
                            {.sequence = sequences[1], .kind = ItemKind::kPrefill, .tokens = tokens, .rows = {}, .logits = Logits::kNone, .at = {}}};
  const StepResult result = must(rig_.model().step(items, rig_.store()), "step");
  ASSERT_EQ(result.logits.dim(0), 2);
  const std::vector<float> some = rig_.host(result.logits);
  EXPECT_TRUE(same_bits(slice_rows(some, width, 0, 1), slice_rows(all, width, 0, 1)));
  EXPECT_TRUE(same_bits(slice_rows(some, width, 1, 2), slice_rows(all, width, 3, 4)));
  EXPECT_EQ(result.items[1].logits_count, 0);
  EXPECT_EQ(result.items[1].hidden_begin, 5);
  EXPECT_EQ(result.hidden.dim(0), 10);
}

TEST_F(Step, SteadyDecodeAllocatesNothing) {
#ifdef LATHE_DCHECKS
  GTEST_SKIP() << "this build validates every call, and messages allocate";
#endif
  rig_.feed(sequence_, {1, 2, 3, 4, 5, 6, 7, 8}, ItemKind::kPrefill, Logits::kLast);
  int64_t counted = 0;
  for (TokenId token = 9; token < 30; ++token) {
    append(1);
    const StepItem item{.sequence = sequence_, .tokens = {&token, 1}, .rows = {}, .at = {}};
    const int64_t before = backend::allocation_count();
    const auto result = rig_.model().step({&item, 1}, rig_.store());
    const int64_t here = backend::allocation_count() - before;
    ASSERT_TRUE(result.has_value());
    rig_.store().commit(sequence_, 0);
    if (token > 12) counted += here;  // the first steps find the sizes of buffers
  }
  EXPECT_EQ(counted, 0);
}

/// A batch is one pass: sixteen sequences call every op once and read every matrix once, experts aside, of which they touch more.
TEST(Batch, ReadsWeightsOnce) {
  RigOptions options = builtin();
  options.slots = 16;
  Rig rig(options);
  std::vector<SequenceId> sequences;
  for (TokenId i = 0; i < 16; ++i) {
    sequences.push_back(rig.open());
    rig.feed(sequences.back(), {i, 20, 30}, ItemKind::kPrefill, Logits::kNone);
  }
  const auto step = [&](size_t count) {
    auto counts = std::make_unique<backend::CountingObserver>(rig.device());
    rig.dispatch().set_observer(counts.get());
    const TokenId token = 7;
    std::vector<StepItem> items;
    for (size_t i = 0; i < count; ++i) {
      must(rig.store().append(sequences[i], 1, 0), "append");
      items.push_back({.sequence = sequences[i], .tokens = {&token, 1}, .rows = {}, .at = {}});
    }
    must(rig.model().step(items, rig.store()), "step");
    for (size_t i = 0; i < count; ++i) rig.store().commit(sequences[i], 0);
    rig.dispatch().set_observer(nullptr);
    return counts;
  };
  constexpr auto kWeights = static_cast<size_t>(ops::Counter::kWeightBytes);
  const auto one = step(1);
  const auto many = step(16);
  for (int i = 0; i < ops::kOpCount; ++i) {
    const auto op = static_cast<ops::OpId>(i);
    if (op == ops::OpId::kGatherRows) continue;  // not needed when every row's logits are wanted
    EXPECT_EQ(many->total(op).calls, one->total(op).calls) << ops::op_info(op).name;
  }
  for (const ops::OpId op : {ops::OpId::kMatmul, ops::OpId::kGateUp}) {
    EXPECT_GT(one->total(op).done[kWeights], 1 << 20) << ops::op_info(op).name;
    EXPECT_EQ(many->total(op).done[kWeights], one->total(op).done[kWeights]) << ops::op_info(op).name;
  }
  EXPECT_LE(many->total(ops::OpId::kMoe).done[kWeights], 8 * one->total(ops::OpId::kMoe).done[kWeights]);
}

TEST(Load, NamesTheFamiliesThatItKnows) {
  const auto device = Rig::cpu_device({.directory = "", .isa = "", .threads = 1, .dispatch = {}});
  const auto dispatch = must(backend::Dispatch::create(*device, {}), "dispatch");
  const std::string directory = testing::TempDir() + "lathe_family";
  std::filesystem::create_directories(directory);
  must(base::write_file(directory + "/config.json", R"({"model_type": "llama"})"), "config");
  const auto refused = load_model(directory, *dispatch, {.shards = {}, .groups = {}});
  std::filesystem::remove_all(directory);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnimplemented);
  EXPECT_NE(refused.error().message.find("\"llama\", supported are glm5_next"), std::string::npos) << refused.error().message;
}

TEST(Load, SaysWhatIsWrong) {
  const auto device = Rig::cpu_device({.directory = "", .isa = "", .threads = 1, .dispatch = {}});
  const auto dispatch = must(backend::Dispatch::create(*device, {}), "dispatch");
  const ModelOptions options{.shards = {}, .groups = {}};
  const auto nowhere = load_model("/nonexistent", *dispatch, options);
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, Code::kNotFound);
  ModelOptions empty = options;
  empty.max_batch_tokens = 0;
  EXPECT_FALSE(load_model(data_path("builtin"), *dispatch, empty).has_value());
}

}  // namespace
}  // namespace lathe::models::golden
