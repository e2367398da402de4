#pragma once
// One rank ready to run: device, dispatch, model and cache, made from options. No text, JSON or HTTP here.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/dispatch.h"
#include "cache/store.h"
#include "engine/draft_policy.h"
#include "engine/draft_times.h"
#include "models/model.h"

namespace lathe::engine {

/// Drafts of the model's draft layer, verified by the model itself: they change how fast a text comes, never the text.
struct DraftOptions {
  int32_t most = 0;  ///< drafts of a window, up to kDraftsMax; 0: none
  bool adaptive =
      false;  ///< fewer where fewer pay, by what was accepted and what steps take; else always `most`. A model without draft layer goes without.
  DraftHealth health = {};
};

/// What one engine has learned about drafting: lengths of windows depend on it, no text.
struct DraftExperience {
  DraftTimes times;
  Acceptance acceptance{1024};  ///< of all requests: what a new one begins with
};

struct EngineOptions {
  std::string model;  ///< checkpoint directory
  models::Precision precision = models::Precision::kFast;
  models::MlaPath prefill_mla = models::MlaPath::kAbsorbed;
  std::optional<models::CacheFormats> caches = {};  ///< none: those of the precision
  backend::CpuOptions cpu;
  std::map<std::string, std::string> kernels;  ///< --kernel op=variant
  bool no_fallback = false;
  int64_t context_tokens = 4096;    ///< per sequence; at most what the model was made for
  bool context_is_default = false;  ///< nobody asked for this context: a model made for less gets what it was made for
  int32_t sequences = 1;            ///< at a time
  int64_t batch_tokens = 512;       ///< rows of one step: prompts are read in chunks of at most this
  int32_t tentative_max = 0;        ///< at least drafts.most
  DraftOptions drafts = {};
  int64_t sampled_vocabulary = 0;  ///< ids that may be drawn; rows behind them are padding. 0: all rows of the head
  bool draft = true;
  bool vision = true;
  bool keep_stale_slots = false;  ///< planted fault, see cache::StoreOptions
};

/// Owner of everything one rank runs on.
/// Threads  the creating thread.
class Engine {
 public:
  /// Errors: those of the checkpoint, the plan and memory; invalid_argument if the context exceeds the model's, or drafts are
  /// wanted from a model without draft layer.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);

  backend::Device& device() { return *device_; }
  backend::Dispatch& dispatch() { return *dispatch_; }
  models::Model& model() { return *model_; }
  cache::Store& store() { return *store_; }
  DraftExperience& draft_experience() { return *experience_; }
  const EngineOptions& options() const { return options_; }
  const models::ModelInfo& info() const { return model_->info(); }
  int64_t sampled_vocabulary() const {
    return options_.sampled_vocabulary > 0 ? std::min(options_.sampled_vocabulary, info().vocabulary) : info().vocabulary;
  }

  /// Rows [begin, begin + count) of a device view [n, width] as host floats, row after row.
  void read_rows(const View& view, int64_t begin, int64_t count, std::vector<float>& out);
  /// All rows of such a view: where they lie if the host sees device memory, else read into `buffer`. Valid until the next step.
  std::span<const float> rows(const View& view, std::vector<float>& buffer);

 private:
  explicit Engine(EngineOptions options) : options_(std::move(options)) {}
  Result<void> load_model();
  EngineOptions options_;
  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<backend::Dispatch> dispatch_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<cache::Store> store_;
  std::unique_ptr<DraftExperience> experience_;
};

/// What a model is loaded with for such an engine.
models::ModelOptions model_options(const EngineOptions& options);

/// Blocks and block size of a store for `sequences` of `context_tokens` each, with room for the tentative tokens of a step.
cache::StoreOptions store_options(const EngineOptions& options, const models::ModelInfo& info);

}  // namespace lathe::engine
