#pragma once
// A model as engine, evaluation and tests see it: steps over ragged batches, drafts, pictures. No family is named here; see registry.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/collective.h"
#include "backend/dispatch.h"
#include "base/ids.h"
#include "base/result.h"
#include "cache/family.h"
#include "cache/store.h"
#include "models/cache_formats.h"
#include "models/decode_bytes.h"
#include "models/range_exchange.h"
#include "models/replay.h"
#include "tensor/shard.h"
#include "tensor/view.h"

namespace lathe::models {

enum class Precision : uint8_t {
  kExact,  ///< every activation in f32, weights dequantised exactly; caches in f32 where ModelOptions::caches does not say otherwise
  kFast,   ///< linear layers with BF16 inputs and f32 sums; latents and index keys in BF16 likewise. Router, index weights, mHC, recurrence stay f32.
};

/// Two ways to the same attention. A property of a step item (decode: always absorbed), never a consequence of its number of tokens.
enum class MlaPath : uint8_t { kAbsorbed, kExpanded };

/// What of every cut tensor this rank holds. A default Shard (total 0) means: whole.
/// Units  heads for kda and mla; 128 channels for dense and shared; ids for experts; 128 rows for vocabulary.
struct ShardPlan {
  tensor::Shard kda_heads, mla_heads, dense_channels, shared_channels, experts, vocabulary;
};

/// This rank's ends of the groups that sum or gather what ShardPlan cuts. Not owned; null: nobody to talk to, then the shard must be whole.
struct Groups {
  backend::Group* tp_kda = nullptr;  ///< KDA output projections
  backend::Group* attn = nullptr;    ///< MLA output projections
  backend::Group* tp_ffn = nullptr;  ///< dense and shared MLPs
  backend::Group* ep = nullptr;      ///< experts
};

struct ModelOptions {
  Precision precision = Precision::kFast;
  MlaPath prefill_mla = MlaPath::kAbsorbed;  ///< for prefill items
  int64_t max_batch_tokens = 2048;           ///< rows of one step; activations are allocated for so many at load
  int32_t tentative_max = 0;                 ///< tentative tokens of one item; must equal the store's
  bool draft = true;                         ///< use the draft layer if the checkpoint has one
  bool vision = true;                        ///< likewise the vision tower
  bool weights = true;                       ///< false: shapes of the config alone; all kernels are planned, and nothing may be run
  bool token_ranges = false;                 ///< step items may be token ranges of a longer prefill (StepItem::range)
  std::optional<CacheFormats> caches = {};   ///< none: those of the precision
  ReplayOptions replay = {};                 ///< where the states are kept by replay
  ShardPlan shards;
  Groups groups;

  CacheFormats cache_formats() const { return caches.value_or(precision == Precision::kExact ? kExactCaches : kFastCaches); }
};

/// Facts about a loaded model that callers need whatever its family.
struct ModelInfo {
  std::string family;  ///< "glm5_next"
  int64_t layers = 0;  ///< the draft layer, if there is one, is layer number `layers`
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;
  int64_t block_tokens_multiple = 1;  ///< StoreOptions::block_tokens must be a multiple of it
  bool has_draft = false;
  bool has_vision = false;
  TokenId image_token = -1;  ///< placeholder that one image row replaces
  std::vector<TokenId> stop_tokens;
  int64_t patch_values = 0;                          ///< values of one vision patch
  int64_t patch_merge = 0;                           ///< merge · merge patches become one row
  int64_t vocabulary_begin = 0, vocabulary_end = 0;  ///< ids whose logits this rank computes
  int64_t weight_bytes = 0;                          ///< of this rank, as stored
  int64_t uploaded_bytes = 0;                        ///< part of it that was copied to the device
  int64_t activation_bytes = 0;                      ///< reserved at load
  DecodeBytes decode_bytes = {};
};

/// Rows that take the place of the embeddings of item tokens [begin, begin + rows.dim(0)).
struct EmbeddingRows {
  int64_t begin = 0;
  View rows;  ///< f32 [n, hidden], device memory
};

enum class ItemKind : uint8_t { kPrefill, kDecode };
enum class Logits : uint8_t { kNone, kLast, kAll, kAt };

/// Tokens of one sequence in a step. A sequence occurs at most once in a step.
/// Before the step: store.append(sequence, tokens.size(), tentative). After it: store.commit(sequence, kept).
struct StepItem {
  SequenceId sequence;
  ItemKind kind = ItemKind::kDecode;  ///< items with tentative tokens are decode items
  std::span<const TokenId> tokens;    ///< at least one
  std::span<const EmbeddingRows> rows;
  int32_t tentative = 0;  ///< how many of the last tokens commit() may drop
  Logits logits = Logits::kLast;
  std::span<const int32_t> at;  ///< kAt: indices into tokens, ascending
  bool range = false;           ///< a token range of a longer prefill that RangeExchange connects (context parallelism)
};

/// Where an item's rows lie in the result.
struct ItemRows {
  int64_t logits_begin = 0, logits_count = 0;
  int64_t hidden_begin = 0, hidden_count = 0;
};

/// Views of the model's own buffers: valid until the next step() (encode_image and the draft calls leave them alone).
struct StepResult {
  View logits;                      ///< f32 [n, vocabulary_end − vocabulary_begin], device memory; absent if nobody asked
  View hidden;                      ///< f32 [T, hidden] after the final norm: input of the draft layer
  std::span<const ItemRows> items;  ///< in the order of the step's items
};

/// Called around every layer of a step and of the draft calls: waits, broadcasts and sends of cache families go here.
class StepHooks {
 public:
  virtual ~StepHooks() = default;
  /// Before anything of `layer` is computed or any of its caches is read. `families`: what it will read.
  virtual Result<void> before_layer(int32_t layer, std::span<const std::string> families) = 0;
  /// After everything of `layer` was computed. `families`: what it has written.
  virtual Result<void> after_layer(int32_t layer, std::span<const std::string> families) = 0;
  /// This rank's pass has failed, by an error of a hook as well: the last call of the pass. Ranks that wait for something from this one must be told,
  /// so that their hooks return an error too. What earlier hooks passed on is good.
  virtual void failed(const Error& why) = 0;
  /// The other ranks of a prefill that is cut into token ranges; null: no item of the step is a range.
  virtual RangeExchange* ranges() { return nullptr; }
};

/// Positions [start, start + tokens.size()) of a sequence for the draft layer. The entry of position t takes the hidden state of t and token t + 1.
struct DraftItem {
  SequenceId sequence;
  ItemKind kind = ItemKind::kPrefill;
  int64_t start = 0;
  std::span<const TokenId> tokens;      ///< ids of positions start + 1 …; at least one
  std::span<const EmbeddingRows> rows;  ///< image rows at those places, relative to tokens
  int64_t hidden_begin = 0;             ///< first of the tokens.size() rows of the hidden view that belong to the item
  Logits logits = Logits::kLast;
};

/// One further position of a drafting round, from what the round's previous step put out.
struct DraftStepItem {
  SequenceId sequence;
  int64_t position = 0;         ///< of the hidden state that stands in for the true one: one more than in the step before
  TokenId token = 0;            ///< drafted by the step before
  int64_t row = 0;              ///< row of the previous DraftResult's hidden
  int64_t origin = 0;           ///< row of the last draft_prefill whose selection the round keeps
  int64_t origin_position = 0;  ///< position of that row
};

/// Valid until the next draft call.
struct DraftResult {
  View logits;  ///< f32 [n, local vocabulary]
  View hidden;  ///< f32 [T, hidden], after the draft head's norm
  std::span<const ItemRows> items;
};

/// Pictures or frames of one size. Patches in merge-block order: every merge · merge consecutive ones form one row; temporal steps one after the other.
struct ImageInput {
  std::span<const float> patches;  ///< [t · height · width, patch_values], host memory
  int64_t steps = 1;               ///< temporal steps; attention stays inside each
  int64_t height = 0, width = 0;   ///< patches of one step; multiples of the merge
};

/// Owner of the rows that replace the placeholders of a picture.
struct ImageRows {
  backend::Buffer memory;
  View rows;  ///< f32 [t · height · width / merge², hidden], device memory
};

/// One model on one rank.
///
/// Threads   the rank's thread.
/// Bits      of a row depend on its own sequence's tokens, kind and caches alone: not on the batch, on chunk borders, threads or shards.
/// Errors    invalid_argument (empty item, token outside the vocabulary, more rows than max_batch_tokens, a sequence twice, image rows out of place),
///           failed_precondition (no draft layer, no vision tower), resource_exhausted (device memory or
///           memory for scratch), unavailable (another rank failed), those of hooks. All but invalid_argument leave the step void: its sequences are to
///           be closed; the model itself can go on.
/// Ranks     A rank that fails still takes part in the sums of its pass, the last of which only says who has failed: so the passes of all ranks that it
///           sums with fail.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const ModelOptions& options() const = 0;
  /// What the store has to hold for this rank.
  virtual std::vector<cache::LayerFamily> cache_families() const = 0;

  /// One pass over all items: every weight is read once. `hooks` may be null.
  virtual Result<StepResult> step(std::span<const StepItem> items, cache::Store& store, StepHooks* hooks = nullptr) = 0;

  /// Runs the draft layer on true hidden states, writes its caches and sets the draft length of each sequence. `hidden`: f32 [n, hidden], device memory.
  /// The store must have room for the positions (append the step that will verify the drafts first).
  virtual Result<DraftResult> draft_prefill(std::span<const DraftItem> items, const View& hidden, cache::Store& store,
                                            StepHooks* hooks = nullptr) = 0;
  /// A later step of a drafting round: attends to what `origin` selected and to the round's own latents, chooses nothing anew and writes no index keys:
  /// draft_prefill writes the entries of accepted tokens again, from true hidden states.
  virtual Result<DraftResult> draft_step(std::span<const DraftStepItem> items, cache::Store& store, StepHooks* hooks = nullptr) = 0;

  /// Snapshot whose states are those of the sequence's length, so that another request can go on from it: by replay the state is made from checkpoint and
  /// rings, with the bits that a flush would give it, and the sequence itself stays as it is. (store.snapshot() is for the same request: it goes on with the
  /// same bits.) The one who restores it gives the mark its own request. Errors: those of store.snapshot(); resource_exhausted.
  virtual Result<cache::Snapshot> prefix_snapshot(SequenceId sequence, const cache::Store& store) = 0;

  virtual Result<ImageRows> encode_image(const ImageInput& image) = 0;
};

}  // namespace lathe::models
