#include "engine/generate.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/request_key.h"

namespace lathe::engine {

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::kNone: return "";
    case Finish::kStop: return "stop";
    case Finish::kLength: return "length";
    case Finish::kContext: return "context";
    case Finish::kCancelled: return "cancelled";
    case Finish::kError: return "error";
  }
  return "";
}

Generator::Generator(Engine& engine) : engine_(engine), sampler_(engine.sampled_vocabulary()), drafter_(engine) {}

Result<int32_t> Generator::add(Request request) {
  const models::ModelInfo& info = engine_.info();
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return err(Code::kInvalidArgument, "the prompt is empty: expected at least one token");
  if (length >= engine_.options().context_tokens) {
    return err(Code::kInvalidArgument, "the prompt has {} tokens, the context holds {} and the answer needs at least one", length,
               engine_.options().context_tokens);
  }
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= info.vocabulary)
      return err(Code::kInvalidArgument, "token {} of the prompt is outside the vocabulary of {}", id, info.vocabulary);
  }
  if (request.max_tokens < 1) return err(Code::kInvalidArgument, "max tokens is {}, expected at least 1", request.max_tokens);
  LATHE_TRY_VOID(request.sampling.validate(engine_.sampled_vocabulary()));
  for (const PromptImage& image : request.images) {
    if (image.begin < 0 || image.begin + image.rows.rows.dim(0) > length) {
      return err(Code::kInvalidArgument, "an image of {} rows at token {} does not fit a prompt of {} tokens", image.rows.rows.dim(0), image.begin,
                 length);
    }
  }
  auto run = std::make_unique<Run>(std::move(request), info.vocabulary);
  for (const TokenId id : run->request.prompt) run->counts.add_prompt(id);
  if (run->request.drafts < 0) return err(Code::kInvalidArgument, "{} drafts a window: expected at least 0", run->request.drafts);
  run->draft.most = std::min(run->request.drafts, engine_.options().drafts.most);
  run->window.reserve(kDraftsMax + 2);
  views_.push_back({.prompt_tokens = length});
  runs_.push_back(std::move(run));
  return static_cast<int32_t>(runs_.size() - 1);
}

Generator::~Generator() {
  for (const auto& run : runs_) {
    if (run->sequence.valid()) engine_.store().close(run->sequence);
  }
}

void Generator::end(int32_t request, Finish finish) {
  Run& run = *runs_[static_cast<size_t>(request)];
  run.finish = finish;
  if (run.sequence.valid()) engine_.store().close(run.sequence);
  run.sequence = {};
  views_[static_cast<size_t>(request)].finished = true;
}

void Generator::fail(int32_t request, const Error& error, OnToken on_token) {
  runs_[static_cast<size_t>(request)]->error = error;
  end(request, Finish::kError);
  on_token({.request = request, .token = -1, .finish = Finish::kError});
}

void Generator::cancel(int32_t request) {
  if (runs_[static_cast<size_t>(request)]->finish == Finish::kNone) end(request, Finish::kCancelled);
}

/// Makes room in the store for what the line appends.
Result<void> Generator::make_room(PlanLine& line) {
  Run& run = run_of(line);
  if (line.admit) {
    LATHE_TRY(run.sequence, engine_.store().open(request_key(run.request.prompt, run.request.sampling.seed)));
    view_of(line).running = true;
  }
  if (line.drafts > 0) {
    if (engine_.store().append(run.sequence, line.tokens, line.drafts)) return {};
    line.tokens -= std::exchange(line.drafts, 0);  // drafts are worth no error
  }
  return engine_.store().append(run.sequence, line.tokens, 0);
}

models::StepItem Generator::make_item(const PlanLine& line) {
  Run& run = run_of(line);
  if (!line.prefill) {
    const auto drafts = static_cast<int32_t>(run.window.size()) - 1;
    return {.sequence = run.sequence,
            .kind = models::ItemKind::kDecode,
            .tokens = run.window,
            .rows = {},
            .tentative = drafts,
            .logits = drafts > 0 ? models::Logits::kAll : models::Logits::kLast,
            .at = {}};
  }
  rows_between(run.request.images, run.done, run.done + line.tokens, run.rows);
  return {.sequence = run.sequence,
          .kind = models::ItemKind::kPrefill,
          .tokens = std::span<const TokenId>(run.request.prompt).subspan(static_cast<size_t>(run.done), static_cast<size_t>(line.tokens)),
          .rows = run.rows,
          .logits = line.last_chunk ? models::Logits::kLast : models::Logits::kNone,
          .at = {}};
}

/// The items of the plan; lines without room end their requests and leave it.
void Generator::make_items(OnToken on_token) {
  items_.clear();
  windows_.clear();
  for (PlanLine& line : plan_) {
    if (run_of(line).finish != Finish::kNone) continue;
    if (const auto room = make_room(line); !room) fail(line.request, room.error(), on_token);
  }
  std::erase_if(plan_, [&](const PlanLine& line) { return run_of(line).finish != Finish::kNone; });  // by an error, or by who was told of one
  for (const PlanLine& line : plan_) {
    Run& run = run_of(line);
    run.window.assign(1, run.last);
    if (line.drafts > 0) windows_.push_back({.request = draft_request(run), .drafts = line.drafts, .tokens = &run.window});
  }
  if (!windows_.empty()) drafter_.propose(windows_);
  for (const PlanLine& line : plan_) items_.push_back(make_item(line));
}

DraftRequest Generator::draft_request(Run& run) {
  return {.state = &run.draft, .sequence = run.sequence, .sampling = &run.request.sampling, .counts = &run.counts, .generated = run.generated};
}

/// Samples from the row behind the tokens that were accepted so far.
Result<void> Generator::take_token(const PlanLine& line, std::span<const float> logits, OnToken on_token) {
  Run& run = run_of(line);
  const LogitRange range{.first = static_cast<TokenId>(engine_.info().vocabulary_begin), .values = logits};
  LATHE_TRY(const Sample sample,
            sampler_.sample({&range, 1},
                            {.params = run.request.sampling, .counts = run.counts, .position = run.generated, .logprob = run.request.logprobs}));
  run.last = sample.token;
  run.counts.add_output(sample.token);
  ++run.generated;
  const std::vector<TokenId>& stops = run.request.stop_tokens;
  Finish finish = Finish::kNone;
  if (std::find(stops.begin(), stops.end(), sample.token) != stops.end()) {
    finish = Finish::kStop;
  } else if (run.generated == run.request.max_tokens) {
    finish = Finish::kLength;
  } else if (engine_.store().length(run.sequence) + run.accepted + 1 >= engine_.options().context_tokens) {
    finish = Finish::kContext;  // this token is the last that prompt and answer together may have
  }
  if (finish != Finish::kNone) end(line.request, finish);
  on_token({.request = line.request, .token = sample.token, .logprob = sample.logprob, .finish = finish});
  return {};
}

/// Takes the tokens of a line: one, and one more for every draft that is what was sampled in its place. `logits`: one row a token.
Result<void> Generator::verify(const PlanLine& line, std::span<const float> logits, OnToken on_token) {
  Run& run = run_of(line);
  const size_t drafts = line.prefill ? 0 : run.window.size() - 1, width = logits.size() / (drafts + 1);
  run.accepted = 0;
  for (size_t row = 0;; ++row) {
    LATHE_TRY_VOID(take_token(line, logits.subspan(row * width, width), on_token));
    if (run.finish != Finish::kNone) break;
    if (row == drafts || run.last != run.window[row + 1]) break;
    ++run.accepted;
  }
  // Of a text that has ended, what was compared counts.
  const bool ended = run.finish != Finish::kNone;
  if (!line.prefill) drafter_.verified(run.draft, ended ? run.accepted : static_cast<int>(drafts), run.accepted);
  return {};
}

void Generator::take_results(const models::StepResult& result, OnToken on_token) {
  const std::span<const float> logits = result.logits.present() ? engine_.rows(result.logits, logits_) : std::span<const float>();
  const auto width = static_cast<size_t>(result.logits.present() ? result.logits.dim(1) : 0);
  for (size_t i = 0; i < plan_.size(); ++i) {
    const PlanLine& line = plan_[i];
    Run& run = run_of(line);
    if (run.finish != Finish::kNone) continue;
    if (line.prefill) {
      run.done += line.tokens;
      view_of(line).done_tokens = run.done;
    }
    run.accepted = 0;
    const models::ItemRows& at = result.items[i];
    if (at.logits_count > 0) {
      const auto taken =
          verify(line, logits.subspan(static_cast<size_t>(at.logits_begin) * width, static_cast<size_t>(at.logits_count) * width), on_token);
      if (!taken && run.finish == Finish::kNone) fail(line.request, taken.error(), on_token);
    }
    if (run.finish == Finish::kNone) engine_.store().commit(run.sequence, run.accepted);
  }
}

/// Lengths of the next windows, and the draft layer's look at the rows of this step.
void Generator::prepare_drafts(const models::StepResult& result) {
  decoding_.clear(), usable_.clear(), shown_.clear();
  for (const PlanLine& line : plan_) {
    Run& run = run_of(line);
    if (!run.sequence.valid() || (line.prefill && !line.last_chunk)) continue;
    const int64_t room = engine_.options().context_tokens - 1 - engine_.store().length(run.sequence);
    decoding_.push_back(draft_request(run));
    const auto usable = static_cast<int32_t>(std::min<int64_t>(kDraftsMax, std::min(run.request.max_tokens - run.generated, room) - 1));
    usable_.push_back(draft_limit_ ? std::clamp(draft_limit_(line.request, run.generated), 0, usable) : usable);
  }
  drafter_.choose(decoding_, usable_);
  for (size_t i = 0; i < plan_.size(); ++i) {
    Run& run = run_of(plan_[i]);
    if (run.sequence.valid() && run.draft.most > 0) shown_.push_back(draft_rows(plan_[i], result.items[i].hidden_begin));
  }
  if (!shown_.empty()) drafter_.feed(shown_, result.hidden);
  for (const PlanLine& line : plan_) view_of(line).drafts = run_of(line).draft.first >= 0 ? run_of(line).draft.wanted : 0;
}

/// The rows of the step that stay, each with the token one on.
DraftRows Generator::draft_rows(const PlanLine& line, int64_t hidden_begin) {
  Run& run = run_of(line);
  const int64_t rows = line.prefill ? line.tokens : 1 + run.accepted;
  const int64_t start = engine_.store().length(run.sequence) - rows;
  run.rows.clear();
  std::vector<TokenId>& next = line.prefill ? run.shifted : run.window;
  if (line.prefill) {
    const auto& prompt = run.request.prompt;
    next.assign(prompt.begin() + start + 1, prompt.begin() + start + rows + (line.last_chunk ? 0 : 1));
    rows_between(run.request.images, start + 1, start + 1 + rows, run.rows);
  } else {
    next.erase(next.begin());
    next.resize(static_cast<size_t>(run.accepted));
  }
  if (!line.prefill || line.last_chunk) next.push_back(run.last);
  return {.request = draft_request(run),
          .kind = line.prefill ? models::ItemKind::kPrefill : models::ItemKind::kDecode,
          .start = start,
          .next = next,
          .rows = run.rows,
          .hidden_begin = hidden_begin};
}

/// Begins a request anew whose drafts tell that something is wrong; ends it when that was tried before.
void Generator::watch(const PlanLine& line, OnToken on_token) {
  const DraftHealth& limits = engine_.options().drafts.health;
  Run& run = run_of(line);
  if (line.prefill || !run.sequence.valid()) return;
  const auto drafts = static_cast<int>(run.window.size()) - 1;
  const DraftWatch::Verdict verdict = run.draft.watch.add(limits, 1 + run.accepted, drafts, run.accepted);
  if (verdict == DraftWatch::Verdict::kFine) return;
  if (!run.restarted) return begin_anew(line.request, on_token);
  const DraftCounts& judged = run.draft.watch.judged();
  const Error error = verdict == DraftWatch::Verdict::kTooShort
                          ? err(Code::kDataLoss, "the answer went wrong twice: its drafts were accepted {:.2f} tokens a step, expected at least {}",
                                judged.length(), limits.length_min)
                                .value()
                          : err(Code::kDataLoss, "the answer went wrong twice: {:.3f} of its drafts were accepted, expected at most {}",
                                judged.rate(), limits.rate_max)
                                .value();
  fail(line.request, error, on_token);
}

void Generator::begin_anew(int32_t request, OnToken on_token) {
  Run& run = *runs_[static_cast<size_t>(request)];
  engine_.store().close(run.sequence);
  run.sequence = {};
  run.counts = TokenCounts(engine_.info().vocabulary);
  for (const TokenId id : run.request.prompt) run.counts.add_prompt(id);
  run.done = run.generated = 0;
  const DraftCounts before = run.draft.counts;
  run.draft = {.most = run.draft.most, .next = {}, .counts = before, .watch = {}};
  run.restarted = true;
  ++restarts_;
  views_[static_cast<size_t>(request)] = {.prompt_tokens = static_cast<int64_t>(run.request.prompt.size())};
  on_token({.request = request, .token = -1, .restart = true});
}

Result<bool> Generator::step(OnToken on_token) {
  const PlanLimits limits{.step_tokens = engine_.model().options().max_batch_tokens, .sequences = engine_.options().sequences};
  plan_step(views_, limits, plan_);
  if (plan_.empty()) return false;
  ++steps_;
  make_items(on_token);
  if (items_.empty()) return true;
  const int64_t start = drafter_.on() ? base::now_ns() : 0;
  const auto result = engine_.model().step(items_, engine_.store());
  if (!result) {
    for (const PlanLine& line : plan_) end(line.request, Finish::kError);
    return base::forward_error(result);
  }
  take_results(*result, on_token);
  if (!drafter_.on()) return true;
  int64_t rows = 0;
  bool prompts = false;
  for (size_t i = 0; i < plan_.size(); ++i) {
    rows += static_cast<int64_t>(items_[i].tokens.size());
    prompts = prompts || plan_[i].prefill;
  }
  if (!prompts) drafter_.times().step_took(rows, static_cast<int64_t>(plan_.size()), base::now_ns() - start);
  if (engine_.options().drafts.health.on) {
    for (const PlanLine& line : plan_) watch(line, on_token);
  }
  prepare_drafts(*result);
  return true;
}

}  // namespace lathe::engine
