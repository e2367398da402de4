#include "evaluate/bench_drafts.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe::evaluate {
namespace {

using config::Json;

/// Answers of a batch, and what they took from the moment that all prompts were read until the first of them ended.
struct Answers {
  std::vector<std::vector<TokenId>> texts;
  Sample sample;
  engine::DraftCounts counts;
  int64_t steps = 0;
  int64_t drafting_ns = 0;
};

class DraftsRun {
 public:
  DraftsRun(engine::Engine& engine, const BenchDraftsOptions& options) : engine_(engine), options_(options) {}

  Result<Answers> answer(int64_t batch, int64_t first_prompt, int32_t drafts) {
    engine::Generator generator(engine_);
    Answers out;
    out.texts.resize(static_cast<size_t>(batch));
    for (int64_t i = 0; i < batch; ++i) {
      const auto& prompt = options_.prompts[static_cast<size_t>(first_prompt + i) % options_.prompts.size()];
      LATHE_TRY_VOID(generator.add({.prompt = prompt,
                                    .images = {},
                                    .sampling = {.temperature = 0, .logit_bias = {}},
                                    .max_tokens = options_.tokens,
                                    .stop_tokens = options_.stop_tokens,
                                    .drafts = drafts}));
    }
    size_t begun = 0;
    bool ended = false;
    int32_t failed = -1;
    const auto on_token = [&](const engine::TokenEvent& event) {
      auto& text = out.texts[static_cast<size_t>(event.request)];
      if (event.finish == engine::Finish::kError) failed = event.request;
      begun += text.empty() ? 1 : 0;
      text.push_back(event.token);
      ended = ended || event.finish != engine::Finish::kNone;
      ++out.sample.units;
    };
    const auto step = [&]() -> Result<void> {
      LATHE_TRY_VOID(generator.step(on_token));
      if (failed >= 0) return tl::unexpected<Error>(generator.error(failed));
      return {};
    };
    while (begun < out.texts.size() && !ended) LATHE_TRY_VOID(step());
    const engine::DraftWork before = generator.draft_work();
    const int64_t steps = generator.steps();
    out.sample.units = 0;
    Result<void> done;
    const Sample time = clock_.take(1, [&] {
      while (!ended && done) done = step();
    });
    LATHE_TRY_VOID(done);
    out.sample = {.order = time.order, .start_ns = time.start_ns, .wall_ns = time.wall_ns, .cpu_ns = time.cpu_ns, .units = out.sample.units};
    out.counts = generator.drafts();
    out.steps = generator.steps() - steps;
    out.drafting_ns = generator.draft_work().ns - before.ns;
    return out;
  }

 private:
  engine::Engine& engine_;
  const BenchDraftsOptions& options_;
  SampleClock clock_;
};

/// Both end with the first text that ends; the other texts of one may be some tokens longer.
bool alike(const Answers& a, const Answers& b) {
  for (size_t i = 0; i < a.texts.size(); ++i) {
    const auto common = static_cast<ptrdiff_t>(std::min(a.texts[i].size(), b.texts[i].size()));
    if (!std::equal(a.texts[i].begin(), a.texts[i].begin() + common, b.texts[i].begin())) return false;
  }
  return true;
}

double rate(const std::vector<Sample>& samples) { return 1e9 / summarise(samples).median; }

std::string percent(int64_t part, int64_t whole) {
  return whole > 0 ? fmt::format("{:.0f}", 100 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

std::string by_position(const engine::DraftCounts& counts) {
  std::string out;
  for (size_t i = 0; i < engine::kDraftsMax && counts.drafted_at[i] > 0; ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : " ", percent(counts.accepted_at[i], counts.drafted_at[i]));
  }
  return out.empty() ? "-" : out;
}

}  // namespace

RatioInterval DraftsBench::gain() const {
  std::vector<double> a, b;
  for (size_t i = 0; i < plain.size(); ++i) {
    a.push_back(static_cast<double>(plain[i].units) / static_cast<double>(plain[i].wall_ns));
    b.push_back(static_cast<double>(drafted[i].units) / static_cast<double>(drafted[i].wall_ns));
  }
  if (a.size() >= 2) return ratio_interval(a, b);
  const double ratio = b.front() / a.front();
  return {.ratio = ratio, .low = ratio, .high = ratio};
}

Result<std::vector<DraftsBench>> bench_drafts(engine::Engine& engine, const BenchDraftsOptions& options, BenchModelProgress progress) {
  if (options.prompts.empty()) return err(Code::kInvalidArgument, "drafts are measured on real text: expected prompts");
  if (engine.options().drafts.most == 0)
    return err(Code::kInvalidArgument, "drafts are switched off, or the model has no draft layer: nothing to measure");
  DraftsRun run(engine, options);
  std::vector<DraftsBench> out;
  for (const int64_t batch : options.batches) {
    if (batch < 1 || batch > engine.options().sequences)
      return err(Code::kInvalidArgument, "a batch of {} with drafts: expected 1 to {}, the sequences of the engine", batch,
                 engine.options().sequences);
    out.push_back({.batch = batch, .plain = {}, .drafted = {}, .counts = {}});
    LATHE_TRY_VOID(run.answer(batch, 0, engine::kDraftsMax));  // buffers, and the times that lengths are chosen by
  }
  for (int round = 0; round < options.samples; ++round) {
    for (size_t i = 0; i < out.size(); ++i) {
      DraftsBench& bench = out[i];
      progress("drafting", round * static_cast<int64_t>(out.size()) + static_cast<int64_t>(i), options.samples * static_cast<int64_t>(out.size()));
      const int64_t first = round * bench.batch;
      // In turns, and every other round the other way round.
      Result<Answers> plain, drafted;
      if (round % 2 == 0) plain = run.answer(bench.batch, first, 0);
      drafted = run.answer(bench.batch, first, engine::kDraftsMax);
      if (round % 2 == 1) plain = run.answer(bench.batch, first, 0);
      LATHE_TRY_VOID(plain);
      LATHE_TRY_VOID(drafted);
      if (!alike(*plain, *drafted))
        return err(Code::kInternal, "a batch of {} answers otherwise with drafts than without: expected the same tokens", bench.batch);
      if (plain->sample.units == 0 || drafted->sample.units == 0) continue;  // a text of one token
      bench.plain.push_back(plain->sample);
      bench.drafted.push_back(drafted->sample);
      bench.counts.add(drafted->counts);
      bench.steps += drafted->steps;
      bench.drafting_share += static_cast<double>(drafted->drafting_ns) / static_cast<double>(drafted->sample.wall_ns);
    }
  }
  for (DraftsBench& bench : out) bench.drafting_share /= static_cast<double>(std::max<size_t>(bench.drafted.size(), 1));
  std::erase_if(out, [](const DraftsBench& bench) { return bench.plain.empty(); });
  return out;
}

std::string draft_counts_text(const engine::DraftCounts& counts) {
  return fmt::format("{:.2f} tokens a window, {} of {} drafts accepted, by position {} %", counts.length(), counts.accepted, counts.drafted,
                     by_position(counts));
}

Json draft_counts_json(const engine::DraftCounts& counts) {
  Json::Array drafted, accepted;
  for (size_t i = 0; i < engine::kDraftsMax; ++i) {
    drafted.push_back(counts.drafted_at[i]);
    accepted.push_back(counts.accepted_at[i]);
  }
  return Json::Object{{"num_drafts", counts.windows},
                      {"num_draft_tokens", counts.drafted},
                      {"num_accepted_tokens", counts.accepted},
                      {"num_draft_tokens_per_pos", std::move(drafted)},
                      {"num_accepted_tokens_per_pos", std::move(accepted)},
                      {"acceptance_length", counts.length()},
                      {"acceptance_rate", counts.rate()}};
}

std::string drafts_page(const std::vector<DraftsBench>& benches) {
  if (benches.empty()) return "";
  std::string out = fmt::format("\nDrafts            {:>10} {:>10} {:>22} {:>14} {:>10} {:>22} {:>9}\n", "without", "with", "gain, 95 % interval",
                                "tokens a step", "accepted", "by position, %", "drafting");
  for (const DraftsBench& bench : benches) {
    const RatioInterval gain = bench.gain();
    int64_t tokens = 0;
    for (const Sample& sample : bench.drafted) tokens += sample.units;
    out += fmt::format("  {:>5} sequences {:>10.0f} {:>10.0f} {:>22} {:>14.2f} {:>9}% {:>22} {:>8.0f}%\n", bench.batch, rate(bench.plain),
                       rate(bench.drafted), fmt::format("{:.2f} x ({:.2f}–{:.2f})", gain.ratio, gain.low, gain.high),
                       static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(bench.steps * bench.batch, 1)),
                       percent(bench.counts.accepted, bench.counts.drafted), by_position(bench.counts), 100 * bench.drafting_share);
  }
  return out + "  tokens/s of greedy answers to real prompts; with drafts every text was the same as without\n";
}

Json drafts_json(const std::vector<DraftsBench>& benches) {
  Json::Array out;
  for (const DraftsBench& bench : benches) {
    const RatioInterval gain = bench.gain();
    out.push_back(Json::Object{{"batch", bench.batch},
                               {"tokens_per_second", rate(bench.plain)},
                               {"tokens_per_second_drafted", rate(bench.drafted)},
                               {"gain", Json::Object{{"ratio", gain.ratio}, {"low", gain.low}, {"high", gain.high}}},
                               {"steps", bench.steps},
                               {"drafting_share", bench.drafting_share},
                               {"spec_decode", draft_counts_json(bench.counts)},
                               {"samples_plain", samples_json(bench.plain)},
                               {"samples_drafted", samples_json(bench.drafted)}});
  }
  return Json::Object{{"drafts", std::move(out)}};
}

}  // namespace lathe::evaluate
