// Runs the tokenizer for the oracle tests: requests in a JSON file, answers as JSON on standard output.
//
// Request  {"tokenizer": FILE, "encode": [TEXT, …], "encode_hex": [BYTES, …], "decode": [[ID, …], …], "skip_special": bool}
// Answer   {"encode": [[ID, …] or ERROR, …], "encode_hex": …, "decode": [TEXT, …], "error": MESSAGE if the tokenizer does not load}

#include <cstdio>
#include <string>
#include <vector>

#include "config/json.h"
#include "text/tokenizer.h"

namespace {

using lathe::TokenId;
using lathe::config::Json;
using lathe::text::Tokenizer;

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

Json ids_of(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  if (!ids) return ids.error().message;
  Json::Array out;
  for (const TokenId id : *ids) out.emplace_back(id);
  return out;
}

const Json::Array& list(const Json& request, const char* key) {
  static const Json::Array kNone;
  const Json* member = request.find(key);
  return member == nullptr ? kNone : member->as_array();
}

Json answer(const Json& request) {
  Json out{Json::Object{}};
  const auto tokenizer = Tokenizer::load(request.find("tokenizer")->as_string());
  if (!tokenizer) {
    out.set("error", tokenizer.error().message);
    return out;
  }
  Json::Array encoded;
  for (const Json& text : list(request, "encode")) encoded.push_back(ids_of(**tokenizer, text.as_string()));
  Json::Array encoded_hex;
  for (const Json& hex : list(request, "encode_hex")) encoded_hex.push_back(ids_of(**tokenizer, from_hex(hex.as_string())));
  const Json* skip = request.find("skip_special");
  Json::Array decoded;
  for (const Json& ids : list(request, "decode")) {
    std::vector<TokenId> tokens;
    for (const Json& id : ids.as_array()) tokens.push_back(static_cast<TokenId>(id.as_int()));
    decoded.emplace_back((*tokenizer)->decode(tokens, {.skip_special = skip != nullptr && skip->as_bool()}));
  }
  out.set("encode", std::move(encoded));
  out.set("encode_hex", std::move(encoded_hex));
  out.set("decode", std::move(decoded));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: oracle_tokenize REQUEST.json > ANSWER.json\n", stderr);
    return 2;
  }
  const auto request = lathe::config::read_json_file(argv[1]);
  if (!request) {
    std::fprintf(stderr, "%s\n", request.error().message.c_str());
    return 2;
  }
  const std::string text = answer(*request).dump();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
