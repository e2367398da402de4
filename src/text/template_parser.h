#pragma once
// Tokens → syntax tree.

#include <string_view>

#include "base/limits.h"
#include "base/result.h"
#include "text/template_ast.h"

namespace lathe::text::jinja {

/// Parses a template. Errors: invalid_argument with the line (syntax, unknown filter or test), unimplemented (tags that need other
/// templates), resource_exhausted (larger than limits.template_bytes, nested deeper than limits.template_depth).
Result<Program> parse_template(std::string_view source, const base::Limits& limits = base::kLimits);

}  // namespace lathe::text::jinja
