// Goal: a device whose memory the host cannot see runs golden/base end to end, and still does with any one op missing from its table.

#include <gtest/gtest.h>

#include "backend/fake_device.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

using backend::FakeDevice;
using backend::Route;

RigOptions options(MlaPath path) {
  RigOptions out{.directory = data_path("golden/base"),
                 .model = {.precision = Precision::kExact, .prefill_mla = path, .max_batch_tokens = 64, .shards = {}, .groups = {}},
                 .reference = true,
                 .isa = "",
                 .threads = 1,
                 .blocks = 8,
                 .slots = 2,
                 .dispatch = {}};
  out.dispatch.host_reference = backend::reference_table();
  return out;
}

std::unique_ptr<FakeDevice> fake(std::vector<ops::Variant> table) { return must(FakeDevice::create(std::move(table)), "fake device"); }

/// Logits of a prompt, of two steps behind it, of the last token of another, and of a prompt with a picture.
std::vector<float> exercise(Rig& rig, GoldenFile& gold) {
  SequenceId sequence;
  std::vector<float> out = rig.prefill(gold.tokens("ids.3"), {10}, &sequence);
  const auto add = [&out](const std::vector<float>& values) { out.insert(out.end(), values.begin(), values.end()); };
  const std::vector<TokenId> greedy = gold.tokens("greedy.3");
  for (const size_t i : {size_t{17}, size_t{18}}) add(rig.feed(sequence, {greedy[i]}, ItemKind::kDecode));
  rig.store().close(sequence);
  sequence = rig.open();
  add(rig.feed(sequence, gold.tokens("ids.1"), ItemKind::kPrefill, Logits::kLast));
  rig.store().close(sequence);
  const std::vector<float> pixels = gold.floats("image.1.pixels");
  const ImageRows image = must(rig.model().encode_image({.patches = pixels, .steps = 1, .height = 2, .width = 6}), "picture");
  const std::vector<TokenId> ids = gold.tokens("image.1.ids");
  const auto first = std::find(ids.begin(), ids.end(), rig.model().info().image_token);
  sequence = rig.open();
  add(rig.feed(sequence, ids, ItemKind::kPrefill, Logits::kAll, {{.begin = first - ids.begin(), .rows = image.rows}}));
  rig.store().close(sequence);
  return out;
}

std::vector<float> gold_values(GoldenFile& gold) {
  std::vector<float> out = gold.floats("logits.3");
  const auto add = [&out](const std::vector<float>& values) { out.insert(out.end(), values.begin(), values.end()); };
  add(slice_rows(gold.floats("greedy_logits.3"), 512, 1, 3));
  add(slice_rows(gold.floats("logits.1"), 512, 2, 3));
  add(gold.floats("image.1.logits"));
  return out;
}

TEST(SecondDevice, RunsTheModel) {
  GoldenFile gold(data_path("golden/base.safetensors"));
  Rig host(options(MlaPath::kAbsorbed));
  const auto table = backend::reference_table();
  auto device = fake({table.begin(), table.end()});
  FakeDevice& counts = *device;
  Rig rig(options(MlaPath::kAbsorbed), std::move(device));
  const std::vector<float> got = exercise(rig, gold);
  EXPECT_TRUE(same_bits(got, exercise(host, gold)));
  EXPECT_LE(worst_difference(got, gold_values(gold)), 1e-3);
  EXPECT_EQ(rig.dispatch().fallback_calls(), 0);
  EXPECT_GT(counts.counts().launches, 100);
  EXPECT_GE(rig.model().info().uploaded_bytes, rig.model().info().weight_bytes);
}

/// Closed memory: states that are made for others are read through the device alone.
TEST(SecondDevice, DecodesByReplay) {
  GoldenFile gold(data_path("golden/base.safetensors"));
  RigOptions replay = options(MlaPath::kAbsorbed);
  replay.model.caches = kExactCaches;
  replay.model.caches->keeping = StateKeeping::kReplay;
  replay.model.replay.period = 2;
  Rig host(replay);
  const auto table = backend::reference_table();
  Rig rig(replay, fake({table.begin(), table.end()}));
  const std::vector<float> got = exercise(rig, gold);
  EXPECT_TRUE(same_bits(got, exercise(host, gold)));
  EXPECT_LE(worst_difference(got, gold_values(gold)), 1e-3);
  const auto prefix = [](Rig& one) {
    const SequenceId sequence = one.open();
    for (TokenId token = 1; token < 4; ++token) one.feed(sequence, {token}, ItemKind::kDecode);
    return must(one.model().prefix_snapshot(sequence, one.store()), "prefix");
  };
  const cache::Snapshot there = prefix(rig), here = prefix(host);
  EXPECT_EQ(there.parts.front().family, "kda.state");
  EXPECT_EQ(there.parts.front().planes, here.parts.front().planes);
}

/// The whole table without `op`. The model calls swiglu only in place of gate_up: then that one is missing as well.
std::vector<ops::Variant> table_without(ops::OpId op) {
  std::vector<ops::Variant> table = backend::without(backend::reference_table(), op);
  return op == ops::OpId::kSwiglu ? backend::without(table, ops::OpId::kGateUp) : table;
}

class WithoutOp : public testing::TestWithParam<int> {};

TEST_P(WithoutOp, StillRight) {
  const auto op = static_cast<ops::OpId>(GetParam());
  const MlaPath path = op == ops::OpId::kMlaExpanded ? MlaPath::kExpanded : MlaPath::kAbsorbed;
  GoldenFile gold(data_path("golden/base.safetensors"));
  Rig host(options(path));
  const std::vector<float> wanted = exercise(host, gold);
  Rig rig(options(path), fake(table_without(op)));
  const std::vector<float> got = exercise(rig, gold);

  bool composed = false;
  int64_t listed = 0;
  for (const backend::OpSite* site : rig.dispatch().sites()) {
    if (site->route == Route::kNative) continue;
    composed = composed || site->route == Route::kComposition;
    listed += site->fallback_calls;
    EXPECT_FALSE(site->reason.empty()) << site->name;
  }
  EXPECT_GT(listed, 0);
  EXPECT_GE(listed, rig.dispatch().fallback_calls());
  EXPECT_LE(worst_difference(got, gold_values(gold)), 1e-3);
  EXPECT_TRUE(composed || same_bits(got, wanted));

  RigOptions strict = options(path);
  strict.dispatch.no_fallback = true;
  const auto device = fake(table_without(op));
  const auto dispatch = must(backend::Dispatch::create(*device, strict.dispatch), "dispatch");
  const auto refused = load_model(strict.directory, *dispatch, strict.model);
  ASSERT_FALSE(refused.has_value());
  const char* const called = ops::op_info(op == ops::OpId::kSwiglu ? ops::OpId::kGateUp : op).name;
  EXPECT_NE(refused.error().message.find(called), std::string::npos) << refused.error().message;
}

/// All but those that a whole model with plain states does not call: the ends of cut INT8 products, and replay.
std::vector<int> called_ops() {
  std::vector<int> out;
  for (int op = 0; op < ops::kOpCount; ++op) {
    const auto id = static_cast<ops::OpId>(op);
    if (id == ops::OpId::kRowAmax || id == ops::OpId::kScaleSums || id == ops::OpId::kKdaVerify || id == ops::OpId::kKdaFlush) continue;
    out.push_back(op);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(EveryOp, WithoutOp, testing::ValuesIn(called_ops()),
                         [](const auto& test) { return std::string(ops::op_info(static_cast<ops::OpId>(test.param)).name); });

}  // namespace
}  // namespace lathe::models::golden
