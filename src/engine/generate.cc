#include "engine/generate.h"

#include <algorithm>

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

Generator::Generator(Engine& engine) : engine_(engine), sampler_(engine.sampled_vocabulary()) {}

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

void Generator::fail(int32_t request, const Error& error, base::FunctionRef<void(const TokenEvent&)> on_token) {
  runs_[static_cast<size_t>(request)]->error = error;
  end(request, Finish::kError);
  on_token({.request = request, .token = -1, .finish = Finish::kError});
}

void Generator::cancel(int32_t request) {
  if (runs_[static_cast<size_t>(request)]->finish == Finish::kNone) end(request, Finish::kCancelled);
}

Result<models::StepItem> Generator::make_item(const PlanLine& line) {
  Run& run = *runs_[static_cast<size_t>(line.request)];
  if (line.admit) {
    LATHE_TRY(run.sequence, engine_.store().open());
    views_[static_cast<size_t>(line.request)].running = true;
  }
  LATHE_TRY_VOID(engine_.store().append(run.sequence, line.tokens, 0));
  models::StepItem item{.sequence = run.sequence, .kind = models::ItemKind::kDecode, .tokens = {&run.last, 1}, .rows = {}, .at = {}};
  if (!line.prefill) return item;
  item.kind = models::ItemKind::kPrefill;
  item.tokens = std::span<const TokenId>(run.request.prompt).subspan(static_cast<size_t>(run.done), static_cast<size_t>(line.tokens));
  item.logits = line.last_chunk ? models::Logits::kLast : models::Logits::kNone;
  rows_between(run.request.images, run.done, run.done + line.tokens, run.rows);
  item.rows = run.rows;
  return item;
}

Result<void> Generator::take_token(const PlanLine& line, std::span<const float> logits, base::FunctionRef<void(const TokenEvent&)> on_token) {
  Run& run = *runs_[static_cast<size_t>(line.request)];
  const LogitRange range{.first = static_cast<TokenId>(engine_.info().vocabulary_begin), .values = logits};
  LATHE_TRY(const Sample sample, sampler_.sample({&range, 1}, {.params = run.request.sampling, .counts = run.counts, .position = run.generated}));
  run.last = sample.token;
  run.counts.add_output(sample.token);
  ++run.generated;
  const std::vector<TokenId>& stops = run.request.stop_tokens;
  Finish finish = Finish::kNone;
  if (std::find(stops.begin(), stops.end(), sample.token) != stops.end()) {
    finish = Finish::kStop;
  } else if (run.generated == run.request.max_tokens) {
    finish = Finish::kLength;
  } else if (engine_.store().length(run.sequence) + 1 >= engine_.options().context_tokens) {
    finish = Finish::kContext;  // this token is the last that prompt and answer together may have
  }
  if (finish != Finish::kNone) end(line.request, finish);
  on_token({.request = line.request, .token = sample.token, .logprob = sample.logprob, .finish = finish});
  return {};
}

Result<bool> Generator::step(base::FunctionRef<void(const TokenEvent&)> on_token) {
  const PlanLimits limits{.step_tokens = engine_.model().options().max_batch_tokens, .sequences = engine_.options().sequences};
  plan_step(views_, limits, plan_);
  if (plan_.empty()) return false;
  ++steps_;
  items_.clear();
  size_t kept = 0;
  for (const PlanLine& line : plan_) {
    const auto item = make_item(line);
    if (!item) {
      fail(line.request, item.error(), on_token);
      continue;
    }
    items_.push_back(*item);
    plan_[kept++] = line;
  }
  plan_.resize(kept);
  if (items_.empty()) return true;
  const auto result = engine_.model().step(items_, engine_.store());
  for (const models::StepItem& item : items_) engine_.store().commit(item.sequence, 0);
  if (!result) {
    for (const PlanLine& line : plan_) end(line.request, Finish::kError);
    return base::forward_error(result);
  }
  const std::span<const float> logits = result->logits.present() ? engine_.rows(result->logits, logits_) : std::span<const float>();
  const auto width = static_cast<size_t>(result->logits.present() ? result->logits.dim(1) : 0);
  for (size_t i = 0; i < plan_.size(); ++i) {
    Run& run = *runs_[static_cast<size_t>(plan_[i].request)];
    if (plan_[i].prefill) {
      run.done += plan_[i].tokens;
      views_[static_cast<size_t>(plan_[i].request)].done_tokens = run.done;
    }
    if (run.finish != Finish::kNone || result->items[i].logits_count == 0) continue;
    const auto row = static_cast<size_t>(result->items[i].logits_begin) * width;
    const auto taken = take_token(plan_[i], logits.subspan(row, width), on_token);
    if (!taken) fail(plan_[i].request, taken.error(), on_token);
  }
  return true;
}

}  // namespace lathe::engine
