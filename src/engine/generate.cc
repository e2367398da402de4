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
  }
  return "";
}

Generator::Generator(Engine& engine) : engine_(engine), sampler_(engine.sampled_vocabulary()) {}

Result<int32_t> Generator::add(Request request) {
  const models::ModelInfo& info = engine_.info();
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return err(Code::kInvalidArgument, "the prompt is empty: expected at least one token");
  if (length >= engine_.options().context_tokens) {
    return err(Code::kInvalidArgument, "the prompt has {} tokens, the context holds {} and the answer needs at least one", length, engine_.options().context_tokens);
  }
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= info.vocabulary) return err(Code::kInvalidArgument, "token {} of the prompt is outside the vocabulary of {}", id, info.vocabulary);
  }
  if (request.max_tokens < 1) return err(Code::kInvalidArgument, "max tokens is {}, expected at least 1", request.max_tokens);
  LATHE_TRY_VOID(request.sampling.validate(engine_.sampled_vocabulary()));
  for (const PromptImage& image : request.images) {
    if (image.begin < 0 || image.begin + image.rows.rows.dim(0) > length) {
      return err(Code::kInvalidArgument, "an image of {} rows at token {} does not fit a prompt of {} tokens", image.rows.rows.dim(0), image.begin, length);
    }
  }
  auto run = std::make_unique<Run>(std::move(request), info.vocabulary);
  for (const TokenId id : run->request.prompt) run->counts.add_prompt(id);
  views_.push_back({.prompt_tokens = length});
  runs_.push_back(std::move(run));
  return static_cast<int32_t>(runs_.size() - 1);
}

void Generator::end(Run& run, Finish finish) {
  run.finish = finish;
  if (run.sequence.valid()) engine_.store().close(run.sequence);
  run.sequence = {};
}

void Generator::cancel(int32_t request) {
  Run& run = *runs_[static_cast<size_t>(request)];
  if (run.finish == Finish::kNone) end(run, Finish::kCancelled);
  views_[static_cast<size_t>(request)].finished = true;
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
  LATHE_TRY(const Sample sample, sampler_.sample({&range, 1}, run.request.sampling, run.counts, run.generated));
  run.last = sample.token;
  run.counts.add_output(sample.token);
  ++run.generated;
  const std::vector<TokenId>& stops = run.request.stop_tokens;
  Finish finish = Finish::kNone;
  if (std::find(stops.begin(), stops.end(), sample.token) != stops.end()) {
    finish = Finish::kStop;
  } else if (run.generated == run.request.max_tokens) {
    finish = Finish::kLength;
  } else if (engine_.store().length(run.sequence) >= engine_.options().context_tokens) {
    finish = Finish::kContext;  // no room to feed this token
  }
  if (finish != Finish::kNone) {
    end(run, finish);
    views_[static_cast<size_t>(line.request)].finished = true;
  }
  on_token({.request = line.request, .token = sample.token, .logprob = sample.logprob, .finish = finish});
  return {};
}

Result<bool> Generator::step(base::FunctionRef<void(const TokenEvent&)> on_token) {
  const std::vector<PlanLine> plan = plan_step(views_, {.step_tokens = engine_.options().batch_tokens, .sequences = engine_.options().sequences});
  if (plan.empty()) return false;
  ++steps_;
  items_.clear();
  for (const PlanLine& line : plan) {
    LATHE_TRY(const models::StepItem item, make_item(line));
    items_.push_back(item);
  }
  LATHE_TRY(const models::StepResult result, engine_.model().step(items_, engine_.store()));
  if (result.logits.present()) engine_.read_rows(result.logits, 0, result.logits.dim(0), logits_);
  const auto width = static_cast<size_t>(result.logits.present() ? result.logits.dim(1) : 0);
  for (const models::StepItem& item : items_) engine_.store().commit(item.sequence, 0);
  for (size_t i = 0; i < plan.size(); ++i) {
    Run& run = *runs_[static_cast<size_t>(plan[i].request)];
    if (plan[i].prefill) {
      run.done += plan[i].tokens;
      views_[static_cast<size_t>(plan[i].request)].done_tokens = run.done;
    }
    if (run.finish != Finish::kNone || result.items[i].logits_count == 0) continue;
    const auto row = static_cast<size_t>(result.items[i].logits_begin) * width;
    LATHE_TRY_VOID(take_token(plan[i], std::span<const float>(logits_).subspan(row, width), on_token));
  }
  return true;
}

}  // namespace lathe::engine
