#include "evaluate/bench_model.h"

#include <algorithm>

#include "backend/observe_ops.h"
#include "base/clock.h"
#include "base/limits.h"
#include "evaluate/bench_dispatch.h"
#include "evaluate/text_logits.h"
#include "models/model_description.h"
#include "tensor/argmax.h"

namespace lathe::evaluate {
namespace {

using models::ItemKind;
using models::Logits;

constexpr int64_t kStepsPerSample = 16;
constexpr int64_t kWarmSteps = 4;  // the first steps find the sizes of buffers
constexpr int64_t kProfileSteps = 16;
constexpr int64_t kLongPrompt = 8192;  // longer ones are read once: tens of seconds

int64_t decode_steps(const BenchModelOptions& options) { return kWarmSteps + options.samples * kStepsPerSample + kProfileSteps + 2; }

/// Cached bytes that one step reads and writes: states and windows, selected latents, all index keys.
Result<double> cached_bytes(engine::Engine& engine, int64_t batch, int64_t context) {
  LATHE_TRY(const models::ModelDescription model,
            models::describe_model(engine.options().model,
                                   {.context = context, .context_at_most = true, .batch = batch, .model = engine.model().options()}));
  const config::Json* const bytes = model.facts.find("decode_step_bytes");
  double sum = 0;
  for (const char* kind : {"kda_state", "conv", "attention"}) {
    const config::Json* const value = bytes == nullptr ? nullptr : bytes->find(kind);
    if (value != nullptr) sum += value->as_double();  // a family without this kind of cache does not name it
  }
  return sum;
}

/// Sequences that decode together.
struct Group {
  std::vector<SequenceId> sequences;
  std::vector<TokenId> next;  ///< token to feed, one a sequence
  std::vector<models::StepItem> items;
};

class ModelRun {
 public:
  ModelRun(engine::Engine& engine, const BenchModelOptions& options, Roofs& roofs, BenchModelProgress progress)
      : engine_(engine), options_(options), roofs_(roofs), progress_(progress) {}

  Result<ModelBench> run() {
    ModelBench out;
    LATHE_TRY_VOID(prefill(out.prefill));
    LATHE_TRY_VOID(decode(out.decode));
    if (!options_.figures) return out;
    LATHE_TRY(out.dispatch_ns, dispatch_call_ns());
    take_all_floors(out);
    return out;
  }

 private:
  /// Ids without meaning: nothing is timed that depends on it but which experts are chosen.
  TokenId token(int64_t position) const {
    uint64_t x = options_.seed * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(position) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 29)) * 0x94D049BB133111EBull;
    // Below the last sixteenth: there lie control tokens and padding.
    return static_cast<TokenId>((x >> 16) % static_cast<uint64_t>(std::max<int64_t>(engine_.info().vocabulary * 15 / 16, 1)));
  }

  Result<void> read(SequenceId sequence, std::span<const TokenId> ids) {
    for (size_t at = 0; at < ids.size();) {
      const size_t tokens = std::min(ids.size() - at, static_cast<size_t>(engine_.options().batch_tokens));
      const bool last = at + tokens == ids.size();
      LATHE_TRY_VOID(engine_.store().append(sequence, static_cast<int64_t>(tokens), 0));
      const models::StepItem item{.sequence = sequence,
                                  .kind = ItemKind::kPrefill,
                                  .tokens = ids.subspan(at, tokens),
                                  .rows = {},
                                  .logits = last ? Logits::kLast : Logits::kNone,
                                  .at = {}};
      LATHE_TRY(const models::StepResult result, engine_.model().step({&item, 1}, engine_.store()));
      if (last) logits_ = engine_.rows(result.logits, buffer_);
      engine_.store().commit(sequence, 0);
      at += tokens;
    }
    return {};
  }

  Result<void> read_prompt(int64_t tokens) {
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(token(i));
    LATHE_TRY(const SequenceId sequence, engine_.store().open());
    Result<void> done = read(sequence, ids);
    engine_.store().close(sequence);
    return done;
  }

  Result<void> prefill(std::vector<PrefillBench>& out) {
    for (const int64_t tokens : options_.prompts) out.push_back({.tokens = tokens, .samples = {}, .profile = {}});
    const auto total = static_cast<int64_t>(out.size());
    Result<void> done;
    if (!out.empty()) done = read_prompt(std::min<int64_t>(out.front().tokens, engine_.options().batch_tokens));  // pages, scratch
    for (int round = 0; round < options_.samples; ++round) {
      for (int64_t i = 0; i < total; ++i) {
        PrefillBench& bench = out[static_cast<size_t>(i)];
        if (bench.tokens > kLongPrompt && round > 0) continue;
        progress_("reading prompts", round * total + i, options_.samples * total);
        bench.samples.push_back(clock_.take(bench.tokens, [&] {
          if (done) done = read_prompt(bench.tokens);
        }));
        if (done) done = check_logits(bench.tokens - 1);
        if (!done) return done;
      }
    }
    for (PrefillBench& bench : out) {
      if (!options_.figures) break;
      progress_("times by op", 0, 1);
      LATHE_TRY(bench.profile, observe(1, working_set(), [&] { return read_prompt(bench.tokens); }));
    }
    return {};
  }

  /// What the chunks of a prompt go through again and again.
  double working_set() const { return static_cast<double>(engine_.info().weight_bytes); }

  Result<Profile> observe(int64_t steps, double working_set, base::FunctionRef<Result<void>()> body) {
    ProfileObserver observer(engine_.device());
    engine_.dispatch().set_observer(&observer);
    const int64_t start = base::now_ns();
    const Result<void> done = body();
    const auto wall = static_cast<double>(base::now_ns() - start);
    engine_.dispatch().set_observer(nullptr);
    LATHE_TRY_VOID(done);
    LATHE_TRY_VOID(observer.status());
    Profile profile = observer.profile(steps, wall, working_set);
    take_floors(profile, roofs_);  // measures the roofs now; they are measured again at the end
    return profile;
  }

  Result<Group> open(int64_t batch) {
    Group group;
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < batch; ++i) {
      LATHE_TRY(const SequenceId sequence, engine_.store().open(static_cast<uint64_t>(i)));
      group.sequences.push_back(sequence);
      ids.clear();
      for (int64_t t = 0; t < options_.decode_context; ++t) ids.push_back(token(i * 7919 + t));
      LATHE_TRY_VOID(read(sequence, ids));
      group.next.push_back(best(0));
    }
    for (size_t i = 0; i < group.sequences.size(); ++i) {
      group.items.push_back(
          {.sequence = group.sequences[i], .kind = ItemKind::kDecode, .tokens = {&group.next[i], 1}, .rows = {}, .logits = Logits::kLast, .at = {}});
    }
    return group;
  }

  /// The rows that were read last, at `position`: speed of a model that gives no numbers says nothing. Outside the times.
  Result<void> check_logits(int64_t position) const {
    const auto width = static_cast<size_t>(engine_.info().vocabulary);
    for (size_t at = 0; at < logits_.size(); at += width) LATHE_TRY_VOID(check_finite(logits_.subspan(at, width), "logits", position));
    return {};
  }

  TokenId best(int64_t row) const {
    const auto width = static_cast<size_t>(engine_.info().vocabulary), first = static_cast<size_t>(row) * width;
    const auto logits = logits_.subspan(first, static_cast<size_t>(engine_.sampled_vocabulary()));
    return static_cast<TokenId>(std::max<int64_t>(tensor::argmax(logits), 0));  // of NaN alone: told by check_logits()
  }

  /// Greedy: one step of all sequences, logits read and the next tokens chosen.
  Result<void> step(Group& group) {
    for (const SequenceId sequence : group.sequences) LATHE_TRY_VOID(engine_.store().append(sequence, 1, 0));
    LATHE_TRY(const models::StepResult result, engine_.model().step(group.items, engine_.store()));
    logits_ = engine_.rows(result.logits, buffer_);
    for (size_t i = 0; i < group.sequences.size(); ++i) {
      group.next[i] = best(result.items[i].logits_begin);
      engine_.store().commit(group.sequences[i], 0);
    }
    return {};
  }
  Result<void> steps(Group& group, int64_t count) {
    for (int64_t i = 0; i < count; ++i) LATHE_TRY_VOID(step(group));
    return {};
  }

  Result<void> decode(std::vector<DecodeBench>& out) {
    std::vector<Group> groups;
    for (const int64_t batch : options_.batches) {
      progress_("preparing sequences", batch, batch);
      LATHE_TRY(Group group, open(batch));
      groups.push_back(std::move(group));
      LATHE_TRY_VOID(steps(groups.back(), kWarmSteps));
      out.push_back({.batch = batch, .context = options_.decode_context + kWarmSteps, .samples = {}, .profile = {}});
    }
    const auto total = static_cast<int64_t>(groups.size());
    Result<void> done;
    for (int round = 0; round < options_.samples; ++round) {
      for (int64_t i = 0; i < total; ++i) {
        progress_("decoding", round * total + i, options_.samples * total);
        DecodeBench& bench = out[static_cast<size_t>(i)];
        const int64_t before = options_.allocations ? options_.allocations() : 0;
        const Sample sample = clock_.take(kStepsPerSample, [&] { done = steps(groups[static_cast<size_t>(i)], kStepsPerSample); });
        LATHE_TRY_VOID(done);
        LATHE_TRY_VOID(check_logits(bench.context + (round + 1) * kStepsPerSample - 1));
        if (options_.allocations) bench.allocations = std::max<int64_t>(bench.allocations, 0) + options_.allocations() - before;
        bench.samples.push_back(sample);
      }
    }
    for (size_t i = 0; i < groups.size() && options_.figures; ++i) LATHE_TRY_VOID(decode_figures(groups[i], out[i]));
    for (const Group& group : groups) {
      for (const SequenceId sequence : group.sequences) engine_.store().close(sequence);
    }
    return {};
  }

  Result<void> decode_figures(Group& group, DecodeBench& bench) {
    progress_("times by op", 0, 1);
    backend::CountingObserver counting(engine_.device());
    engine_.dispatch().set_observer(&counting);
    const Result<void> counted = step(group);
    engine_.dispatch().set_observer(nullptr);
    LATHE_TRY_VOID(counted);
    LATHE_TRY_VOID(counting.status());
    constexpr auto kWeights = static_cast<size_t>(ops::Counter::kWeightBytes);
    for (int op = 0; op < ops::kOpCount; ++op) {
      const auto& total = counting.total(static_cast<ops::OpId>(op));
      bench.weight_bytes_done += static_cast<double>(total.done[kWeights]);
      bench.weight_bytes_needed += static_cast<double>(total.needed[kWeights]);
    }
    LATHE_TRY(const double cached, cached_bytes(engine_, bench.batch, bench.context));
    // The contract of `moe` counts as many experts as the rows can reach; the twin, those that they chose.
    bench.bytes = std::min(bench.weight_bytes_done, bench.weight_bytes_needed) + cached;
    LATHE_TRY(bench.profile, observe(kProfileSteps, bench.bytes, [&] { return steps(group, kProfileSteps); }));
    bench.state_bytes = bench.profile.state_bytes() / static_cast<double>(kProfileSteps);
    bench.flops = bench.profile.linear_flops() / static_cast<double>(kProfileSteps);
    for (const SiteTime& site : bench.profile.sites) bench.calls += static_cast<double>(site.calls) / static_cast<double>(kProfileSteps);
    roofs_.read_bandwidth(static_cast<int64_t>(bench.bytes));
    return {};
  }

  void take_all_floors(ModelBench& out) {
    progress_("roofs again", 0, 1);
    out.bf16_flops = roofs_.bf16_flops();
    roofs_.measure_again();
    const bool exact = engine_.options().precision == models::Precision::kExact;
    out.bf16_flops = roofs_.bf16_flops();
    for (PrefillBench& bench : out.prefill) take_floors(bench.profile, roofs_);
    for (DecodeBench& bench : out.decode) {
      take_floors(bench.profile, roofs_);
      bench.floor_ns = std::max(bench.bytes / roofs_.read_bandwidth(static_cast<int64_t>(bench.bytes)),
                                bench.flops / (exact ? roofs_.f32_flops() : roofs_.bf16_flops())) *
                       1e9;
    }
  }

  engine::Engine& engine_;
  const BenchModelOptions& options_;
  Roofs& roofs_;
  BenchModelProgress progress_;
  SampleClock clock_;
  std::span<const float> logits_;  ///< of the last step
  std::vector<float> buffer_;
};

}  // namespace

Result<void> check_bench_lengths(const BenchModelOptions& options, int64_t batch_tokens) {
  for (const int64_t tokens : options.prompts) {
    if (tokens < 1 || tokens > base::kLimits.context_tokens)
      return err(Code::kInvalidArgument, "a prompt of {} tokens: expected 1 to {}", tokens, base::kLimits.context_tokens);
  }
  int64_t sequences = 0;
  for (const int64_t batch : options.batches) {
    if (batch < 1 || batch > batch_tokens) {
      return err(Code::kInvalidArgument, "a batch of {}: expected 1 to {}, the rows of a step (--batch-tokens)", batch, batch_tokens);
    }
    sequences += batch;
    if (sequences > base::kLimits.benchmark_sequences) {
      return err(Code::kInvalidArgument, "batches of {} sequences together: expected at most {}", sequences, base::kLimits.benchmark_sequences);
    }
  }
  if (options.samples < 1) return err(Code::kInvalidArgument, "{} samples: expected at least 1", options.samples);
  return {};
}

Result<void> check_bench_model(const engine::Engine& engine, const BenchModelOptions& options) {
  LATHE_TRY_VOID(check_bench_lengths(options, engine.options().batch_tokens));
  const int64_t context = bench_model_context(options);
  if (context > engine.options().context_tokens || bench_model_sequences(options) > engine.options().sequences) {
    return err(Code::kInvalidArgument, "the engine holds {} sequences of {} tokens, the benchmark needs {} of {}", engine.options().sequences,
               engine.options().context_tokens, bench_model_sequences(options), context);
  }
  return {};
}

double PrefillBench::ns_without_scan() const {
  // The share of the observed pass, applied to the time without observer.
  return summarise(samples).median * (1 - scan_share());
}

double PrefillBench::scan_share() const { return profile.wall_ns > 0 ? profile.time_of("index_select") / profile.wall_ns : 0; }

int64_t bench_model_context(const BenchModelOptions& options) {
  int64_t context = options.batches.empty() ? 1 : options.decode_context + decode_steps(options);
  for (const int64_t tokens : options.prompts) context = std::max(context, tokens);
  return context;
}

int32_t bench_model_sequences(const BenchModelOptions& options) {
  int64_t sequences = 1;
  for (const int64_t batch : options.batches) sequences += batch;
  return static_cast<int32_t>(std::min<int64_t>(sequences, INT32_MAX));
}

Result<ModelBench> bench_model(engine::Engine& engine, const BenchModelOptions& options, Roofs& roofs, BenchModelProgress progress) {
  LATHE_TRY_VOID(check_bench_model(engine, options));
  return ModelRun(engine, options, roofs, progress).run();
}

}  // namespace lathe::evaluate
