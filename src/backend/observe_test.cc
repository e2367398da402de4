// Goal: an observer sees every call once, can replace a tensor, and its counters tell a kernel that does the work twice.
#include "backend/observe_ops.h"

#include <algorithm>
#include <set>
#include <string>

#include "backend/fake_device.h"
#include "backend/test_support.h"
#include "ops/basic.h"
#include "ops/mla.h"

namespace lathe::backend::testing {
namespace {

using ops::Counter;
using ops::OpId;

const ops::Variant& reference_of(OpId op) {
  for (const ops::Variant& variant : reference_table()) {
    if (variant.op == op) return variant;
  }
  LATHE_CHECK(false, "no reference");
}

void norm_twice(const void* params, const ops::LaunchContext& context) {
  reference_of(OpId::kRmsNorm).run(params, context);
  reference_of(OpId::kRmsNorm).run(params, context);
}
void norm_twice_counted(const void* params, const ops::LaunchContext& context) {
  reference_of(OpId::kRmsNorm).run_counted(params, context);
  reference_of(OpId::kRmsNorm).run_counted(params, context);
}
bool always(const void*) { return true; }

TEST(Counting, SeesAKernelThatNormalisesTwice) {
  const std::vector<ops::Variant> table = {{OpId::kRmsNorm, "twice", always, norm_twice, norm_twice_counted}, reference_of(OpId::kRmsNorm)};
  const auto device = *FakeDevice::create(table);
  for (const auto& [variant, ratio] : {std::pair{"ref", 1.0}, std::pair{"twice", 2.0}}) {
    const auto dispatch = dispatch_on(*device, {.no_fallback = true, .kernels = {{"rms_norm", variant}}, .host_reference = {}, .rank = 0});
    CountingObserver counting(*device);
    dispatch->set_observer(&counting);
    Tensors tensors(*device);
    OpSite site{.name = "norm"};
    dispatch->run(site, ops::RmsNormParams{.x = tensors.floats({5, 8}), .weight = tensors.floats({8}), .eps = 1e-5f, .out = tensors.zeros({5, 8})});
    const CountingObserver::Total& total = counting.total(OpId::kRmsNorm);
    EXPECT_EQ(total.calls, 1);
    EXPECT_EQ(total.counted_calls, 1);
    EXPECT_EQ(total.needed[static_cast<size_t>(Counter::kRowsNormalised)], 5);
    EXPECT_EQ(total.ratio(Counter::kRowsNormalised), ratio) << variant;
    EXPECT_EQ(total.ratio(Counter::kBytesWritten), ratio) << variant;
  }
}

TEST(Counting, KernelsWithoutATwinHaveNoCounters) {
  std::vector<ops::Variant> table = {reference_of(OpId::kRmsNorm)};
  table[0].run_counted = nullptr;
  const auto device = *FakeDevice::create(table);
  const auto dispatch = dispatch_on(*device);
  CountingObserver counting(*device);
  dispatch->set_observer(&counting);
  Tensors tensors(*device);
  OpSite site{.name = "norm"};
  const View x = tensors.floats({5, 8});
  dispatch->run(site, ops::RmsNormParams{.x = x, .weight = tensors.floats({8}), .eps = 0, .out = x});
  EXPECT_EQ(counting.total(OpId::kRmsNorm).calls, 1);
  EXPECT_EQ(counting.total(OpId::kRmsNorm).counted_calls, 0);
}

TEST(Counting, AddsUpThePartsOfACompositionAndWorksThroughTheHostReference) {
  for (const char* how : {"matmul+swiglu", "host"}) {
    const auto table = reference_table();
    const auto device = *FakeDevice::create({table.begin(), table.end()});
    const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {{"gate_up", how}}, .host_reference = table, .rank = 0});
    CountingObserver counting(*device);
    dispatch->set_observer(&counting);
    for (const Problem& problem : problems()) {
      if (problem.op != OpId::kGateUp) continue;
      Tensors tensors(*device);
      OpSite site{.name = "mlp"};
      problem.run(tensors, *dispatch, site);
    }
    const CountingObserver::Total& total = counting.total(OpId::kGateUp);
    EXPECT_EQ(total.calls, 1);
    EXPECT_EQ(total.counted_calls, 1);
    EXPECT_NEAR(total.ratio(Counter::kWeightBytes), 1.0, 0.05) << how;  // scales are shared by rows
    EXPECT_GE(total.ratio(Counter::kBytesWritten), 1.0) << how;
    EXPECT_EQ(counting.total(OpId::kMatmul).calls, 0) << "parts belong to their call";
  }
}

/// Doubles the input of one layer, in memory of its own.
class Replace final : public OpObserver {
 public:
  Replace(Tensors& tensors, int layer) : tensors_(tensors), layer_(layer) {}
  void before(OpCall& call, Device& /*device*/) override {
    if (call.site->layer != layer_) return;
    auto& params = *static_cast<ops::AddParams*>(call.params);
    std::vector<float> values = tensors_.get(params.a);
    for (float& value : values) value *= 2;
    params.a = tensors_.put(values.data(), DType::kF32, {params.a.dim(0), params.a.dim(1)});
  }

 private:
  Tensors& tensors_;
  int layer_;
};

TEST(Observation, ReplacingATensorChangesWhatComesAfter) {
  const auto table = reference_table();
  const auto device = *FakeDevice::create({table.begin(), table.end()});
  std::vector<HashObserver::Entry> runs[2];
  for (const bool replace : {false, true}) {
    const auto dispatch = dispatch_on(*device);
    Tensors tensors(*device);
    Replace replacer(tensors, replace ? 5 : -2);
    HashObserver hashes(*device);
    ObserverChain chain({&replacer, &hashes});
    dispatch->set_observer(&chain);
    View x = tensors.floats({2, 3});
    std::vector<OpSite> sites(8);
    for (int layer = 0; layer < 8; ++layer) {
      sites[static_cast<size_t>(layer)].name = "residual", sites[static_cast<size_t>(layer)].layer = layer;
      const View out = tensors.zeros({2, 3});
      dispatch->run(sites[static_cast<size_t>(layer)], ops::AddParams{.a = x, .b = x, .out = out});
      x = out;
    }
    runs[replace] = hashes.entries();
  }
  ASSERT_EQ(runs[0].size(), 8u);
  for (size_t layer = 0; layer < 8; ++layer) EXPECT_EQ(runs[0][layer] == runs[1][layer], layer < 5) << "layer " << layer;
  EXPECT_STREQ(runs[0][3].op, "add");
  EXPECT_STREQ(runs[0][3].view, "out");
}

TEST(Observation, TellsTheCallsFacts) {
  class Facts final : public OpObserver {
   public:
    void after(OpCall& call, Device&) override { calls.push_back(call); }
    std::vector<OpCall> calls;
  } facts;
  const auto device = reference_device();
  const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {{"add", "mhc_out"}}, .host_reference = {}, .rank = 3});
  dispatch->set_observer(&facts);
  Tensors tensors(*device);
  const View x = tensors.floats({2, 3});
  OpSite add{.name = "residual", .layer = 7, .heads = {4, 6}};
  OpSite gelu{.name = "gelu"};
  dispatch->set_tokens({30, 32});
  dispatch->run(add, ops::AddParams{.a = x, .b = x, .out = tensors.zeros({2, 3})});
  dispatch->set_tokens({});
  dispatch->run(gelu, ops::GeluParams{.x = x, .out = x});
  ASSERT_EQ(facts.calls.size(), 2u);
  EXPECT_EQ(facts.calls[0].tokens, (OpRange{30, 32}));
  EXPECT_EQ(facts.calls[0].heads, (OpRange{4, 6}));
  EXPECT_EQ(facts.calls[1].tokens, OpRange{});
  EXPECT_EQ(facts.calls[1].heads, OpRange{});
  EXPECT_EQ(facts.calls[0].info->id, OpId::kAdd);
  EXPECT_STREQ(facts.calls[0].variant, "mhc_out");
  EXPECT_STREQ(facts.calls[1].variant, "ref");
  EXPECT_EQ(facts.calls[1].call, 1);
  EXPECT_EQ(facts.calls[1].rank, 3);
  EXPECT_EQ(facts.calls[0].site->layer, 7);
  EXPECT_LE(facts.calls[0].end_ns, facts.calls[1].ready_ns);
  EXPECT_LE(facts.calls[1].ready_ns, facts.calls[1].start_ns);
  EXPECT_LE(facts.calls[1].start_ns, facts.calls[1].end_ns);
}

TEST(Timeline, HasOpsAndPieces) {
  KeptSpans keep;
  const auto device = reference_device(2);
  const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {{"gelu", "host"}}, .host_reference = reference_table(), .rank = 1});
  dispatch->set_recorder(&keep);
  Tensors tensors(*device);
  const View x = tensors.floats({64, 128});
  OpSite add{.name = "residual", .layer = 7};
  OpSite gelu{.name = "gelu", .layer = 8};
  dispatch->run(add, ops::AddParams{.a = x, .b = x, .out = tensors.zeros({64, 128})});
  dispatch->run(gelu, ops::GeluParams{.x = x, .out = x});
  dispatch->set_recorder(nullptr);
  const size_t kept = keep.spans.size();
  dispatch->run(add, ops::AddParams{.a = x, .b = x, .out = x});
  EXPECT_EQ(keep.spans.size(), kept) << "off is off";
  std::string ops;
  std::set<std::string> categories;
  int64_t op_end = 0;
  for (const base::Span& span : keep.spans) {
    EXPECT_LE(span.ready_ns, span.start_ns);
    EXPECT_LE(span.start_ns, span.end_ns);
    EXPECT_EQ(span.rank, 1);
    EXPECT_EQ(span.tokens, 64);
    const std::string category = span.category;
    const bool of_add = std::string(span.name) == "add" || category == "wait";  // host references run on one thread
    EXPECT_EQ(span.layer, of_add ? 7 : 8);
    if (category == "wait") continue;  // of which op a helper's idling tells its detail
    categories.insert(category);
    if (category == "op") {
      EXPECT_LE(op_end, span.ready_ns) << "an op is not ready before the one before has ended";
      op_end = span.end_ns;
    }
    if (category == "op") ops += fmt::format("{} by {}; ", span.name, span.detail);
  }
  EXPECT_EQ(ops, "add by ref; gelu by host; ");
  EXPECT_EQ(categories, (std::set<std::string>{"op", "piece"}));
  EXPECT_TRUE(std::any_of(keep.spans.begin(), keep.spans.end(), [](const base::Span& span) {
    return std::string(span.category) == "wait" && std::string(span.name) == "barrier" && std::string(span.detail) == "ref";
  }));
}

TEST(Mirror, AnObserverWithoutMemoryForCopiesPassesTheCallOverAndSaysSo) {
  const auto device = *FakeDevice::create({reference_of(OpId::kAdd)});
  Tensors tensors(*device);
  View vast = tensors.floats({2, 3});
  vast.shape[0] = int64_t{1} << 55;  // nothing has that much memory
  ops::AddParams params{.a = vast, .b = vast, .out = vast};
  OpSite site{.name = "sum", .layer = 3};
  ops::OpCounters counters;
  OpCall call{.info = &ops::op_info(OpId::kAdd), .site = &site, .params = &params, .counters = &counters};
  HashObserver hashes(*device);
  CountingObserver counting(*device);
  EXPECT_TRUE(hashes.status().has_value());
  hashes.after(call, *device);
  counting.after(call, *device);
  EXPECT_TRUE(hashes.entries().empty());
  EXPECT_EQ(counting.total(OpId::kAdd).counted_calls, 0);
  for (const Result<void>& status : {hashes.status(), counting.status()}) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::kResourceExhausted);
    EXPECT_EQ(status.error().message, "layer 3 sum (add): no memory on the host to look into its inputs and outputs");
  }
}

}  // namespace
}  // namespace lathe::backend::testing
