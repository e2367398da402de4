#include "text/vocabulary.h"

#include "config/json.h"
#include "text/tokenizer.h"

namespace lathe::text {
namespace {

using config::Json;

/// Of [Split by a regex into isolated pieces, ByteLevel without a regex of its own], the regex.
std::string only_split(const Json& file) {
  const Json* normalizer = file.find("normalizer");
  if (normalizer != nullptr && !normalizer->is_null()) return "";
  const Json* pre = file.find("pre_tokenizer");
  const Json* steps = pre == nullptr ? nullptr : pre->find("pretokenizers");
  if (steps == nullptr || !steps->is_array() || steps->as_array().size() != 2) return "";
  const auto has = [](const Json& step, std::string_view key, const Json& value) {
    const Json* found = step.find(key);
    return found != nullptr && *found == value;
  };
  const Json& split = steps->as_array()[0];
  const Json& bytes = steps->as_array()[1];
  if (!has(split, "type", "Split") || !has(split, "behavior", "Isolated") || has(split, "invert", true)) return "";
  if (!has(bytes, "type", "ByteLevel") || !has(bytes, "use_regex", false) || has(bytes, "add_prefix_space", true)) return "";
  const Json* pattern = split.find("pattern");
  const Json* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  return regex != nullptr && regex->is_string() ? regex->as_string() : "";
}

std::string merge_text(const Json& merge) {
  return merge.is_string() ? merge.as_string() : merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string();
}

}  // namespace

TokenId Vocabulary::find(std::string_view name) const {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].kind != Kind::kHole && tokens[id].name == name) return static_cast<TokenId>(id);
  }
  return -1;
}

Result<Vocabulary> read_vocabulary(const std::string& path) {
  LATHE_TRY(const Json file, config::read_json_file(path));
  const auto checked = Tokenizer::from_json(file);  // behind this, every member is there and of its kind
  if (!checked) return base::forward_error(checked, path);
  const Tokenizer& tokenizer = **checked;
  Vocabulary out;
  out.tokens.resize(static_cast<size_t>(tokenizer.vocab_size()));
  const Json& model = *file.find("model");
  for (const auto& [name, id] : model.find("vocab")->as_object()) out.tokens[static_cast<size_t>(id.as_int())] = {name, Vocabulary::Kind::kPlain};
  for (const AddedToken& added : tokenizer.added_tokens()) {
    out.tokens[static_cast<size_t>(added.id)] = {added.content, added.special ? Vocabulary::Kind::kSpecial : Vocabulary::Kind::kAdded};
  }
  for (const Json& merge : model.find("merges")->as_array()) out.merges.push_back(merge_text(merge));
  out.split = only_split(file);
  return out;
}

}  // namespace lathe::text
