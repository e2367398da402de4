// A template, a zero byte, its context as JSON. Rendering ends within limits, in an error with one sentence or in marked text.

#include "config/json.h"
#include "input.h"
#include "text/chat_template.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const auto [source, context] = fuzz::cut(fuzz::text_of(data, size));
  auto json = config::parse_json(context);
  if (!json) json = config::Json(config::Json::Object{});
  base::Limits limits;
  limits.template_steps = 100'000;
  limits.template_output_bytes = 1u << 20;
  const auto out = text::render_template(source, *json, 1'700'000'000, limits);
  if (!out) {
    fuzz::expect_message(out.error().message);
    return 0;
  }
  size_t at = 0;
  for (const text::LiteralSpan& span : out->literal) {
    fuzz::expect((at == 0 || span.begin > at) && span.end > span.begin, "spans ascend, are not empty and do not touch");
    at = span.end;
  }
  fuzz::expect(at <= out->text.size(), "spans lie inside the text");
  return 0;
}
