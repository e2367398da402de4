#pragma once
// Messages and tools as a client gives them: checked before a template sees them, so that a client's mistake is not taken for one of the
// template, and brought into the form that the template takes.
//
// Errors   invalid_argument naming the place: "message 2: tool call 0: 'name' is an integer, expected a string".
// Threads  any; pure.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/json.h"

namespace lathe::text {

/// What a template takes.
struct MessageForm {
  enum class Arguments : uint8_t { kObject, kText } arguments = Arguments::kObject;  ///< of tool calls
  enum class Content : uint8_t { kParts, kText } content = Content::kParts;          ///< kText: no lists of parts
};

/// An array of objects with a role; content is text, null or a list of parts, and what is known beside them has its kind. Arguments of tool calls
/// are an object, JSON text, or absent for none.
Result<void> check_messages(const config::Json& messages);
/// An array of objects, each the function or an object with it, or null.
Result<void> check_tools(const config::Json& tools);

/// A checked message in the form that is taken, or nothing if it has it already. Arguments as text that is no JSON object stay text: a template may show
/// what the model once wrote. Errors: parts other than text where there must be text.
Result<std::optional<config::Json>> adapt_message(const config::Json& message, const MessageForm& form);

/// Of checked messages: the place of the first tool call whose arguments are text and no JSON object, for a template that failed on them; empty: none.
std::string unreadable_arguments(const config::Json& messages);

}  // namespace lathe::text
