#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "ops/contracts.h"
#include "ops/visit.h"

namespace lathe::ops {
namespace {

using tensor::make_view;

float memory[4096];
View f32(std::initializer_list<int64_t> shape, int64_t offset = 0) { return make_view(memory + offset, DType::kF32, shape); }
View i32(std::initializer_list<int64_t> shape) { return make_view(memory, DType::kI32, shape); }

std::string message(const Result<void>& result) { return result ? "" : result.error().message; }

MatmulParams matmul(int64_t t, int64_t k, int64_t n) {
  MatmulParams p;
  p.x = f32({t, k});
  p.part_count = 1;
  p.parts[0].weight.values = make_view(memory, DType::kBF16, {n, k});
  p.parts[0].y = f32({t, n}, 2048);
  return p;
}

TEST(Registry, EveryOpHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& info = op_info(static_cast<OpId>(i));
    EXPECT_EQ(static_cast<int>(info.id), i);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(op_by_name(info.name), info.id);
    EXPECT_GT(info.params_bytes, 0u);
  }
  EXPECT_EQ(op_by_name("no_such_op"), std::nullopt);
  EXPECT_EQ(op_by_name("kda_recurrence"), OpId::kKdaRecurrence);
}

TEST(Validate, MatmulSaysWhichViewAndWhatWasExpected) {
  MatmulParams p = matmul(3, 384, 5);
  EXPECT_EQ(message(validate(p)), "");
  p.parts[0].weight.values.shape[1] = 256;
  p.parts[0].weight.values.stride[0] = 256;
  EXPECT_EQ(message(validate(p)), "matmul: weight of part 0 is bf16[5, 256], expected [N, K = 384 as in x]");
  p = matmul(3, 384, 5);
  p.parts[0].y.dtype = DType::kBF16;
  EXPECT_EQ(message(validate(p)), "matmul: y of part 0 is bf16[3, 5], expected dtype f32");
  p = matmul(3, 384, 5);
  p.part_count = 9;
  EXPECT_EQ(message(validate(p)), "matmul: there are 9 parts, expected 1 to 8");
  p = matmul(3, 384, 5);
  p.x.stride[1] = 2;
  EXPECT_NE(message(validate(p)).find("x is f32[3, 384] with strides"), std::string::npos);
  p = matmul(3, 384, 5);
  p.parts[0].y = {};
  EXPECT_EQ(message(validate(p)), "matmul: y of part 0 is absent, expected f32 [T = 3 as in x, N = 5 as in weight of part 0]");
}

TEST(Validate, MatmulLeaves) {
  MatmulParams p = matmul(2, 300, 4);
  MatmulPart& part = p.parts[0];
  part.leaf_channels = 128, part.leaf_total = 3;
  EXPECT_EQ(message(validate(p)), "");
  part.leaf_total = 4;
  EXPECT_NE(message(validate(p)).find("only the last leaf may be short"), std::string::npos);
  p = matmul(2, 256, 4);
  p.parts[0].leaf_channels = 128, p.parts[0].leaf_total = 4, p.parts[0].leaf_begin = 1;
  EXPECT_NE(message(validate(p)).find("is the root, but"), std::string::npos);
  p.parts[0].y = f32({2, 2, 4}, 2048);  // leaves 1 and 2 of 4 are two nodes
  EXPECT_EQ(message(validate(p)), "");
  p.parts[0].bias = f32({4});
  EXPECT_NE(message(validate(p)).find("partial sums"), std::string::npos);
  p.parts[0].bias = {};
  p.parts[0].y = f32({1, 2, 4}, 2048);
  EXPECT_NE(message(validate(p)).find("nodes = 2"), std::string::npos);
}

TEST(Validate, ScaleBlocks) {
  MatmulParams p = matmul(1, 200, 130);
  MatrixView& w = p.parts[0].weight;
  w.values.dtype = DType::kF8E4M3;
  w.scales = f32({2, 2});
  w.block_rows = w.block_cols = 128;
  EXPECT_EQ(message(validate(p)), "");
  w.row_offset = 127;  // rows 127 … 256 touch three blocks
  EXPECT_EQ(message(validate(p)), "matmul: weight of part 0 scales is f32[2, 2], expected [row blocks = 3, column blocks = 2]");
  w.row_offset = 128;
  EXPECT_NE(message(validate(p)).find("expected an offset inside the block"), std::string::npos);
}

TEST(Validate, Int8Products) {
  MatmulParams p = matmul(2, 200, 6);
  p.compute = Compute::kInt8;
  MatmulPart& part = p.parts[0];
  part.weight.values.dtype = DType::kI8;
  EXPECT_EQ(message(validate(p)), "matmul: weight of part 0 is i8[6, 200] without scales, expected one for each row");
  part.weight.scales = f32({6, 1});
  part.weight.block_rows = 1, part.weight.block_cols = 128;
  EXPECT_NE(message(validate(p)).find("scale blocks of 1 x 128 from column 0 on, expected one scale for each row"), std::string::npos);
  part.weight.block_cols = 200;
  EXPECT_EQ(message(validate(p)), "");
  part.weight.scales = f32({5, 1});
  EXPECT_NE(message(validate(p)).find("scales is f32[5, 1], expected [row blocks = 6, column blocks = 1]"), std::string::npos);
  part.weight.scales = f32({6, 1});
  part.leaf_channels = 40, part.leaf_begin = 2, part.leaf_total = 9;
  part.y = f32({3, 2, 6}, 2048);
  EXPECT_EQ(message(validate(p)), "matmul: y of part 0 is f32[3, 2, 6]: partial sums of an INT8 product are i32 [T, N]");
  part.y = make_view(memory + 2048, DType::kI32, {2, 6});
  EXPECT_EQ(message(validate(p)), "");
  part.bias = f32({6});
  EXPECT_NE(message(validate(p)).find("partial sums"), std::string::npos);
  part.bias = {};
  part.leaf_begin = 0, part.leaf_total = 5;
  p.compute = Compute::kBF16;
  EXPECT_EQ(message(validate(p)), "matmul: y of part 0 is i32[2, 6], expected dtype f32") << "only an INT8 product has integer sums";
  p.parts[0].y = f32({2, 6}, 2048);
  p.x_amax = f32({2});
  EXPECT_EQ(message(validate(p)), "matmul: x_amax is given, but only INT8 products take it");
}

TEST(Validate, AnInt8SumFits32Bits) {
  MatmulParams p = matmul(1, kInt8ChannelsMax + 1, 1);
  p.compute = Compute::kInt8;
  p.parts[0].weight.values.dtype = DType::kI8;
  p.parts[0].weight.scales = f32({1, 1});
  p.parts[0].weight.block_rows = 1, p.parts[0].weight.block_cols = kInt8ChannelsMax + 1;
  EXPECT_EQ(message(validate(p)), "matmul: weight of part 0 has 131073 channels, an INT8 product takes at most 131072");
  p.compute = Compute::kF32;
  EXPECT_EQ(message(validate(p)), "");
}

TEST(Validate, KvBNeverMeetsCodes) {
  MlaAbsorbParams p{.q = f32({1, 2, 3}), .kv_b = {.matrix = {}, .nope = 3, .value = 5}, .compute = Compute::kFp8, .out = f32({1, 2, 6}, 2048)};
  p.kv_b.matrix.values = f32({16, 6});
  EXPECT_NE(message(validate(p)).find("expected f32 or bf16 for kv_b"), std::string::npos);
  p.compute = Compute::kBF16;
  EXPECT_EQ(message(validate(p)), "");
}

TEST(Validate, StreamsMayShareTheirRowsButOutMayNot) {
  MhcOutParams p;
  p.streams = f32({2, 4, 8});
  p.streams.stride = {8, 0, 1};
  p.y = f32({2, 8}, 512), p.post = f32({2, 4}), p.comb = f32({2, 4, 4});
  p.out = f32({2, 4, 8}, 1024);
  EXPECT_EQ(message(validate(p)), "");
  p.out.data = p.streams.data;
  EXPECT_EQ(message(validate(p)), "mhc_out: out and streams are the same memory, expected different buffers");
  p.out = f32({2, 4, 8}, 1024);
  p.out.stride = {8, 0, 1};
  EXPECT_NE(message(validate(p)).find("out is f32[2, 4, 8] with strides"), std::string::npos);
}

TEST(Validate, Recurrence) {
  KdaRecurrenceParams p;
  p.q = f32({3, 2, 4}), p.k = f32({3, 2, 4}), p.v = f32({3, 2, 6}), p.g = f32({3, 8}), p.beta = f32({3, 2});
  p.entering = p.states = f32({5, 2, 4, 6});
  p.batch.begin = i32({3}), p.batch.start = i32({2}), p.state_in = i32({2}), p.state_out = i32({3});
  p.o = f32({3, 2, 6}, 2048);
  EXPECT_EQ(message(validate(p)), "");
  p.pair_m = f32({2, 2, 4, 4});
  EXPECT_NE(message(validate(p)).find("expected both or neither"), std::string::npos);
  p.pair_m = {};
  p.entering.dtype = p.states.dtype = DType::kI8;
  EXPECT_NE(message(validate(p)).find("its scales are absent: expected scales with i8 and only with it"), std::string::npos);
  p.entering_scales = p.states_scales = f32({5, 2, 4});
  EXPECT_EQ(message(validate(p)),
            "kda_recurrence: entering_scales is f32[5, 2, 4], expected [rows = 5 as in entering, H = 2 as in q, V = 6 as in v]");
  p.entering_scales = p.states_scales = f32({5, 2, 6});
  EXPECT_EQ(message(validate(p)), "");
  p.entering = f32({5, 2, 4, 6}), p.entering_scales = {};
  EXPECT_NE(message(validate(p)).find("expected one dtype"), std::string::npos);
  p.entering = p.states = f32({5, 2, 4, 6}), p.states_scales = {};
  p.batch.begin = i32({2});
  EXPECT_EQ(message(validate(p)), "kda_recurrence: begin is i32[2], expected [S + 1 = 3]");
  p.batch.begin = i32({3});
  p.g = f32({3, 7});
  EXPECT_EQ(message(validate(p)), "kda_recurrence: g is f32[3, 7], expected [T = 3 as in q, H·K = 8]");
}

TEST(Validate, RouteGroups) {
  RouteParams p;
  p.logits = f32({2, 8}), p.bias = f32({8}), p.ids = i32({2, 4}), p.weights = f32({2, 4});
  p.groups = 4, p.groups_kept = 2;
  EXPECT_EQ(message(validate(p)), "");
  p.groups_kept = 1;
  EXPECT_EQ(message(validate(p)), "route: 4 experts a token are asked for, but only 2 can be chosen");
  p.groups = 3;
  EXPECT_EQ(message(validate(p)), "route: 8 experts do not divide into 3 groups");
}

/// Counts views; sends the values of item `replace` elsewhere.
class Replacer : public ViewVisitor {
 public:
  explicit Replacer(const void* old_data) : old_data_(old_data) {}
  void view(const char* name, Role role, View& view) override {
    ++seen[name];
    roles[name] = role;
    if (view.data == old_data_) view.data = memory + 4000;
  }
  std::map<std::string, int> seen;
  std::map<std::string, Role> roles;

 private:
  const void* old_data_;
};

TEST(Visit, StackItemsAreReplacedInACopy) {
  std::array<MatrixView, 3> items;
  for (size_t i = 0; i < items.size(); ++i) items[i].values = f32({2, 4}, static_cast<int64_t>(8 * i));
  MoeParams p;
  p.x = f32({1, 4}, 100);
  p.gate = p.up = {items.data(), 3};
  p.y = f32({1, 4}, 200);
  EXPECT_EQ(p.gate.uniform_stride(), 8);
  const MoeParams before = p;
  Replacer replacer(memory + 8);
  op_info(OpId::kMoe).visit(&p, replacer);
  EXPECT_EQ(replacer.seen["gate"], 3);
  EXPECT_EQ(replacer.seen["x"], 1);
  EXPECT_EQ(replacer.seen.count("present"), 0u) << "absent views are not shown";
  EXPECT_EQ(replacer.roles["y"], Role::kOut);
  EXPECT_NE(p.gate.items, before.gate.items);
  EXPECT_EQ(p.gate.items[1].values.data, memory + 4000);
  EXPECT_EQ(p.gate.items[2].values.data, memory + 16);
  EXPECT_EQ(items[1].values.data, memory + 8) << "the model's own list is untouched";
  EXPECT_EQ(p.gate.uniform_stride(), std::nullopt);
  Replacer nothing(nullptr);
  MoeParams q = before;
  op_info(OpId::kMoe).visit(&q, nothing);
  EXPECT_EQ(q.gate.items, before.gate.items) << "no copy without a change";
}

TEST(Visit, ConstParams) {
  const MatmulParams p = matmul(2, 3, 4);
  std::string text;
  for_each_view(p, [&](const char* name, Role role, const View& view) { text += name + describe(view) + (role == Role::kOut ? "! " : " "); });
  EXPECT_EQ(text, "xf32[2, 3] weightbf16[4, 3] yf32[2, 4]! ");
}

TEST(Cost, Basics) {
  const MatmulParams p = matmul(3, 100, 7);
  const Cost c = cost(p);
  EXPECT_EQ(c[Counter::kFlops], 2 * 3 * 100 * 7);
  EXPECT_EQ(c[Counter::kWeightBytes], 7 * 100 * 2);
  EXPECT_EQ(c[Counter::kBytesRead], 3 * 100 * 4 + 7 * 100 * 2);
  EXPECT_EQ(c[Counter::kBytesWritten], 3 * 7 * 4);
  RmsNormParams n{.x = f32({5, 8}), .weight = f32({8}), .eps = 1e-5f, .out = f32({5, 8})};
  EXPECT_EQ(op_info(OpId::kRmsNorm).cost(&n)[Counter::kRowsNormalised], 5);
  StreamMeanParams m{.streams = f32({2, 4, 8}), .out = f32({2, 8})};
  m.streams.stride = {8, 0, 1};
  EXPECT_EQ(cost(m)[Counter::kBytesRead], 2 * 8 * 4) << "identical streams are one";
}

TEST(Cost, AttentionKnowsTheKeysIfTheHostKnowsTheBatch) {
  const std::array<int32_t, 3> begin = {0, 2, 3};
  const std::array<int32_t, 2> start = {3, 40};  // positions 3, 4 and 40
  MlaAttendParams p;
  p.q = f32({3, 2, 16});
  p.latents = {.pool = f32({64, 16}), .table = i32({2, 4}), .block_rows = 16};
  p.selection = {.pools = i32({3, 8}), .tail_begin = {}, .kpool = 4};
  p.batch = {.begin = i32({3}), .start = i32({2}), .longest = 2, .host_begin = begin.data(), .host_start = start.data()};
  p.out = f32({3, 2, 16}, 2048);
  EXPECT_EQ(message(validate(p)), "");
  const int64_t keys = 4 + 5 + (8 * 4 + 1);
  EXPECT_EQ(cost(p)[Counter::kExponentials], 2 * keys);
  p.batch.host_begin = nullptr;
  EXPECT_EQ(cost(p)[Counter::kExponentials], 2 * (32 + 35 + 32)) << "as much as fits the tables: positions 63, 62 and 63";
}

}  // namespace
}  // namespace lathe::ops
