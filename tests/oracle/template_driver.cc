// Renders a table of cases for the oracle test: reads [{"template": text, "context": object, "now": seconds}, …] from a file and
// prints [{"text": …, "literal": [[begin, end], …]} or {"error": …}, …].
#include <cstdio>

#include "config/json.h"
#include "text/chat_template.h"

int main(int argc, char** argv) {
  using lathe::config::Json;
  if (argc != 2) {
    std::fprintf(stderr, "usage: template_driver CASES.json\n");
    return 2;
  }
  const auto cases = lathe::config::read_json_file(argv[1]);
  if (!cases || !cases->is_array()) {
    std::fprintf(stderr, "%s\n", cases ? "the cases must be an array" : cases.error().message.c_str());
    return 1;
  }
  Json::Array results;
  for (const Json& entry : cases->as_array()) {
    const Json* source = entry.find("template");
    const Json* context = entry.find("context");
    const Json* now = entry.find("now");
    std::optional<int64_t> now_unix_s;
    if (now != nullptr) now_unix_s = now->as_int();
    const auto text = lathe::text::render_template(source->as_string(), context == nullptr ? Json() : *context, now_unix_s);
    Json result(Json::Object{});
    if (text) {
      result.set("text", text->text);
      Json::Array spans;
      for (const auto& span : text->literal)
        spans.emplace_back(Json::Array{Json(static_cast<int64_t>(span.begin)), Json(static_cast<int64_t>(span.end))});
      result.set("literal", Json(std::move(spans)));
    } else {
      result.set("error", text.error().message);
    }
    results.push_back(std::move(result));
  }
  std::puts(Json(std::move(results)).dump().c_str());
  return 0;
}
