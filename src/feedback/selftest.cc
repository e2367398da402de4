#include "feedback/selftest.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/thread_choice.h"
#include "feedback/probe.h"
#include "feedback/shadow.h"

namespace lathe::feedback {
namespace {

// Long enough to be sparse on the built-in model (beyond 259 tokens), short enough for a minute.
constexpr int64_t kPromptTokens = 300;
constexpr int64_t kBatchTokens = 1024;  // the prompt and 8 others in one step
constexpr int32_t kTentative = 3;
// Kernels and reference add in different orders: far below BF16's step, far above FP32's.
constexpr double kKernelBudget = 1e-3;

/// The two forms of MLA round at different places.
double forms_budget(const engine::EngineOptions& options) { return options.precision == models::Precision::kExact ? 1e-4 : 5e-2; }

class Selftest {
 public:
  Selftest(const engine::EngineOptions& options, base::FunctionRef<void(int64_t, int64_t)> progress) : options_(options), progress_(progress) {
    options_.context_tokens = kPromptTokens + 64;
    options_.sequences = 10;
    options_.batch_tokens = std::max<int64_t>(options.batch_tokens, kBatchTokens);
    options_.tentative_max = kTentative;
  }

  Result<std::vector<SelftestRow>> run() {
    LATHE_TRY(engine_, engine::Engine::create(options_));
    ids_ = probe_ids(engine_->info(), kPromptTokens, 1);
    LATHE_TRY(whole_, feed_new(*engine_, ids_, {}));
    using Check = Result<void> (Selftest::*)();
    const Check checks[] = {&Selftest::chunks,   &Selftest::decode, &Selftest::batch,     &Selftest::threads, &Selftest::slot_reuse,
                            &Selftest::snapshot, &Selftest::commit, &Selftest::mla_forms, &Selftest::kernels};
    int64_t done = 0;
    for (const Check check : checks) {
      progress_(done++, std::ssize(checks));
      LATHE_TRY_VOID((this->*check)());
    }
    return std::move(rows_);
  }

 private:
  void add(std::string name, std::string compared, double worst, double budget, std::string detail = {}) {
    rows_.push_back({.name = std::move(name),
                     .compared = std::move(compared),
                     .worst = worst,
                     .budget = budget,
                     .passed = worst <= budget,
                     .detail = std::move(detail)});
  }

  Result<void> chunks() {
    double worst = 0;
    std::string at;
    for (const int64_t size : {1, 2, 3, 7, 64, 65}) {
      LATHE_TRY(const Trace trace, feed_new(*engine_, ids_, {.chunks = {size}}));
      const double d = compare(whole_, trace);
      if (d > worst) at = fmt::format("chunks of {}", size);
      worst = std::max(worst, d);
    }
    add("chunks", "a prompt read whole and in chunks of 1, 2, 3, 7, 64, 65", worst, 0, at);
    return {};
  }

  Result<void> decode() {
    LATHE_TRY(const Trace trace, feed_new(*engine_, ids_, {.chunks = {}, .decode_from = kPromptTokens / 2}));
    add("decode", "a prompt read by prefill and, from its middle, token by token", compare(whole_, trace),
        options_.prefill_mla == models::MlaPath::kAbsorbed ? 0 : forms_budget(options_));
    return {};
  }

  /// The last logits of the prompt, alone and in one step with 8 others of other lengths.
  Result<void> batch() {
    std::vector<std::vector<TokenId>> prompts{ids_};
    for (int64_t i = 1; i < 9; ++i) prompts.push_back(probe_ids(engine_->info(), 1 + i * 13, static_cast<uint64_t>(i) + 10));
    std::vector<models::StepItem> items;
    std::vector<SequenceId> sequences;
    for (size_t i = 0; i < prompts.size(); ++i) {
      LATHE_TRY(const SequenceId sequence, engine_->store().open());
      sequences.push_back(sequence);
      LATHE_TRY_VOID(engine_->store().append(sequence, static_cast<int64_t>(prompts[i].size()), 0));
      items.push_back({.sequence = sequence, .kind = models::ItemKind::kPrefill, .tokens = prompts[i], .rows = {}, .at = {}});
    }
    std::rotate(items.begin(), items.begin() + 1, items.end());  // the prompt is not the first
    LATHE_TRY(const models::StepResult result, engine_->model().step(items, engine_->store()));
    Trace together;
    engine_->read_rows(result.logits, result.items.back().logits_begin, 1, together.logits);
    for (const SequenceId sequence : sequences) {
      engine_->store().commit(sequence, 0);
      engine_->store().close(sequence);
    }
    add("batch", "a prompt alone and in one step with 8 others", compare(last(whole_), together), 0);
    return {};
  }

  Result<void> threads() {
    engine::EngineOptions other = options_;
    LATHE_TRY(const backend::ThreadChoice choice, backend::choose_threads(options_.cpu));
    const int now = choice.plan.threads;
    other.cpu.threads = now == 1 ? 3 : 1;
    LATHE_TRY(const auto engine, engine::Engine::create(other));
    LATHE_TRY(const Trace trace, feed_new(*engine, ids_, {}));
    add("threads", fmt::format("{} and {} threads", now, other.cpu.threads), compare(whole_, trace), 0);
    return {};
  }

  /// Another prompt fills a slot and leaves; the next sequence gets that slot.
  Result<void> slot_reuse() {
    const std::vector<TokenId> other = probe_ids(engine_->info(), kPromptTokens, 99);
    LATHE_TRY(const Trace before, feed_new(*engine_, other, {}));
    (void)before;
    LATHE_TRY(const Trace trace, feed_new(*engine_, ids_, {}));
    engine::EngineOptions fresh_options = options_;
    LATHE_TRY(const auto fresh, engine::Engine::create(fresh_options));
    LATHE_TRY(const Trace fresh_trace, feed_new(*fresh, ids_, {}));
    add("slot reuse", "a sequence in a used slot and in a fresh store", compare(fresh_trace, trace), 0);
    return {};
  }

  Result<void> snapshot() {
    const int64_t middle = kPromptTokens / 2 + 1;  // not at a pool border
    LATHE_TRY(const SequenceId first, engine_->store().open());
    LATHE_TRY_VOID(feed(*engine_, first, std::span(ids_).first(static_cast<size_t>(middle)), {}));
    LATHE_TRY(const cache::Snapshot taken, engine_->store().snapshot(first));
    engine_->store().close(first);
    LATHE_TRY(const SequenceId second, engine_->store().restore(taken));
    LATHE_TRY(const Trace trace, feed(*engine_, second, ids_, {}));
    engine_->store().close(second);
    add("snapshot", fmt::format("a sequence taken out after {} tokens and put back, and an undisturbed one", middle),
        compare(last(whole_), last(trace)), 0);
    return {};
  }

  /// Three proposals a step, of which 0, 1, 2 or 3 are right.
  Result<void> commit() {
    LATHE_TRY(const SequenceId sequence, engine_->store().open());
    const int64_t start = kPromptTokens - 40;
    LATHE_TRY_VOID(feed(*engine_, sequence, std::span(ids_).first(static_cast<size_t>(start)), {}));
    for (int64_t round = 0; engine_->store().length(sequence) + kTentative < kPromptTokens; ++round) {
      const int64_t at = engine_->store().length(sequence);
      const int64_t right = round % (kTentative + 1);
      std::vector<TokenId> tokens(ids_.begin() + at, ids_.begin() + at + kTentative);
      for (int64_t i = right; i < kTentative; ++i) tokens[static_cast<size_t>(i)] = ids_[static_cast<size_t>(i)];
      LATHE_TRY_VOID(engine_->store().append(sequence, kTentative, kTentative));
      const models::StepItem item{.sequence = sequence, .tokens = tokens, .rows = {}, .tentative = kTentative, .at = {}};
      LATHE_TRY_VOID(engine_->model().step({&item, 1}, engine_->store()));
      engine_->store().commit(sequence, right);
      if (right == 0) LATHE_TRY_VOID(feed(*engine_, sequence, std::span(ids_).first(static_cast<size_t>(at) + 1), {.chunks = {}, .decode_from = 0}));
    }
    LATHE_TRY(const Trace trace, feed(*engine_, sequence, ids_, {.chunks = {}, .decode_from = 0}));
    engine_->store().close(sequence);
    const double budget = options_.prefill_mla == models::MlaPath::kAbsorbed ? 0 : forms_budget(options_);
    add("commit", "proposals kept and dropped, and the kept tokens one at a time", compare(last(whole_), last(trace)), budget);
    return {};
  }

  Result<void> mla_forms() {
    engine::EngineOptions other = options_;
    other.prefill_mla = options_.prefill_mla == models::MlaPath::kAbsorbed ? models::MlaPath::kExpanded : models::MlaPath::kAbsorbed;
    LATHE_TRY(const auto engine, engine::Engine::create(other));
    LATHE_TRY(const Trace trace, feed_new(*engine, ids_, {}));
    add("mla forms", "absorbed and expanded attention", compare(whole_, trace), forms_budget(options_));
    return {};
  }

  /// One prefill with every op checked against the reference: experts and pools have rows of their own.
  Result<void> kernels() {
    ShadowObserver shadow(engine_->device());
    engine_->dispatch().set_observer(&shadow);
    auto trace = feed_new(*engine_, ids_, {});
    engine_->dispatch().set_observer(nullptr);
    if (!trace) return base::forward_error(trace);
    LATHE_TRY_VOID(shadow.status());
    ShadowObserver::Finding rest;
    for (int op = 0; op < ops::kOpCount; ++op) {
      const auto id = static_cast<ops::OpId>(op);
      const ShadowObserver::Finding& finding = shadow.finding(id);
      if (id == ops::OpId::kMoe || id == ops::OpId::kIndexSelect) continue;
      rest.calls += finding.calls;
      if (finding.worst > rest.worst) {
        rest.worst = finding.worst;
        rest.where = finding.where;
      }
    }
    const auto& pools = shadow.finding(ops::OpId::kIndexSelect);
    const auto& experts = shadow.finding(ops::OpId::kMoe);
    add("pools", "pools chosen, and those of the reference (share of rows that differ beyond near-ties)", pools.worst, 0, pools.where);
    add("experts", "experts, and the reference on the same inputs", experts.worst, kKernelBudget, experts.where);
    add("kernels", fmt::format("every other op against the reference ({} calls)", rest.calls), rest.worst, kKernelBudget, rest.where);
    return {};
  }

  Trace last(const Trace& trace) const {
    const auto width = static_cast<size_t>(engine_->info().vocabulary_end - engine_->info().vocabulary_begin);
    Trace out;
    if (trace.logits.size() >= width) out.logits.assign(trace.logits.end() - static_cast<int64_t>(width), trace.logits.end());
    return out;
  }

  engine::EngineOptions options_;
  base::FunctionRef<void(int64_t, int64_t)> progress_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<TokenId> ids_;
  Trace whole_;
  std::vector<SelftestRow> rows_;
};

}  // namespace

Result<std::vector<SelftestRow>> run_selftest(const engine::EngineOptions& options, base::FunctionRef<void(int64_t, int64_t)> progress) {
  return Selftest(options, progress).run();
}

}  // namespace lathe::feedback
