#include "apps/run.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "apps/answer.h"
#include "apps/input.h"
#include "apps/outputs.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/limits.h"
#include "base/log.h"
#include "evaluate/bench_drafts.h"
#include "observe/timeline.h"

namespace lathe::apps {
namespace {

constexpr int kExitInterrupted = 130;

Result<std::pair<TokenId, float>> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  TokenId id = -1;
  float bias = 0;
  if (equals != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [id_end, id_error] = std::from_chars(text.data(), text.data() + equals, id);
    const auto [bias_end, bias_error] = std::from_chars(text.data() + equals + 1, end, bias);
    if (id_error == std::errc() && bias_error == std::errc() && id_end == text.data() + equals && bias_end == end) return std::pair(id, bias);
  }
  return err(Code::kInvalidArgument, "--logit-bias '{}': expected ID=VALUE", text);
}

/// The prompt text, if there is one to be had without asking on a terminal.
Result<std::string> prompt_text(const RunOptions& options) {
  std::string text = options.prompt;
  if (!options.has_prompt) {
    LATHE_TRY(text, read_prompt(options.prompt_file));
  }
  if (text.empty()) return err(Code::kInvalidArgument, "the prompt is empty: expected text after -p, in a file or on stdin");
  return text;
}

config::Json user_message(const std::string& text, size_t images) {
  config::Json::Object message{{"role", "user"}, {"content", text}};
  if (images > 0) {
    config::Json::Array parts;
    for (size_t i = 0; i < images; ++i) parts.push_back(config::Json::Object{{"type", "image"}});
    parts.push_back(config::Json::Object{{"type", "text"}, {"text", text}});
    message[1].second = std::move(parts);
  }
  return message;
}

/// One run: model, options and what they resolve to.
class Run {
 public:
  Run(const RunOptions& options, TextModel model, AnswerOptions answer) : options_(options), model_(std::move(model)), answer_(std::move(answer)) {}

  Result<int> once(const std::string& text) {
    LATHE_TRY(Prompt prompt, options_.raw ? model_.raw_prompt(text) : first_turn(text));
    LATHE_TRY(const Answer answer, answer_to(std::move(prompt)));
    if (options_.json) {
      print(to_json(answer).dump({.item_separator = ", ", .key_separator = ": "}) + "\n");
    } else if (answer.text.empty() || answer.text.back() != '\n') {
      print("\n");
    }
    return InterruptGuard::interrupted() ? kExitInterrupted : 0;
  }

  Result<int> chat() {
    messages_ = system_messages();
    Input input;
    std::string line;
    int code = 0;
    std::vector<std::string> images = options_.images;  // of the first turn that is answered
    if (stdout_is_terminal()) print("Chat with " + model_.directory + ". /clear starts anew, /quit or Ctrl-D ends; Ctrl-C stops an answer.\n");
    for (;;) {
      InterruptGuard::clear();  // before the prompt: who sees it may press Ctrl-C at once
      if (stdin_is_terminal()) print(colour("\x1b[1m", "> "));
      const bool waited = !stdin_is_terminal() || wait_for_input();  // a terminal gives a line at a time: no other waits in `input`
      const auto got = waited ? input.line(line) : Input::Line::kInterrupted;
      if (!got && got.error().code != Code::kInvalidArgument) return base::forward_error(got);
      if (got && *got != Input::Line::kText) {
        print("\n");
        if (*got == Input::Line::kEnd) return code;
        continue;  // Ctrl-C at the prompt: a new line
      }
      if (got && (line == "/quit" || line == "/exit")) return code;
      if (got && line == "/clear") {
        messages_ = system_messages();
        history_images_.clear();
        continue;
      }
      if (got && line.empty()) continue;
      auto done = got ? turn(line, images) : base::forward_error(got);
      if (done) {
        images.clear();
        continue;
      }
      LATHE_TRY_VOID(stdout_status());
      code = stdin_is_terminal() ? 0 : base::exit_code(done.error().code);
      leave_out(done.error());
    }
  }

  void trace_to(std::unique_ptr<observe::Timeline> timeline) {
    timeline_ = std::move(timeline);
    model_.engine->dispatch().set_recorder(timeline_.get());
  }
  /// `outcome`: how the run ended, for a reader who should not take a part for the whole.
  Result<void> write_trace(std::string_view outcome) {
    if (!timeline_) return {};
    model_.engine->dispatch().set_recorder(nullptr);
    return timeline_->write(options_.trace, outcome);
  }

 private:
  std::string colour(std::string_view code, std::string_view text) const {
    return stdout_has_colour() ? fmt::format("{}{}\x1b[0m", code, text) : std::string(text);
  }

  config::Json::Array system_messages() const {
    config::Json::Array messages;
    if (!options_.system.empty()) messages.push_back(config::Json::Object{{"role", "system"}, {"content", options_.system}});
    return messages;
  }

  config::Json::Object variables() const {
    config::Json::Object out;
    if (!options_.reasoning_effort.empty()) out.emplace_back("reasoning_effort", options_.reasoning_effort);
    return out;
  }

  Result<Prompt> first_turn(const std::string& text) {
    config::Json::Array messages = system_messages();
    messages.push_back(user_message(text, options_.images.size()));
    return model_.chat_prompt(config::Json(std::move(messages)), variables(), options_.images);
  }

  Result<Answer> answer_to(Prompt prompt) {
    LATHE_TRY(Answer answer, written_answer(std::move(prompt)));
    if (answer.drafts.drafted > 0) {
      base::log(base::LogLevel::kInfo, "{} tokens in {:.0f} ms; drafts: {}", answer.output_tokens, static_cast<double>(answer.decode_ns) / 1e6,
                evaluate::draft_counts_text(answer.drafts));
    }
    return answer;
  }

  Result<Answer> written_answer(Prompt prompt) {
    return make_answer(model_, std::move(prompt), answer_, [&](std::string_view piece, Channel channel) {
      const bool reasoning = channel == Channel::kReasoning;
      if (options_.json) return;
      if (reasoning && options_.hide_reasoning) return;
      if (std::exchange(was_reasoning_, reasoning) && !reasoning && !options_.hide_reasoning) print("\n");
      print(reasoning ? colour("\x1b[2m", piece) : std::string(piece));
    });
  }

  /// A chat survives a turn that does not fit: it is told, and what was said before stands.
  void leave_out(const Error& why) {
    was_reasoning_ = false;
    const bool history = messages_.size() > system_messages().size();
    std::fprintf(stderr, "error: %s; this turn is left out%s\n", why.message.c_str(), history ? ", /clear makes room" : "");
  }

  Result<void> turn(const std::string& text, const std::vector<std::string>& images) {
    LATHE_TRY_VOID(check_utf8("the turn", text));
    config::Json::Array messages = messages_;
    messages.push_back(user_message(text, images.size()));
    std::vector<std::string> all_images = history_images_;
    all_images.insert(all_images.end(), images.begin(), images.end());
    LATHE_TRY(Prompt prompt, model_.chat_prompt(config::Json(messages), variables(), all_images));
    LATHE_TRY(const Answer answer, answer_to(std::move(prompt)));
    print("\n");
    config::Json::Object reply{{"role", "assistant"}, {"content", answer.text}};
    if (!answer.reasoning.empty()) reply.emplace_back("reasoning_content", answer.reasoning);
    messages.push_back(std::move(reply));
    messages_ = std::move(messages);
    history_images_ = std::move(all_images);
    was_reasoning_ = false;
    if (answer.finish == "context")
      std::fprintf(stderr, "the context of %lld tokens is full and ended this answer: /clear makes room\n",
                   static_cast<long long>(model_.engine->options().context_tokens));
    return {};
  }

  config::Json to_json(const Answer& answer) const {
    const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
    const auto rate = [](int64_t count, int64_t ns) { return ns > 0 ? static_cast<double>(count) * 1e9 / static_cast<double>(ns) : 0.0; };
    config::Json::Object usage{{"prompt_tokens", answer.prompt_tokens},
                               {"completion_tokens", answer.output_tokens},
                               {"total_tokens", answer.prompt_tokens + answer.output_tokens}};
    config::Json::Object timings{{"load_ms", ms(model_.load_ns)},
                                 {"prompt_ms", ms(answer.prompt_ns)},
                                 {"prompt_per_second", rate(answer.prompt_tokens, answer.prompt_ns)},
                                 {"predicted_ms", ms(answer.decode_ns)},
                                 {"predicted_per_second", rate(answer.output_tokens - 1, answer.decode_ns)}};
    if (answer.drafts.drafted > 0) {
      timings.emplace_back("draft_n", answer.drafts.drafted);
      timings.emplace_back("draft_n_accepted", answer.drafts.accepted);
    }
    config::Json::Object out{{"text", answer.text},
                             {"reasoning", answer.reasoning},
                             {"finish_reason", answer.finish},
                             {"usage", std::move(usage)},
                             {"timings", std::move(timings)}};
    if (model_.engine->options().drafts.most > 0) {
      config::Json drafts = evaluate::draft_counts_json(answer.drafts);
      drafts.set("restarts", answer.restarts);
      out.emplace_back("spec_decode", std::move(drafts));
    }
    return out;
  }

  const RunOptions& options_;
  TextModel model_;
  AnswerOptions answer_;
  config::Json::Array messages_;
  std::vector<std::string> history_images_;
  bool was_reasoning_ = false;
  std::unique_ptr<observe::Timeline> timeline_;
};

Result<void> check_options(const RunOptions& options) {
  if (options.has_prompt && !options.prompt_file.empty()) return err(Code::kInvalidArgument, "-p and -f both give a prompt: expected one of them");
  if (options.chat && (options.has_prompt || options.raw || options.json)) {
    return err(Code::kInvalidArgument, "--chat reads turns from the terminal: it does not go with -p, --raw or --json");
  }
  if (options.raw && (!options.system.empty() || !options.images.empty() || !options.reasoning_effort.empty())) {
    return err(Code::kInvalidArgument, "--raw takes the text as it is: it does not go with --system, --image or --reasoning-effort");
  }
  if (options.has_prompt) LATHE_TRY_VOID(check_utf8("-p", options.prompt));
  LATHE_TRY_VOID(check_utf8("--system", options.system));
  for (const std::string& stop : options.stop) LATHE_TRY_VOID(check_utf8("--stop", stop));
  return {};
}

/// The trace must not replace what the run reads.
Result<void> check_trace(const RunOptions& options, const std::string& model) {
  if (options.trace.empty()) return {};
  std::vector<NamedFile> inputs = {{"--settings", options.settings_file}};
  for (const std::string& image : options.images) inputs.push_back({"--image", image});
  if (!options.has_prompt) inputs.push_back({"the prompt", options.prompt_file.empty() ? "-" : options.prompt_file});
  return check_output({"--trace", options.trace}, {.model = model, .files = inputs});
}

Result<void> check_effort(const TextModel& model, const std::string& effort) {
  if (effort.empty() || !model.chat) return {};
  const text::ReasoningEfforts efforts = model.chat->reasoning_efforts();
  if (efforts.supports(effort)) return {};
  std::vector<std::string> names = efforts.distinct;
  if (!efforts.fallback.empty()) names.push_back(efforts.fallback);
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  return err(Code::kInvalidArgument, "--reasoning-effort is '{}', the model's template knows: {}", effort, known.empty() ? "none" : known);
}

}  // namespace

Result<int> run_verb(const config::Settings& settings, const RunOptions& options) {
  LATHE_TRY_VOID(check_options(options));
  LATHE_TRY(const engine::EngineOptions engine_settings, engine_options(settings));
  LATHE_TRY_VOID(check_trace(options, engine_settings.model));  // told before there is output
  const bool chat = options.chat || (!options.has_prompt && options.prompt_file.empty() && !options.raw && !options.json && stdin_is_terminal());
  std::string prompt;
  if (!chat) {
    LATHE_TRY(prompt, prompt_text(options));
  }
  LATHE_TRY(TextModel model, TextModel::load(engine_settings));
  LATHE_TRY_VOID(check_effort(model, options.reasoning_effort));
  AnswerOptions answer{.sampling = sampling_params(settings, model.defaults),
                       .max_tokens = max_tokens(settings, model.defaults),
                       .stop = options.stop,
                       .ignore_eos = options.ignore_eos,
                       .quiet = options.json};
  for (const std::string& text : options.logit_bias) {
    LATHE_TRY(const auto bias, parse_bias(text));
    if (!answer.sampling.logit_bias.insert(bias).second)
      return err(Code::kInvalidArgument, "--logit-bias: token {} is given twice, expected once", bias.first);
  }
  LATHE_TRY_VOID(answer.sampling.validate(model.engine->sampled_vocabulary()));
  const InterruptGuard guard;
  Run run(options, std::move(model), std::move(answer));
  if (!options.trace.empty()) run.trace_to(std::make_unique<observe::Timeline>());
  auto code = chat ? run.chat() : run.once(prompt);
  const std::string_view outcome = !code ? base::code_name(code.error().code) : *code == 0 ? "done" : "interrupted";
  const auto written = run.write_trace(outcome);  // also of a run that failed, whose error comes first
  if (code && !written) return base::forward_error(written, "--trace");
  return code;
}

}  // namespace lathe::apps
