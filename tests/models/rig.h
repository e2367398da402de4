#pragma once
// Test support: a loaded model with its device and store, fed step by step; an observer that copies what passes chosen call sites.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/dispatch.h"
#include "cache/store.h"
#include "golden.h"
#include "models/model.h"
#include "models/registry.h"

namespace lathe::models::golden {

struct RigOptions {
  std::string directory;
  ModelOptions model{.precision = Precision::kExact, .max_batch_tokens = 512, .shards = {}, .groups = {}};
  bool reference = false;  ///< kernels/ref alone
  std::string isa;
  int threads = 2;
  int64_t block_tokens = 64;
  int64_t blocks = 64;
  int32_t slots = 4;
  backend::DispatchOptions dispatch;
};

class Rig {
 public:
  explicit Rig(const RigOptions& options) : Rig(options, cpu_device(options)) {}
  /// On a device of the caller's.
  Rig(const RigOptions& options, std::unique_ptr<backend::Device> device);
  static std::unique_ptr<backend::Device> cpu_device(const RigOptions& options);

  backend::Device& device() { return *device_; }
  backend::Dispatch& dispatch() { return *dispatch_; }
  Model& model() { return *model_; }
  cache::Store& store() { return *store_; }
  int64_t vocabulary() const { return model_->info().vocabulary_end - model_->info().vocabulary_begin; }

  SequenceId open() { return must(store_->open(), "open"); }
  /// One step of one sequence, committed; logits of all its tokens (or of the last).
  std::vector<float> feed(SequenceId sequence, const std::vector<TokenId>& tokens, ItemKind kind = ItemKind::kPrefill, Logits logits = Logits::kAll,
                          std::vector<EmbeddingRows> rows = {}, StepHooks* hooks = nullptr);
  /// A fresh sequence fed in pieces of the given sizes; what they leave over is a last piece. Logits of all positions.
  std::vector<float> prefill(const std::vector<TokenId>& tokens, const std::vector<int64_t>& chunks = {}, SequenceId* sequence = nullptr);

  std::vector<float> host(const View& view);
  /// One plane of a sequence family as floats; codes without their scales.
  std::vector<float> state(SequenceId sequence, int32_t layer, const std::string& family, int plane = 0);
  /// Rows of one plane of a token or pool family in order of position.
  std::vector<float> cached_rows(SequenceId sequence, int32_t layer, const std::string& family, int64_t begin, int64_t end, int plane = 0);
  /// Everything that a sequence needs to go on: states, the part of each ring that can still be read, token and pool rows; draft caches up to the draft length.
  std::vector<float> caches(SequenceId sequence);

 private:
  std::vector<float> ring_rows(SequenceId sequence, int32_t layer, const cache::Family& family, int64_t length);
  std::vector<float> plane_rows(SequenceId sequence, const cache::LayerFamily& of, int plane);

  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<backend::Dispatch> dispatch_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<cache::Store> store_;
};

/// Keeps a copy of one view of every call at chosen sites, calls one after the other.
class Capture final : public backend::OpObserver {
 public:
  /// `view`: its name in the params, e.g. "out". Integer views are kept as floats.
  void want(const std::string& site, const std::string& view) { wanted_[site] = view; }
  void after(backend::OpCall& call, backend::Device& device) override;
  const std::vector<float>& at(const std::string& site, int32_t layer) { return kept_[{site, layer}]; }
  void clear() { kept_.clear(); }

 private:
  std::map<std::string, std::string> wanted_;
  std::map<std::pair<std::string, int32_t>, std::vector<float>> kept_;
};

/// Elements of a view in device memory as floats, in order, gaps left out.
std::vector<float> copy_to_floats(backend::Device& device, const View& view);

}  // namespace lathe::models::golden
