// Any bytes as JSON: an error with one sentence, or a value that survives being written and read.

#include "config/json.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const auto value = config::parse_json(fuzz::text_of(data, size));
  if (!value) {
    fuzz::expect_message(value.error().message);
    return 0;
  }
  for (const config::JsonStyle& style : {config::JsonStyle{}, config::JsonStyle{.indent = 2}, config::JsonStyle{.ensure_ascii = true}}) {
    const auto again = config::parse_json(value->dump(style));
    fuzz::expect(again.has_value(), "what dump() writes can be read");
    fuzz::expect(*again == *value, "what dump() writes reads as the same value");
  }
  return 0;
}
