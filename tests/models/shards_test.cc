// Goal: a model cut over ranks by its shard descriptions, its sums taken in the canonical tree, has the bits of the uncut one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "models/glm5_next_plan.h"
#include "models/quantize.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

struct Cut {
  const char* name;
  const char* directory;
  int ranks;
  Precision precision;
  int64_t first = 0;   ///< two ranks: units of every shard that the first one holds; 0: the default cut
  bool codes = false;  ///< INT8 weights and activations, made of that model
  StateKeeping keeping = StateKeeping::kPlain;
};

/// Models with INT8 weights and activations, made when a test first asks and removed in the end.
class Codes : public testing::Environment {
 public:
  static std::string of(const std::string& directory) {
    std::string& folder = folders[directory];
    if (!folder.empty()) return folder;
    folder = (std::filesystem::temp_directory_path() / fmt::format("lathe_shards_{}_{}", ::getpid(), folders.size())).string();
    const QuantizeOptions options{.weights = WeightFormat::kInt8, .int8_activations = true, .keep = {}, .threads = 2};
    must(quantize_model(data_path(directory), folder, options, [](uint64_t, uint64_t) { return true; }), "quantise");
    return folder;
  }
  void TearDown() override {
    for (const auto& [name, folder] : folders) std::filesystem::remove_all(folder);
  }

 private:
  static inline std::map<std::string, std::string> folders;
};
const testing::Environment* const kCodes = testing::AddGlobalTestEnvironment(new Codes);

std::string model_of(const Cut& cut) { return cut.codes ? Codes::of(cut.directory) : data_path(cut.directory); }

/// What a rank computes, and the uncut model: prefill in two pieces, then steps of one token.
std::vector<float> run(Rig& rig, const std::vector<TokenId>& ids) {
  const auto half = static_cast<int64_t>(ids.size() / 2);
  SequenceId sequence;
  std::vector<float> out = rig.prefill(ids, {half}, &sequence);
  for (const TokenId token : {5, 6, 7}) {
    const std::vector<float> logits = rig.feed(sequence, {token}, ItemKind::kDecode);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

RigOptions options(const Cut& cut) {
  RigOptions out{.directory = model_of(cut),
                 .model = {.precision = cut.precision, .max_batch_tokens = 128, .shards = {}, .groups = {}},
                 .isa = "",
                 .threads = 1,
                 .slots = 1,
                 .dispatch = {}};
  out.model.caches = out.model.cache_formats();
  out.model.caches->keeping = cut.keeping;
  return out;
}

/// A cut whose covers have other nodes than the halves of the tree.
ShardPlan plan_for(const Cut& cut, const Glm5NextConfig& config, int rank) {
  ShardPlan plan = default_shard_plan(config, rank, cut.ranks);
  if (cut.first == 0) return plan;
  for (tensor::Shard* shard : {&plan.kda_heads, &plan.mla_heads, &plan.dense_channels, &plan.shared_channels, &plan.experts, &plan.vocabulary}) {
    if (shard->kind == tensor::ShardKind::kReplicated) continue;
    shard->begin = rank == 0 ? 0 : cut.first;
    shard->end = rank == 0 ? cut.first : shard->total;
  }
  return plan;
}

using Groups = std::array<std::vector<std::unique_ptr<backend::Group>>, 4>;

Groups groups_of(int ranks) {
  Groups groups;
  for (auto& group : groups) group = backend::make_local_group(ranks);
  return groups;
}

RigOptions rank_options(const Cut& cut, const Glm5NextConfig& config, const Groups& groups, size_t rank) {
  RigOptions mine = options(cut);
  mine.model.shards = plan_for(cut, config, static_cast<int>(rank));
  mine.model.groups = {.tp_kda = groups[0][rank].get(), .attn = groups[1][rank].get(), .tp_ffn = groups[2][rank].get(), .ep = groups[3][rank].get()};
  mine.dispatch.rank = static_cast<int32_t>(rank);
  return mine;
}

class Shards : public testing::TestWithParam<Cut> {};

TEST_P(Shards, SameBitsAsUncut) {
  const Cut cut = GetParam();
  const std::vector<TokenId> ids = GoldenFile(data_path("golden/base.safetensors")).tokens("ids.5");
  Rig uncut(options(cut));
  const std::vector<float> wanted = run(uncut, ids);
  const Glm5NextConfig config = must(read_glm5_next_config(model_of(cut)), "config").config;

  const auto ranks = static_cast<size_t>(cut.ranks);
  const Groups groups = groups_of(cut.ranks);
  std::vector<std::vector<float>> parts(ranks);
  std::vector<int64_t> widths(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const RigOptions mine = rank_options(cut, config, groups, rank);
      Rig rig(mine);
      for (const backend::OpSite* site : rig.dispatch().sites()) {
        const tensor::Shard& heads = std::string(site->name).starts_with("kda.") ? mine.model.shards.kda_heads : mine.model.shards.mla_heads;
        if (std::string(site->name) == "kda.recurrence" || std::string(site->name) == "dsa.attend") {
          EXPECT_EQ(site->heads, (backend::OpRange{heads.begin, heads.end})) << site->name << " of rank " << rank;
        }
      }
      parts[rank] = run(rig, ids);
      widths[rank] = rig.vocabulary();
    });
  }
  for (std::thread& thread : threads) thread.join();

  const int64_t width = uncut.vocabulary();
  std::vector<float> got(wanted.size());
  int64_t begin = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (int64_t row = 0; row < static_cast<int64_t>(wanted.size()) / width; ++row) {
      std::copy_n(parts[rank].begin() + row * widths[rank], widths[rank], got.begin() + row * width + begin);
    }
    begin += widths[rank];
  }
  ASSERT_EQ(begin, width);
  EXPECT_TRUE(same_bits(got, wanted));
}

INSTANTIATE_TEST_SUITE_P(Cuts, Shards,
                         testing::Values(Cut{"base_2", "golden/base", 2, Precision::kExact}, Cut{"base_4", "golden/base", 4, Precision::kExact},
                                         Cut{"builtin_2", "builtin", 2, Precision::kExact}, Cut{"builtin_3", "builtin", 3, Precision::kExact},
                                         Cut{"builtin_4", "builtin", 4, Precision::kExact}, Cut{"builtin_3_fast", "builtin", 3, Precision::kFast},
                                         Cut{"builtin_1_and_rest", "builtin", 2, Precision::kExact, 1},
                                         Cut{"builtin_3_and_rest", "builtin", 2, Precision::kFast, 3},
                                         // More ranks than heads: some hold nothing and still take part.
                                         Cut{"base_6", "golden/base", 6, Precision::kExact},
                                         // Integers: a sum and a maximum over ranks instead of the tree.
                                         Cut{"codes_2", "builtin", 2, Precision::kFast, 0, true},
                                         Cut{"codes_3", "builtin", 3, Precision::kFast, 0, true},
                                         Cut{"codes_1_and_rest", "builtin", 2, Precision::kFast, 1, true},
                                         Cut{"codes_base_6", "golden/base", 6, Precision::kFast, 0, true},
                                         Cut{"base_3_replay", "golden/base", 3, Precision::kExact, 0, false, StateKeeping::kReplay},
                                         Cut{"base_6_replay", "golden/base", 6, Precision::kFast, 0, false, StateKeeping::kReplay}),
                         [](const auto& test) { return test.param.name; });

/// One rank runs out of memory at one call: every rank's step fails, whichever group it sums with next and if there is no sum left, and the step after it
/// has its bits.
TEST(ShardFailure, IsThatOfAllRanksAndOfOneStep) {
  class Starve final : public backend::OpObserver {
   public:
    Starve(backend::Dispatch& dispatch, int layer, std::string site) : dispatch_(dispatch), layer_(layer), site_(std::move(site)) {}
    void after(backend::OpCall& call, backend::Device&) override {
      if (call.site->layer == layer_ && std::string(call.site->name) == site_) dispatch_.fail({Code::kResourceExhausted, "no scratch"});
    }

   private:
    backend::Dispatch& dispatch_;
    int layer_;
    std::string site_;
  };
  const Cut cut{"base_2", "golden/base", 2, Precision::kExact};
  const std::vector<TokenId> ids = GoldenFile(data_path("golden/base.safetensors")).tokens("ids.5");
  const Glm5NextConfig config = must(read_glm5_next_config(data_path(cut.directory)), "config").config;
  const Groups groups = groups_of(2);
  const auto last = static_cast<int>(config.layers) - 1;
  const std::vector<std::pair<int, const char*>> places = {
      {3, "dsa.latents"}, {3, "moe.experts"}, {last, "mhc.ffn_out"}, {-1, "final.norm"}, {-1, "head.logits"}};
  std::array<std::vector<std::string>, 2> messages;
  std::array<std::vector<float>, 2> before, after;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const RigOptions mine = rank_options(cut, config, groups, rank);
      Rig rig(mine);
      SequenceId sequence;
      before[rank] = rig.prefill(ids, {}, &sequence);
      rig.store().close(sequence);
      for (const auto& [layer, site] : places) {
        Starve starve(rig.dispatch(), layer, site);
        if (rank == 1) rig.dispatch().set_observer(&starve);
        const SequenceId lost = rig.open();
        must(rig.store().append(lost, 5, 0), "append");
        const StepItem item{.sequence = lost, .kind = ItemKind::kPrefill, .tokens = {ids.data(), 5}, .rows = {}, .at = {}};
        const auto result = rig.model().step({&item, 1}, rig.store());
        messages[rank].push_back(result ? "" : result.error().message);
        rig.dispatch().set_observer(nullptr);
        rig.store().close(lost);
      }
      after[rank] = rig.prefill(ids);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string told = "rank 1 of 2 failed and has no part of a sum to give";
  EXPECT_EQ(messages[0], std::vector<std::string>(places.size(), told));
  EXPECT_EQ(messages[1], std::vector<std::string>(places.size(), "no scratch"));
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(same_bits(after[rank], before[rank])) << "rank " << rank;
}

TEST(ShardPlans, WrongOnesAreErrors) {
  const auto device = Rig::cpu_device({.directory = "", .isa = "", .threads = 1, .dispatch = {}});
  const auto dispatch = must(backend::Dispatch::create(*device, {}), "dispatch");
  ModelOptions options{.precision = Precision::kExact, .max_batch_tokens = 8, .shards = {}, .groups = {}};
  options.shards.kda_heads = tensor::default_shard({.kind = tensor::ShardKind::kHead, .total = 4}, 0, 2);
  const auto no_group = load_model(data_path("golden/base"), *dispatch, options);
  ASSERT_FALSE(no_group.has_value());
  EXPECT_NE(no_group.error().message.find("kda_heads"), std::string::npos) << no_group.error().message;
  options.shards.kda_heads.total = 5;
  const auto wrong_total = load_model(data_path("golden/base"), *dispatch, options);
  ASSERT_FALSE(wrong_total.has_value());
  EXPECT_NE(wrong_total.error().message.find("5 units, the model has 4"), std::string::npos) << wrong_total.error().message;
}

}  // namespace
}  // namespace lathe::models::golden
