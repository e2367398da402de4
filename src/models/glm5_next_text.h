#pragma once
// The glm5_next model on one rank: text layers, draft layer, vision tower (spec glm5_next §2, §3).

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/arena.h"
#include "models/glm5_next_cache.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_plan.h"
#include "models/glm5_next_shapes.h"
#include "models/glm5_next_sites.h"
#include "models/glm5_next_vision.h"
#include "models/glm5_next_weights_device.h"
#include "models/model.h"
#include "models/step_batch.h"
#include "ops/basic.h"
#include "ops/kda.h"
#include "weights/checkpoint.h"

namespace lathe::models {

class Glm5NextModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(const std::string& directory, backend::Dispatch& dispatch, const ModelOptions& options);

  const ModelInfo& info() const override { return info_; }
  const ModelOptions& options() const override { return options_; }
  const Glm5NextConfig& config() const { return config_; }
  const Glm5NextWeights& weights() const { return weights_.bound; }
  std::vector<cache::LayerFamily> cache_families() const override { return glm5_next_cache_families(config_, shards_, options_); }
  Result<StepResult> step(std::span<const StepItem> items, cache::Store& store, StepHooks* hooks) override;
  Result<DraftResult> draft_prefill(std::span<const DraftItem> items, const View& hidden, cache::Store& store, StepHooks* hooks) override;
  Result<DraftResult> draft_step(std::span<const DraftStepItem> items, cache::Store& store, StepHooks* hooks) override;
  Result<cache::Snapshot> prefix_snapshot(SequenceId sequence, const cache::Store& store) override;
  Result<ImageRows> encode_image(const ImageInput& image) override;

 private:
  /// What one pass hands to the layers.
  struct Pass {
    StepBatch& batch;
    cache::Store& store;
    StepHooks* hooks = nullptr;
  };
  /// A sum that a cut splits: this rank's leaves and whom to sum with.
  struct Cut {
    bool cut = false;
    int64_t begin = 0, end = 0, total = 0;
    std::vector<tensor::TreeNode> nodes;
    backend::Group* group = nullptr;
    int64_t node_count() const { return static_cast<int64_t>(nodes.size()); }
  };
  /// One DSA mixer: the same code serves text layers, draft prefill and later draft steps.
  struct DsaCall {
    int32_t layer = 0;
    const DsaWeights& weights;
    const DsaFamilyNames& names;
    DsaSites& sites;
    bool choose = true;  ///< false: `selection` is given
    View selection;      ///< i32 [T, pools]
  };

  /// Views of mHC before a sublayer.
  struct MhcViews {
    const View& streams;  ///< read
    const View& x;
    const View& post;
    const View& comb;
  };
  /// What computes logits, and where they stay.
  struct HeadCall {
    backend::OpSite& gather;
    backend::OpSite& logits;
    GrowBuffer& memory;
  };
  /// Input and output rows of a part of a layer.
  struct InOut {
    const View& x;
    const View& y;
  };
  struct OutSites {
    backend::OpSite& product;
    CutSites& cut;
  };
  struct MlpSites {
    backend::OpSite& gate_up;
    OutSites down;
  };
  /// A matrix whose columns a cut can split.
  struct OutProjection {
    const MatrixView& weight;
    const Cut& cut;
    int64_t leaf_channels = 0;
  };
  /// What the projections of a DSA mixer read and make; k, gate and iq only where it chooses.
  struct DsaRows {
    const View& u;
    View q, k, gate, iq;
  };
  struct RouterViews {
    const View& logits;
    const View& bias;
  };
  struct KdaPair {
    View m, h;
  };
  /// Inputs and output of the recurrence.
  struct KdaRows {
    View q, k, v;  ///< [T, H, K]
    View g, beta;
    View o;  ///< [T, H, K]
    KdaRows rows(int64_t begin, int64_t end) const;
  };
  /// What a layer keeps of all sequences by replay.
  struct KdaMemory {
    KdaStateViews states;
    ops::ReplayRing ring;
  };
  /// Arrays of a kda_flush.
  struct KdaFolds {
    View from, into, slot;
    View checkpoint, to;
    int64_t longest = 0;
  };
  /// A state of one sequence on its way to the sequence's length, beside the live one.
  struct Rebuild {
    std::vector<StateFold> folds;
    View slot, row;   ///< i32 [1]: of the live state, and of the one being made
    View begin, end;  ///< i32 [folds]
  };
  enum class DraftPass : uint8_t { kPrefill, kStep };

  Glm5NextModel(backend::Dispatch& dispatch, const ModelOptions& options, Glm5NextConfig config, Glm5NextShards shards);
  void set_site_heads();
  Result<void> load_weights(const std::string& directory);
  void choose_compute(const Glm5NextWeights& bound);
  void describe(const Glm5NextDeviceWeights& weights);

  // Planning: dry passes that choose a kernel for every site and find the size of the arena.
  Result<void> plan();
  Result<void> plan_steps(cache::Store& store, int64_t rows);
  Result<void> plan_drafts(cache::Store& store, int64_t rows);

  // glm5_next_text.cc
  BatchLimits limits() const;
  Result<void> gather_items(std::span<const StepItem> items, const cache::Store& store);
  void run_step(const Pass& pass);
  View embed(const StepBatch& batch, backend::OpSite& plain, backend::OpSite& with_rows);
  View layers(const Pass& pass, const View& embedded);
  void mixer(const Pass& pass, int32_t layer, const View& u, const View& y);
  void mhc_in(backend::OpSite& site, const MhcWeights& weights, const MhcViews& views);
  View head(const StepBatch& batch, const View& hidden, const HeadCall& call);
  void norm(backend::OpSite& site, const View& x, const View& weight, const View& out);
  void before_layer(const Pass& pass, int32_t layer);
  void after_layer(const Pass& pass, int32_t layer);

  // glm5_next_pass.cc: how a pass fails. The failure stays with the dispatch until the end, its calls do nothing from there on, and the pass goes on through
  // its sums, which tell the other ranks.
  void begin_pass(const Pass& pass);
  /// What the pass failed with.
  Result<void> end_pass(const Pass& pass);
  void share_verdict();
  /// False once the pass has failed: then no hook may be called, but the one that says so. The device must be idle.
  bool stands(const Pass& pass);
  /// Makes an error that of the pass.
  void note(Result<void> done);

  // glm5_next_kda.cc
  void kda(const Pass& pass, int32_t layer, const View& u, const View& y);
  void kda_heads(const Pass& pass, int32_t layer, const View& u, const View& out);
  static ops::KdaRecurrenceParams recurrence_of(const KdaRows& rows, const View& states, const ops::Ragged& batch);
  void kda_recur(const Pass& pass, int32_t layer, const KdaRows& rows);
  void kda_pair(const Pass& pass, int32_t layer, const KdaRows& rows, KdaPair& out);

  // glm5_next_replay.cc
  KdaMemory kda_memory(const cache::Store& store, int32_t layer) const;
  void kda_replay(const Pass& pass, int32_t layer, const KdaRows& rows);
  void kda_window(backend::OpSite& site, const ReplayBatch::WindowViews& window, const KdaMemory& memory, const KdaRows& rows);
  void kda_flush(backend::OpSite& site, const KdaMemory& from, const KdaStateViews& to, const KdaFolds& folds);
  void plan_replay(const Pass& pass, int32_t layer, const KdaRows& rows);
  /// Where the states of the step's sequences stand now.
  void note_marks(cache::Store& store) const;
  KdaStateViews rebuilt_views(const KdaStateViews& like);
  Result<Rebuild> prepare_rebuild(SequenceId sequence, const cache::Store& store);
  KdaStateViews rebuild_state(int32_t layer, const KdaMemory& memory, const Rebuild& rebuild);

  // glm5_next_dsa.cc
  void dsa(const Pass& pass, const DsaCall& call, const View& u, const View& y);
  void dsa_index(const Pass& pass, const DsaCall& call, const DsaRows& rows);
  void dsa_project(const Pass& pass, const DsaCall& call, const DsaRows& rows);
  void dsa_attend(const Pass& pass, const DsaCall& call, const View& q, const View& out);

  // glm5_next_ffn.cc
  void ffn(FfnSites& sites, const LayerWeights& weights, const LayerDerived& derived, const InOut& rows);
  void mlp(const MlpWeights& weights, const Cut& cut, const MlpSites& sites, const InOut& rows);
  void moe(FfnSites& sites, const MoeWeights& weights, const LayerDerived& derived, const InOut& rows);
  void experts(FfnSites& sites, const LayerDerived& derived, const RouterViews& router, const InOut& rows);
  /// y = x Wᵀ summed over the leaves of all ranks of the cut.
  void project_out(const OutSites& sites, const OutProjection& projection, const InOut& rows);
  /// The same in integers, which have one sum.
  void project_out_codes(const OutSites& sites, const OutProjection& projection, const InOut& rows);
  void sum_nodes(const Cut& cut, const View& partials, const View& present, const View& y);
  enum class Share : uint8_t {
    kGiven,
    kNothing,  ///< zeros are this rank's part
  };
  /// The same rows of all ranks: f32 [T] the greatest, i32 [T, N] the sum.
  void combine(const Cut& cut, const View& values, Share share);

  // glm5_next_draft.cc
  Result<DraftResult> run_draft(const Pass& pass, const View& hidden_source, DraftPass which);
  View draft_input(const Pass& pass, const View& hidden_source);
  void copy_selections(const StepBatch& batch);

  void matmul(backend::OpSite& site, const View& x, std::initializer_list<ops::MatmulPart> parts, ops::Compute compute);
  backend::Device& device() { return dispatch_.device(); }

  backend::Dispatch& dispatch_;
  ModelOptions options_;
  Glm5NextConfig config_;
  Glm5NextShards shards_;
  ModelInfo info_;
  DecodeBytes decode_bytes_;
  std::optional<weights::Checkpoint> checkpoint_;  ///< views of weights_ may point into its maps
  ZeroBytes zeros_;                                ///< what they point to when there are shapes only
  Glm5NextDeviceWeights weights_;
  std::unique_ptr<Glm5NextVision> vision_;
  ops::Compute compute_ = ops::Compute::kF32;  ///< of products with weights; kInt8 where INT8 matrices meet INT8 activations
  /// kv_b takes activations as they are or rounded, never as codes.
  ops::Compute kv_b_compute() const { return compute_ == ops::Compute::kF32 ? ops::Compute::kF32 : ops::Compute::kBF16; }
  Cut kda_cut_, mla_cut_, dense_cut_, shared_cut_, expert_cut_;
  std::vector<backend::Group*> sum_groups_;  ///< of the cuts, each once, in the same order on every rank
  std::vector<std::vector<std::string>> layer_families_;

  TextSites text_sites_;
  std::vector<LayerSites> layer_sites_;
  std::unique_ptr<DraftSites> draft_sites_;

  bool told_ = false;  ///< the hooks of this pass know that it has failed
  Arena arena_;
  StepBatch step_batch_, draft_batch_;
  std::vector<BatchItem> items_;
  backend::Buffer hidden_memory_;  ///< [max rows, D] after the final norm
  GrowBuffer logits_memory_, draft_logits_memory_;
  GrowBuffer pair_memory_;
  GrowBuffer rebuilt_memory_;  ///< one layer's state of one sequence, for prefix_snapshot()
  MetaPack rebuild_meta_;
  View hidden_;     ///< whole buffer
  View selection_;  ///< of the pass: the last indexer's choice, for layers that share it
  View logits_, draft_logits_;
  backend::Buffer draft_memory_;  ///< two hidden buffers and two of selections
  std::array<View, 2> draft_hidden_, draft_selection_;
  int draft_turn_ = 0;  ///< which of draft_hidden_ holds the previous result
};

}  // namespace lathe::models
