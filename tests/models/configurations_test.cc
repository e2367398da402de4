// Goal: configurations beyond the release and odd sizes of every dimension are right: compared with a forward pass in double precision that shares no code, and
// equal to themselves whatever the chunks, steps or shards.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "models/glm5_next_plan.h"
#include "plain_forward.h"
#include "random_model.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

struct Case {
  const char* name;
  RandomModel model;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }  // NOLINT(readability-identifier-naming): GoogleTest's name

const std::string kK = "linear_attention";
const std::string kD = "deepseek_sparse_attention";

std::vector<Case> cases() {
  return {
      {"small", {}},
      {"odd_sizes",
       {.sizes = {{"vocab_size", 131},
                  {"hidden_size", 37},
                  {"intermediate_size", 131},
                  {"moe_intermediate_size", 7},
                  {"num_attention_heads", 5},
                  {"q_lora_rank", 11},
                  {"kv_lora_rank", 13},
                  {"qk_nope_head_dim", 7},
                  {"v_head_dim", 5},
                  {"n_routed_experts", 5},
                  {"num_experts_per_tok", 3},
                  {"index_n_heads", 3},
                  {"index_head_dim", 9},
                  {"linear_num_heads", 3},
                  {"linear_head_dim", 5}}}},
      {"softplus_gate", {.sizes = {{"hc_mult", 3}, {"linear_conv_kernel_dim", 3}, {"index_kpool", 3}, {"index_topk", 9}}, .softplus_gate = true}},
      {"groups_and_shared_experts",
       {.sizes = {{"n_group", 3}, {"topk_group", 2}, {"n_shared_experts", 2}, {"hc_mult", 2}, {"moe_intermediate_size", 80}},
        .normalise_topk = false}},
      {"pools_of_one", {.sizes = {{"index_kpool", 1}, {"index_topk", 7}, {"hc_mult", 1}, {"linear_conv_kernel_dim", 2}}}},
      {"shared_indexers",
       {.sizes = {{"linear_conv_kernel_dim", 6}, {"hc_sinkhorn_iters", 1}},
        .layers = {kK, kD, kD, kD, kD},
        .mlps = {"dense", "sparse", "dense", "sparse", "sparse"},
        .indexers = {"full", "full", "shared", "full", "shared"}}},
      {"without_tail", {.sizes = {{"num_nextn_predict_layers", 0}}, .tail = false}},
      {"conv_of_one", {.sizes = {{"linear_conv_kernel_dim", 1}}, .f16 = true}},
      {"fp8_partial_blocks",
       {.sizes = {{"hidden_size", 130},
                  {"intermediate_size", 200},
                  {"moe_intermediate_size", 140},
                  {"num_attention_heads", 3},
                  {"qk_nope_head_dim", 50},
                  {"v_head_dim", 44},
                  {"q_lora_rank", 131},
                  {"kv_lora_rank", 30}},
        .fp8 = true}},
  };
}

class Configurations : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kTokens = 43;
  Configurations() : checkpoint_(GetParam().model), config_(must(read_glm5_next_config(checkpoint_.directory()), "config").config) {
    std::mt19937 random(7);
    for (int64_t i = 0; i < kTokens; ++i) ids_.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(config_.vocab)));
  }
  RigOptions options(Precision precision = Precision::kExact, bool reference = false) const {
    // Blocks of a multiple of every pool size in use.
    return {.directory = checkpoint_.directory(),
            .model = {.precision = precision, .max_batch_tokens = 64, .shards = {}, .groups = {}},
            .reference = reference,
            .isa = "",
            .block_tokens = 24,
            .slots = 2,
            .dispatch = {}};
  }
  static std::vector<float> narrow(const Table& table) { return {table.values.begin(), table.values.end()}; }

  RandomCheckpoint checkpoint_;
  Glm5NextConfig config_;
  std::vector<TokenId> ids_;
};

TEST_P(Configurations, AsThePlainForward) {
  weights::Checkpoint checkpoint = must(weights::Checkpoint::open(checkpoint_.directory()), "checkpoint");
  const Glm5NextWeights weights = must(bind_glm5_next(config_, checkpoint), "weights");
  PlainForward plain(config_, weights);
  const Table hidden = plain.hidden(ids_);
  const std::vector<float> wanted = narrow(plain.logits(hidden));
  for (const bool reference : {true, false}) {
    Rig rig(options(Precision::kExact, reference));
    SequenceId sequence;
    EXPECT_LE(worst_difference(rig.prefill(ids_, {}, &sequence), wanted), 1e-3) << (reference ? "reference" : "best");
    rig.store().close(sequence);
    if (!config_.draft_layer) continue;
    sequence = rig.open();
    must(rig.store().append(sequence, kTokens, 0), "append");
    const StepItem step{.sequence = sequence, .kind = ItemKind::kPrefill, .tokens = ids_, .rows = {}, .at = {}};
    const StepResult result = must(rig.model().step({&step, 1}, rig.store()), "step");
    const std::vector<TokenId> next(ids_.begin() + 1, ids_.end());
    const DraftItem item{.sequence = sequence, .tokens = next, .rows = {}, .logits = Logits::kAll};
    const DraftResult draft = must(rig.model().draft_prefill({&item, 1}, result.hidden, rig.store()), "draft");
    EXPECT_LE(worst_difference(rig.host(draft.logits), narrow(plain.logits(plain.draft(ids_, hidden)))), 1e-3) << (reference ? "reference" : "best");
  }
  EXPECT_GT(plain.margin(), 2e-5) << "a choice too close to judge: take another seed";
}

TEST_P(Configurations, SameBitsInChunksAndSteps) {
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    Rig rig(options(precision));
    const std::vector<float> whole = rig.prefill(ids_);
    EXPECT_TRUE(same_bits(rig.prefill(ids_, {5, 1, 2, 17, 1}), whole));
    const SequenceId sequence = rig.open();
    std::vector<float> steps;
    for (const TokenId id : ids_) {
      const std::vector<float> logits = rig.feed(sequence, {id}, ItemKind::kDecode);
      steps.insert(steps.end(), logits.begin(), logits.end());
    }
    EXPECT_TRUE(same_bits(steps, whole));
  }
}

TEST_P(Configurations, SameBitsCutInTwo) {
  // Heads and channels that are no multiples of 128: shards begin inside scale blocks.
  Rig uncut(options());
  const std::vector<float> wanted = uncut.prefill(ids_, {20});
  std::array<std::vector<std::unique_ptr<backend::Group>>, 4> groups;
  for (auto& group : groups) group = backend::make_local_group(2);
  std::vector<float> parts[2];
  int64_t widths[2] = {};
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      RigOptions mine = options();
      mine.threads = 1;
      mine.model.shards = default_shard_plan(config_, static_cast<int>(rank), 2);
      mine.model.groups = {
          .tp_kda = groups[0][rank].get(), .attn = groups[1][rank].get(), .tp_ffn = groups[2][rank].get(), .ep = groups[3][rank].get()};
      Rig rig(mine);
      parts[rank] = rig.prefill(ids_, {20});
      widths[rank] = rig.vocabulary();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> got;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (size_t rank = 0; rank < 2; ++rank)
      got.insert(got.end(), parts[rank].begin() + t * widths[rank], parts[rank].begin() + (t + 1) * widths[rank]);
  }
  EXPECT_TRUE(same_bits(got, wanted));
}

INSTANTIATE_TEST_SUITE_P(All, Configurations, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lathe::models::golden
