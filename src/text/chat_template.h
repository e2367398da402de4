#pragma once
// From messages to the text of a prompt, by the model's own template (a Jinja2 subset, template_*.h), each byte marked as written
// by the template or as data (marked_text.h).
//
// Units    bytes of UTF-8; times in seconds since 1970, UTC.
// Errors   syntax: invalid_argument with the template's line; tags that need other templates: unimplemented; raise_exception: invalid_argument
//          with its text; messages and tools that are not what they should be: invalid_argument with their place; what else fails while a
//          template runs (unknown names, wrong kinds): data_loss with its file and line; more steps, output or nesting than base/limits.h
//          allows: resource_exhausted.
// Threads  a ChatTemplate is immutable: render from any number of threads.
// Source   the behaviour of Jinja2 3.1 as the transformers library sets it up (trim_blocks, lstrip_blocks, loop controls, its own tojson,
//          raise_exception, strftime_now); templates without {% include %}, {% block %}, recursive loops and autoescape.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "config/json.h"
#include "text/chat_messages.h"
#include "text/marked_text.h"

namespace lathe::text {

namespace jinja {
struct Program;
}

/// What one prompt is made of. All strings in it are data: none of their bytes is literal.
struct RenderInput {
  const config::Json* messages = nullptr;  ///< array of objects with role, content, reasoning_content, tool_calls, tool_call_id …
  const config::Json* tools = nullptr;     ///< array of JSON schemas, or null
  bool add_generation_prompt = true;
  config::Json::Object variables = {};     ///< reasoning_effort, clear_thinking, enable_thinking, … as the template names them
  std::optional<int64_t> now_unix_s = {};  ///< for strftime_now; without it the function is undefined
};

/// Which values of reasoning_effort a template tells apart.
struct ReasoningEfforts {
  std::vector<std::string> distinct;  ///< candidates that render unlike a nonsense value: supported
  std::string fallback;               ///< the candidate that a nonsense value is rendered as, if its name shows it; else empty
  std::string unset;                  ///< the candidate that no value at all is rendered as; else empty
  bool echoes = false;                ///< the template writes out whatever it is given: every value is supported

  bool supports(std::string_view effort) const;
};

class ChatTemplate {
 public:
  /// `special_tokens`: object of bos_token, eos_token, …; these strings count as literal, they are the model's own.
  static Result<ChatTemplate> parse(std::string_view source, const config::Json& special_tokens = {}, const base::Limits& limits = base::kLimits);
  /// From a model's folder: chat_template.jinja, else chat_template in tokenizer_config.json (a string, or a list with "default" and
  /// perhaps "tool_use"). Special tokens come from tokenizer_config.json. Errors: not_found if there is no template; messages name the file.
  static Result<ChatTemplate> load(const std::string& folder, const base::Limits& limits = base::kLimits);

  /// Before rendering, what this template cannot take is brought into the form it can: arguments of tool calls given as JSON text or as
  /// object, content given as a list of text parts.
  Result<MarkedText> render(const RenderInput& input) const;

  /// Renders each candidate and compares.
  ReasoningEfforts reasoning_efforts(const std::vector<std::string>& candidates = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}) const;
  /// Does a short conversation render differently for the two values of this variable? (enable_thinking true and false …)
  bool depends_on(const std::string& variable, const config::Json& a, const config::Json& b) const;

  /// Found out at load: are arguments of tool calls wanted as objects (else as JSON text), and may content be a list of parts?
  bool takes_argument_objects() const { return form_.arguments == MessageForm::Arguments::kObject; }
  bool takes_content_parts() const { return form_.content == MessageForm::Content::kParts; }
  /// The text of the template, of the default one where there are two.
  const std::string& source() const { return source_; }

 private:
  ChatTemplate() = default;
  void probe();
  Result<MarkedText> run(const jinja::Program& program, const RenderInput& input, const base::Limits& limits) const;
  Result<MarkedText> render_probe(const RenderInput& input) const;
  Result<MarkedText> render_effort(const std::string* effort) const;

  base::Limits limits_;
  std::string source_;
  std::string file_;  ///< that the template came from, for messages; may be empty
  std::shared_ptr<const jinja::Program> program_;
  std::shared_ptr<const jinja::Program> tool_program_;  ///< null: the same as program_
  config::Json special_tokens_;
  MessageForm form_;
};

/// Parses and renders any template with any context object: for tests and fuzzing. Strings of the context are data.
Result<MarkedText> render_template(std::string_view source, const config::Json& context, std::optional<int64_t> now_unix_s = std::nullopt,
                                   const base::Limits& limits = base::kLimits);

}  // namespace lathe::text
