#pragma once
// lathe run: one answer, or a chat in the terminal.

#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"

namespace lathe::apps {

struct RunOptions {
  std::string prompt;  ///< -p
  bool has_prompt = false;
  std::string prompt_file;              ///< -f; "-" is stdin
  bool chat = false;                    ///< --chat
  bool raw = false;                     ///< --raw: no template
  std::string system;                   ///< --system
  std::string reasoning_effort;         ///< --reasoning-effort
  std::vector<std::string> images;      ///< --image
  std::vector<std::string> stop;        ///< --stop
  std::vector<std::string> logit_bias;  ///< --logit-bias ID=VALUE
  bool hide_reasoning = false;          ///< --hide-reasoning
  bool ignore_eos = false;
  bool json = false;
  std::string trace;          ///< --trace FILE
  std::string settings_file;  ///< --settings, which the trace must not replace
};

/// Returns the exit code.
Result<int> run_verb(const config::Settings& settings, const RunOptions& options);

}  // namespace lathe::apps
