#pragma once
// One answer as it is made: tokens become text, reasoning and answer are told apart, stop strings end it.

#include <string>
#include <vector>

#include "apps/text_model.h"
#include "base/function_ref.h"
#include "engine/generate.h"

namespace lathe::apps {

struct AnswerOptions {
  engine::SamplingParams sampling;
  int64_t max_tokens = 1024;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool quiet = false;  ///< no progress
};

struct Answer {
  std::string reasoning;
  std::string text;
  std::string finish;  ///< "stop", "length", "context", "cancelled"
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t prompt_ns = 0;  ///< until the first token
  int64_t decode_ns = 0;  ///< from the first token to the last
  engine::DraftCounts drafts;
  int64_t restarts = 0;  ///< answers before this one that the health signal ended
};

enum class Channel : uint8_t { kText, kReasoning };

/// `show(piece, channel)` gets text as it becomes certain. Ends early when SIGINT was seen (InterruptGuard).
Result<Answer> make_answer(TextModel& model, Prompt prompt, const AnswerOptions& options, base::FunctionRef<void(std::string_view, Channel)> show);

}  // namespace lathe::apps
