// Goal: what a layer reads need not be there before before_layer of that layer; and replacing what a layer reads changes that layer and those after it only.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "backend/observe_ops.h"
#include "ops/mhc.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

RigOptions base() { return {.directory = data_path("golden/base"), .isa = "", .dispatch = {}}; }

/// Brings each layer's caches at the last moment, and notes what it was asked for.
class Deliver final : public StepHooks {
 public:
  Deliver(cache::Store& store, SequenceId sequence, const cache::Snapshot& snapshot) : store_(store), sequence_(sequence), snapshot_(snapshot) {}
  Result<void> before_layer(int32_t layer, std::span<const std::string> families) override {
    for (const std::string& family : families) read_.emplace_back(layer, family);
    return store_.deliver(sequence_, snapshot_, layer);
  }
  Result<void> after_layer(int32_t layer, std::span<const std::string> families) override {
    for (const std::string& family : families) written_.emplace_back(layer, family);
    return {};
  }
  void failed(const Error& why) override { ADD_FAILURE() << why.message; }
  using Log = std::vector<std::pair<int32_t, std::string>>;
  const Log& read() const { return read_; }
  const Log& written() const { return written_; }

 private:
  cache::Store& store_;
  SequenceId sequence_;
  const cache::Snapshot& snapshot_;
  Log read_, written_;
};

TEST(Delivery, OneLayerAtATime) {
  const std::vector<TokenId> ids = GoldenFile(data_path("golden/base.safetensors")).tokens("ids.5");
  const std::vector<TokenId> rest(ids.begin() + 50, ids.end());
  Rig rig(base());
  SequenceId uncut;
  rig.prefill({ids.begin(), ids.begin() + 50}, {}, &uncut);
  const cache::Snapshot snapshot = must(rig.store().snapshot(uncut), "snapshot");
  const std::vector<float> wanted = rig.feed(uncut, rest);

  Rig other(base());
  const SequenceId late = must(other.store().open_for(snapshot), "open");
  for (const auto& [layer, family] : other.store().families()) {
    const View plane = other.store().plane(layer, family.name);
    std::memset(plane.data, 0xFF, static_cast<size_t>(plane.extent_bytes()));  // NaN until delivered
  }
  Deliver hooks(other.store(), late, snapshot);
  EXPECT_TRUE(same_bits(other.feed(late, rest, ItemKind::kPrefill, Logits::kAll, {}, &hooks), wanted));
  EXPECT_TRUE(same_bits(other.caches(late), rig.caches(uncut)));
  // Every family of every layer is announced, once, before and after.
  Deliver::Log all;
  for (const auto& [layer, family] : other.store().families()) all.emplace_back(layer, family.name);
  EXPECT_EQ(hooks.read(), all);
  EXPECT_EQ(hooks.written(), all);
}

/// Writes down what it is asked; a hook that is named refuses.
class Diary final : public StepHooks {
 public:
  explicit Diary(std::string refused = "") : refused_(std::move(refused)) {}
  Result<void> before_layer(int32_t layer, std::span<const std::string>) override { return note(fmt::format("before {}", layer)); }
  Result<void> after_layer(int32_t layer, std::span<const std::string>) override { return note(fmt::format("after {}", layer)); }
  void failed(const Error& why) override { entries.push_back("failed: " + why.message); }
  std::vector<std::string> entries;

 private:
  Result<void> note(const std::string& what) {
    entries.push_back(what);
    return what == refused_ ? Result<void>(err(Code::kUnavailable, "{} is late", what)) : Result<void>{};
  }
  std::string refused_;
};

/// One step of a new sequence: "" or what it failed with. Closes the sequence.
std::string step_message(Rig& rig, const std::vector<TokenId>& tokens, StepHooks& hooks) {
  const SequenceId sequence = rig.open();
  must(rig.store().append(sequence, static_cast<int64_t>(tokens.size()), 0), "append");
  const StepItem item{.sequence = sequence, .kind = ItemKind::kPrefill, .tokens = tokens, .rows = {}, .at = {}};
  const auto result = rig.model().step({&item, 1}, rig.store(), &hooks);
  rig.store().close(sequence);
  return result ? "" : result.error().message;
}

const std::vector<TokenId> kTokens = {1, 2, 3, 4, 5, 6, 7};

TEST(Delivery, AFailedHookIsTheLastOneAndTheNextStepHolds) {
  Rig rig(base());
  const std::vector<float> wanted = rig.prefill(kTokens);
  for (const std::string refused : {"before 1", "after 1", "after 7"}) {  // in the middle, and the very last one
    Diary hooks(refused);
    EXPECT_EQ(step_message(rig, {1, 2}, hooks), refused + " is late");
    ASSERT_GE(hooks.entries.size(), 2u);
    EXPECT_EQ(hooks.entries[hooks.entries.size() - 2], refused);
    EXPECT_EQ(hooks.entries.back(), "failed: " + refused + " is late");
    EXPECT_TRUE(same_bits(rig.prefill(kTokens), wanted)) << "after " << refused;
  }
}

TEST(Delivery, NoHookSeesALayerThatLackedMemoryAndTheNextStepHolds) {
  /// From layer 2 on, every call fails as one does that gets no scratch.
  class Starve final : public backend::OpObserver {
   public:
    explicit Starve(backend::Dispatch& dispatch) : dispatch_(dispatch) {}
    void after(backend::OpCall& call, backend::Device&) override {
      EXPECT_LE(call.site->layer, 2);
      if (call.site->layer == 2) dispatch_.fail({Code::kResourceExhausted, "no scratch"});
    }

   private:
    backend::Dispatch& dispatch_;
  };
  Rig rig(base());
  const std::vector<float> wanted = rig.prefill(kTokens);
  Starve starve(rig.dispatch());
  rig.dispatch().set_observer(&starve);
  Diary hooks("before 3");  // would be an error of its own, and hide the first
  EXPECT_EQ(step_message(rig, {1, 2}, hooks), "no scratch");
  rig.dispatch().set_observer(nullptr);
  EXPECT_EQ(hooks.entries, (std::vector<std::string>{"before 0", "after 0", "before 1", "after 1", "before 2", "failed: no scratch"}));
  EXPECT_TRUE(same_bits(rig.prefill(kTokens), wanted));
}

TEST(Delivery, NoHookSeesALayerWhoseLaunchGotNoScratch) {
  Rig rig(base(), must(backend::make_cpu_device({.threads = 1, .isa = "", .scratch_max = 64}), "device"));
  Diary hooks;
  const std::string message = step_message(rig, kTokens, hooks);
  EXPECT_NE(message.find("bytes of scratch"), std::string::npos) << message;
  ASSERT_FALSE(hooks.entries.empty());
  EXPECT_EQ(hooks.entries.back(), "failed: " + message);
  EXPECT_EQ(std::count(hooks.entries.begin(), hooks.entries.end(), hooks.entries.back()), 1);
  EXPECT_LT(hooks.entries.size(), 2u * 8u) << "hooks of every layer were called";
}

/// Logits of two later steps of a drafting round; the first one fails once before, if asked for.
std::vector<float> drafted(bool starve_once) {
  class Starve final : public backend::OpObserver {
   public:
    explicit Starve(backend::Dispatch& dispatch) : dispatch_(dispatch) {}
    void after(backend::OpCall& call, backend::Device&) override {
      if (std::string(call.site->name).ends_with("dsa.latents")) dispatch_.fail({Code::kResourceExhausted, "no scratch"});
    }

   private:
    backend::Dispatch& dispatch_;
  };
  Rig rig({.directory = data_path("builtin"), .isa = "", .dispatch = {}});
  const SequenceId sequence = rig.open();
  must(rig.store().append(sequence, static_cast<int64_t>(kTokens.size()), 0), "append");
  const StepItem item{.sequence = sequence, .kind = ItemKind::kPrefill, .tokens = kTokens, .rows = {}, .at = {}};
  const StepResult step = must(rig.model().step({&item, 1}, rig.store()), "step");
  rig.store().commit(sequence, 0);
  must(rig.store().append(sequence, 3, 0), "append");
  const std::vector<TokenId> next = {2, 3, 4, 5, 6, 7, 8};
  const DraftItem all{.sequence = sequence, .tokens = next, .rows = {}};
  must(rig.model().draft_prefill({&all, 1}, step.hidden, rig.store()), "draft");
  std::vector<float> out;
  for (const int64_t ahead : {1, 2}) {
    const DraftStepItem later{.sequence = sequence, .position = 6 + ahead, .token = 9, .row = ahead == 1 ? 6 : 0, .origin = 6, .origin_position = 6};
    if (starve_once && ahead == 1) {
      Starve starve(rig.dispatch());
      rig.dispatch().set_observer(&starve);
      Diary hooks;
      const auto failed = rig.model().draft_step({&later, 1}, rig.store(), &hooks);
      rig.dispatch().set_observer(nullptr);
      EXPECT_EQ(failed ? "" : failed.error().message, "no scratch");
      EXPECT_EQ(hooks.entries, (std::vector<std::string>{"before 8", "failed: no scratch"}));
    }
    const std::vector<float> logits = rig.host(must(rig.model().draft_step({&later, 1}, rig.store()), "draft step").logits);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

TEST(Delivery, AFailedDraftStepCanBeTakenAgain) { EXPECT_TRUE(same_bits(drafted(true), drafted(false))); }

/// Gives layer 5 other streams than layer 4 left.
class Replace final : public backend::OpObserver {
 public:
  void before(backend::OpCall& call, backend::Device& device) override {
    if (call.site->layer != 5 || std::string(call.site->name) != "mhc.attn_in") return;
    auto* const params = static_cast<ops::MhcInParams*>(call.params);
    std::vector<float> streams = copy_to_floats(device, params->streams);
    for (float& value : streams) value *= 1.25f;
    memory_ = must(backend::Buffer::create(device, static_cast<int64_t>(streams.size() * sizeof(float))), "buffer");
    device.copy_to_device(memory_.data(), streams.data(), memory_.bytes());
    params->streams = tensor::make_view(memory_.data(), DType::kF32, {params->streams.dim(0), params->streams.dim(1), params->streams.dim(2)});
  }

 private:
  backend::Buffer memory_;
};

/// Positions and heads of the calls, by site of layer 0 (KDA), layer 3 (DSA) and outside.
class Ranges final : public backend::OpObserver {
 public:
  void after(backend::OpCall& call, backend::Device&) override {
    tokens.insert({call.tokens.begin, call.tokens.end});
    if (call.heads.end > 0) heads[call.site->name] = {call.heads.begin, call.heads.end};
  }
  using Range = std::pair<int64_t, int64_t>;
  std::set<Range> tokens;
  std::map<std::string, Range> heads;
};

TEST(Observation, CallsNameTheirPositionsAndHeads) {
  Rig rig(base());
  GoldenFile gold(data_path("golden/base.safetensors"));
  const std::vector<TokenId> ids = gold.tokens("ids.5");
  SequenceId sequence;
  rig.prefill({ids.begin(), ids.begin() + 50}, {}, &sequence);
  Ranges ranges;
  rig.dispatch().set_observer(&ranges);
  rig.feed(sequence, {ids.begin() + 50, ids.end()});
  EXPECT_EQ(ranges.tokens, (std::set<Ranges::Range>{{50, 65}}));
  const Ranges::Range all{0, 4};
  for (const char* site : {"kda.projections", "kda.conv", "kda.recurrence", "kda.output", "dsa.q_projections", "dsa.attend"}) {
    EXPECT_EQ(ranges.heads[site], all) << site;
  }
  EXPECT_EQ(ranges.heads["dsa.select"], (Ranges::Range{0, 16}));  // heads of the indexer
  for (const char* site : {"mhc.attn_in", "norm.input", "moe.experts", "embed", "head.logits"}) EXPECT_FALSE(ranges.heads.contains(site)) << site;
  const std::vector<float> pixels = gold.floats("image.0.pixels");
  ranges.tokens.clear();
  must(rig.model().encode_image({.patches = pixels, .steps = 1, .height = 4, .width = 4}), "picture");
  EXPECT_EQ(ranges.tokens, (std::set<Ranges::Range>{{0, 0}}));
  rig.dispatch().set_observer(nullptr);
}

TEST(Observation, ReplacingTheInputOfLayerFive) {
  Rig rig(base());
  const std::vector<TokenId> ids = GoldenFile(data_path("golden/base.safetensors")).tokens("ids.3");
  backend::HashObserver plain(rig.device());
  rig.dispatch().set_observer(&plain);
  rig.prefill(ids);
  Replace replace;
  backend::HashObserver changed(rig.device());
  backend::ObserverChain both({&replace, &changed});
  rig.dispatch().set_observer(&both);
  rig.prefill(ids);
  rig.dispatch().set_observer(nullptr);
  ASSERT_EQ(plain.entries().size(), changed.entries().size());
  std::set<int32_t> touched;
  bool reached = false;
  for (size_t i = 0; i < plain.entries().size(); ++i) {
    const auto& a = plain.entries()[i];
    const auto& b = changed.entries()[i];
    ASSERT_EQ(a.site, b.site);
    reached = reached || a.layer == 5;
    EXPECT_TRUE(reached || a.hash == b.hash) << a.site << " of layer " << a.layer;
    if (a.hash != b.hash) touched.insert(a.layer);
  }
  EXPECT_EQ(touched, (std::set<int32_t>{-1, 5, 6, 7}));  // -1: final norm and head
}

}  // namespace
}  // namespace lathe::models::golden
