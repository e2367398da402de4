// Reading tokenizer.json: every inconsistency of the file is an error that names the token, member or number.

#include <array>
#include <unordered_set>
#include <utility>

#include "base/limits.h"
#include "text/bpe_bytes.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

using config::Json;

constexpr int64_t kIdsMax = base::kLimits.tokenizer_ids;
constexpr size_t kAddedBytesMax = base::kLimits.tokenizer_added_bytes;

Result<TokenId> token_id(const Json* json, std::string_view token) {
  if (json == nullptr || !json->is_int()) {
    return err(Code::kInvalidArgument, "token '{}': its id must be an integer, but is {}", token, json == nullptr ? "missing" : json->kind_name());
  }
  if (json->as_int() < 0 || json->as_int() >= kIdsMax) {
    return err(Code::kInvalidArgument, "token '{}': id {} is out of range, ids are 0 … {}", token, json->as_int(), kIdsMax - 1);
  }
  return static_cast<TokenId>(json->as_int());
}

Result<void> check_decoder(const Json* decoder) {
  if (decoder == nullptr || decoder->is_null()) return {};
  LATHE_TRY(const std::string type, string_member(*decoder, "decoder", "type"));
  if (type == "ByteLevel" || type == "Fuse") return {};
  const Json* members = decoder->find("decoders");
  if (type != "Sequence" || members == nullptr || !members->is_array())
    return err(Code::kUnimplemented, "decoder '{}' is not supported; known is ByteLevel", type);
  for (const Json& member : members->as_array()) LATHE_TRY_VOID(check_decoder(&member));
  return {};
}

/// A member that changes the model and must be absent, null, or neutral.
Result<void> check_neutral(const Json& model, std::string_view key) {
  const Json* member = model.find(key);
  if (member == nullptr || member->is_null()) return {};
  if (member->is_string() && member->as_string().empty()) return {};
  if (member->is_number() && member->as_double() == 0) return {};
  return err(Code::kUnimplemented, "model: '{}' is {}; only null or neutral values are supported", key, member->dump());
}

}  // namespace

class TokenizerLoader {
 public:
  explicit TokenizerLoader(Tokenizer& out) : out_(out) {}

  Result<void> read(const Json& file) {
    const Json* model = file.find("model");
    if (model == nullptr || !model->is_object())
      return err(Code::kInvalidArgument, "tokenizer: member 'model' must be an object, but is {}", model == nullptr ? "missing" : model->kind_name());
    const auto part = [&](std::string_view key) { return file.find(key) == nullptr ? Json() : *file.find(key); };
    LATHE_TRY(out_.normalizer_, Normalizer::from_json(part("normalizer")));
    LATHE_TRY(out_.pretokenizer_, Pretokenizer::from_json(part("pre_tokenizer")));
    LATHE_TRY_VOID(check_decoder(file.find("decoder")));
    LATHE_TRY_VOID(check_model(*model));
    LATHE_TRY_VOID(read_vocabulary(*model));
    LATHE_TRY_VOID(read_added_tokens(file.find("added_tokens")));
    index_tokens();
    LATHE_TRY_VOID(make_matchers());
    return make_bpe(*model);
  }

 private:
  using Kind = Tokenizer::Kind;

  Tokenizer::Token& token(TokenId id) { return out_.tokens_[static_cast<size_t>(id)]; }
  void make_room(TokenId id) {
    if (static_cast<size_t>(id) >= out_.tokens_.size()) out_.tokens_.resize(static_cast<size_t>(id) + 1);
  }

  static Result<void> check_model(const Json& model) {
    if (model.find("type") != nullptr) {
      LATHE_TRY(const std::string type, string_member(model, "model", "type"));
      if (type != "BPE") return err(Code::kUnimplemented, "model type '{}' is not supported; known is BPE", type);
    }
    for (const std::string_view key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) LATHE_TRY_VOID(check_neutral(model, key));
    return {};
  }

  Result<void> read_vocabulary(const Json& model) {
    const Json* vocab = model.find("vocab");
    if (vocab == nullptr || !vocab->is_object())
      return err(Code::kInvalidArgument, "model: 'vocab' must be an object, but is {}", vocab == nullptr ? "missing" : vocab->kind_name());
    names_.reserve(vocab->as_object().size());
    for (const auto& [name, json] : vocab->as_object()) {
      LATHE_TRY(const TokenId id, token_id(&json, name));
      make_room(id);
      if (token(id).kind != Kind::kHole)
        return err(Code::kInvalidArgument, "tokens '{}' and '{}' of the vocabulary share the id {}", name_of(token(id)), name, id);
      token(id).kind = Kind::kPlain;
      auto bytes = from_byte_level(name);
      mapped_.resize(out_.tokens_.size());
      mapped_[static_cast<size_t>(id)] = bytes.has_value();
      token(id).bytes = bytes ? *std::move(bytes) : name;
      names_.emplace(name, id);
    }
    return {};
  }

  static std::string name_of(const Tokenizer::Token& token) { return to_byte_level(token.bytes); }

  Result<void> read_added_tokens(const Json* json) {
    if (json == nullptr || json->is_null()) return {};
    if (!json->is_array()) return err(Code::kInvalidArgument, "tokenizer: 'added_tokens' must be an array, but is {}", json->kind_name());
    for (const Json& entry : json->as_array()) LATHE_TRY_VOID(read_added_token(entry));
    mapped_.resize(out_.tokens_.size());
    return {};
  }

  Result<void> read_added_token(const Json& json) {
    AddedToken added;
    LATHE_TRY(added.content, string_member(json, "added_tokens entry", "content"));
    if (added.content.empty() || added.content.size() > kAddedBytesMax) {
      return err(Code::kInvalidArgument, "added token '{}' has {} bytes, expected 1 … {}", added.content.substr(0, 40), added.content.size(),
                 kAddedBytesMax);
    }
    LATHE_TRY(added.id, token_id(json.find("id"), added.content));
    const std::string where = fmt::format("added token '{}'", added.content);
    LATHE_TRY(added.special, bool_member(json, where, "special", false));
    LATHE_TRY(added.single_word, bool_member(json, where, "single_word", false));
    LATHE_TRY(added.lstrip, bool_member(json, where, "lstrip", false));
    LATHE_TRY(added.rstrip, bool_member(json, where, "rstrip", false));
    LATHE_TRY(added.normalized, bool_member(json, where, "normalized", !added.special));
    const auto known = names_.find(added.content);
    if (known != names_.end() && known->second != added.id) {
      return err(Code::kInvalidArgument, "{} has the id {}, but the vocabulary gives it {}", where, added.id, known->second);
    }
    make_room(added.id);
    Tokenizer::Token& slot = token(added.id);
    if (slot.kind >= Kind::kAdded) return err(Code::kInvalidArgument, "{} has the id {} of another added token, '{}'", where, added.id, slot.bytes);
    if (slot.kind == Kind::kPlain && known == names_.end())
      return err(Code::kInvalidArgument, "{} has the id {} of the vocabulary token '{}'", where, added.id, name_of(slot));
    const auto [other, first] = contents_.emplace(added.content, added.id);
    if (!first) return err(Code::kInvalidArgument, "{} is listed twice, with ids {} and {}", where, other->second, added.id);
    slot.kind = added.special ? Kind::kSpecial : Kind::kAdded;
    slot.bytes = added.content;
    out_.added_.push_back(std::move(added));
    return {};
  }

  void index_tokens() {
    for (size_t id = 0; id < out_.tokens_.size(); ++id) {
      const Tokenizer::Token& entry = out_.tokens_[id];
      if (entry.kind == Kind::kPlain || (entry.kind >= Kind::kAdded && mapped_[id])) out_.by_bytes_.emplace(entry.bytes, static_cast<TokenId>(id));
    }
    for (const AddedToken& added : out_.added_) out_.by_content_.emplace(added.content, added.id);
  }

  Result<void> make_matchers() {
    std::vector<AddedToken> tokens[2];
    std::vector<std::string> patterns[2];
    for (const AddedToken& added : out_.added_) {
      NormalText pattern{added.content, ""};
      if (added.normalized) LATHE_TRY_VOID(out_.normalizer_.apply(pattern));
      if (pattern.text.empty()) return err(Code::kInvalidArgument, "added token '{}' is empty after normalisation", added.content);
      tokens[added.normalized ? 1 : 0].push_back(added);
      patterns[added.normalized ? 1 : 0].push_back(std::move(pattern.text));
    }
    out_.raw_matcher_ = AddedMatcher(tokens[0], patterns[0]);
    out_.normal_matcher_ = AddedMatcher(tokens[1], patterns[1]);
    return {};
  }

  Result<void> make_bpe(const Json& model) {
    const Json* merges = model.find("merges");
    if (merges == nullptr || !merges->is_array())
      return err(Code::kInvalidArgument, "model: 'merges' must be an array, but is {}", merges == nullptr ? "missing" : merges->kind_name());
    std::array<TokenId, 256> byte_tokens{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string name = to_byte_level(std::string(1, static_cast<char>(byte)));
      const auto known = names_.find(name);
      const bool never = byte == 0xC0 || byte == 0xC1 || byte >= 0xF5;  // not in valid UTF-8
      if (known == names_.end() && !never)
        return err(Code::kInvalidArgument, "the vocabulary has no token for byte 0x{:02X} ('{}'), so some text could not be encoded", byte, name);
      byte_tokens[byte] = known == names_.end() ? -1 : known->second;
    }
    std::vector<Bpe::Merge> list;
    list.reserve(merges->as_array().size());
    std::unordered_set<uint64_t> pairs;
    pairs.reserve(merges->as_array().size());
    for (const Json& merge : merges->as_array()) {
      LATHE_TRY(const Bpe::Merge entry, read_merge(merge, list.size()));
      const uint64_t pair = uint64_t{static_cast<uint32_t>(entry.left)} << 32 | static_cast<uint32_t>(entry.right);
      if (!pairs.insert(pair).second) return err(Code::kInvalidArgument, "merge {}: {} is listed twice", list.size(), merge.dump());
      list.push_back(entry);
    }
    std::vector<bool> guarded(out_.tokens_.size());
    for (const AddedToken& added : out_.added_) guarded[static_cast<size_t>(added.id)] = true;
    LATHE_TRY(const bool ignore_merges, bool_member(model, "model", "ignore_merges", false));
    out_.bpe_ = Bpe(byte_tokens, list, std::move(guarded), {.whole_pieces = ignore_merges ? &out_.by_bytes_ : nullptr});
    return {};
  }

  Result<Bpe::Merge> read_merge(const Json& json, size_t rank) const {
    std::string left;
    std::string right;
    if (json.is_string()) {
      const size_t blank = json.as_string().find(' ');
      if (blank != std::string::npos) {
        left = json.as_string().substr(0, blank);
        right = json.as_string().substr(blank + 1);
      }
    } else if (json.is_array() && json.as_array().size() == 2 && json.as_array()[0].is_string() && json.as_array()[1].is_string()) {
      left = json.as_array()[0].as_string();
      right = json.as_array()[1].as_string();
    }
    if (left.empty() || right.empty())
      return err(Code::kInvalidArgument, "merge {}: {} is neither \"LEFT RIGHT\" nor a pair of strings", rank, json.dump());
    TokenId ids[3];
    const std::string names[3] = {left, right, left + right};
    for (size_t i = 0; i < 3; ++i) {
      const auto known = names_.find(names[i]);
      if (known == names_.end())
        return err(Code::kInvalidArgument, "merge {} of '{}' and '{}': token '{}' is not in the vocabulary", rank, left, right, names[i]);
      ids[i] = known->second;
    }
    return Bpe::Merge{ids[0], ids[1], ids[2]};
  }

  Tokenizer& out_;
  std::unordered_map<std::string_view, TokenId> names_;  // as the file writes them; keys live in the JSON
  std::unordered_map<std::string, TokenId> contents_;    // of added tokens
  std::vector<bool> mapped_;                             // by id: the name is written in the byte-level alphabet
};

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(const Json& file) {
  std::unique_ptr<Tokenizer> out(new Tokenizer());
  LATHE_TRY_VOID(TokenizerLoader(*out).read(file));
  return out;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_text(std::string_view json_text) {
  LATHE_TRY(const Json file, config::parse_json(json_text));
  return from_json(file);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  LATHE_TRY(const Json file, config::read_json_file(path));
  auto out = from_json(file);
  if (!out) return base::forward_error(out, path);
  return out;
}

}  // namespace lathe::text
