#include "apps/answer.h"

#include "apps/terminal.h"
#include "base/clock.h"
#include "base/log.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace lathe::apps {
namespace {

/// Turns the tokens of one request into shown text.
class Writer {
 public:
  Writer(const TextModel& model, const AnswerOptions& options, Channel begins, base::FunctionRef<void(std::string_view, Channel)> show)
      : model_(model),
        options_(options),
        begins_(begins),
        detokenizer_(*model.tokenizer, {.skip_special = true}),
        stops_(options.stop),
        show_(show),
        channel_(begins) {}

  /// `finish`: what the token does to the request.
  void token(TokenId id, engine::Finish finish) {
    const bool close = channel_ == Channel::kReasoning && id == model_.think_close;
    if (close || finish == engine::Finish::kStop) {
      emit(detokenizer_.flush());
      if (close) {
        emit_held();
        channel_ = Channel::kText;
      }
      return;
    }
    emit(detokenizer_.push(id));
  }
  void end() {
    emit(detokenizer_.flush());
    emit_held();
  }
  bool stopped() const { return stops_.stopped(); }
  /// What was written is void.
  void begin_anew() {
    detokenizer_ = text::Detokenizer(*model_.tokenizer, {.skip_special = true});
    stops_ = text::StopStrings(options_.stop);
    channel_ = begins_;
    answer.reasoning.clear();
    answer.text.clear();
    answer.output_tokens = 0;
    ++answer.restarts;
    base::log(base::LogLevel::kWarning, "the drafts of this answer tell that something went wrong: it begins anew");
    show_("\n", channel_);
  }
  Answer answer;

 private:
  void emit(std::string_view piece) { write(channel_ == Channel::kReasoning ? std::string(piece) : stops_.push(piece)); }
  void emit_held() {
    if (channel_ == Channel::kText && !stops_.stopped()) write(stops_.flush());
  }
  void write(const std::string& piece) {
    if (piece.empty()) return;
    (channel_ == Channel::kReasoning ? answer.reasoning : answer.text) += piece;
    show_(piece, channel_);
  }

  const TextModel& model_;
  const AnswerOptions& options_;
  Channel begins_;
  text::Detokenizer detokenizer_;
  text::StopStrings stops_;
  base::FunctionRef<void(std::string_view, Channel)> show_;
  Channel channel_;
};

}  // namespace

Result<Answer> make_answer(TextModel& model, Prompt prompt, const AnswerOptions& options, base::FunctionRef<void(std::string_view, Channel)> show) {
  engine::Generator generator(*model.engine);
  engine::Request request{.prompt = std::move(prompt.ids),
                          .images = std::move(prompt.images),
                          .sampling = options.sampling,
                          .max_tokens = options.max_tokens,
                          .stop_tokens = {}};
  if (!options.ignore_eos) request.stop_tokens = model.stop_tokens;
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  LATHE_TRY(const int32_t id, generator.add(std::move(request)));
  Writer writer(model, options, prompt.opens_reasoning ? Channel::kReasoning : Channel::kText, show);
  writer.answer.prompt_tokens = prompt_tokens;
  Progress progress("reading prompt", prompt_tokens, {.quiet = options.quiet});
  const int64_t begin = base::now_ns();
  int64_t first = 0;
  int64_t last = begin;
  const auto on_token = [&](const engine::TokenEvent& event) {
    if (event.restart) writer.begin_anew();
    if (event.token < 0) return;
    last = base::now_ns();
    if (first == 0) {
      first = last;
      progress.finish();
    }
    ++writer.answer.output_tokens;
    writer.token(event.token, event.finish);
    if (event.finish != engine::Finish::kNone) writer.answer.finish = engine::finish_name(event.finish);
    // A step may give several tokens: none is taken behind a stop string.
    if (!writer.stopped() || event.finish != engine::Finish::kNone) return;
    writer.answer.finish = "stop";
    generator.cancel(event.request);
  };
  for (;;) {
    LATHE_TRY(const bool more, generator.step(on_token));
    LATHE_TRY_VOID(stdout_status());  // nobody gets the rest
    if (!more) break;
    if (first == 0) progress.update(generator.prompt_tokens_done(id));
    if (InterruptGuard::interrupted()) {
      if (writer.answer.finish.empty()) writer.answer.finish = "cancelled";
      generator.cancel(id);
      break;
    }
  }
  if (const Error& error = generator.error(id); !error.message.empty())
    return tl::unexpected<Error>(error.code == Code::kDataLoss ? error.with_context("the model " + model.directory) : error);
  writer.end();
  writer.answer.drafts = generator.drafts(id);
  writer.answer.prompt_ns = (first == 0 ? base::now_ns() : first) - begin;
  writer.answer.decode_ns = first == 0 ? 0 : last - first;
  return std::move(writer.answer);
}

}  // namespace lathe::apps
