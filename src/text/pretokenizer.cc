#include "text/pretokenizer.h"

#include <optional>
#include <utility>

#include "text/bpe_bytes.h"
#include "text/unicode.h"

namespace lathe::text {
namespace {

struct Item {
  size_t begin;
  size_t end;
  bool match;
};

/// Turns the stream of matches and gaps into pieces, one behaviour each. Holds at most one item back.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::string_view text, Pretokenizer::Emit emit) : behavior_(behavior), text_(text), emit_(emit) {}

  void add(Item item) {
    switch (behavior_) {
      case SplitBehavior::kIsolated: put(item); break;
      case SplitBehavior::kRemoved:
        if (!item.match) put(item);
        break;
      case SplitBehavior::kContiguous: held_ && held_->match == item.match ? join(item) : hold(item); break;
      case SplitBehavior::kMergedWithPrevious: held_ && !held_->match && item.match ? join(item) : hold(item); break;
      case SplitBehavior::kMergedWithNext: held_ && held_->match && !item.match ? join(item) : hold(item); break;
    }
  }
  void finish() {
    if (held_) put(*held_);
  }

 private:
  void put(Item item) {
    if (item.begin != item.end) emit_(text_.substr(item.begin, item.end - item.begin));
  }
  void hold(Item item) {
    if (held_) put(*held_);
    held_ = item;
  }
  void join(Item item) {
    item.begin = held_->begin;
    held_ = item;  // its kind is that of its last part, which decides what joins next
  }

  SplitBehavior behavior_;
  std::string_view text_;
  Pretokenizer::Emit emit_;
  std::optional<Item> held_;
};

}  // namespace

struct Pretokenizer::Run {
  Scratch& scratch;
  Emit emit;
  std::optional<Error> error;
};

Result<void> Pretokenizer::split(std::string_view text, Scratch& scratch, Emit emit) const {
  scratch.matchers.resize(steps_.size());
  Run run{scratch, emit, std::nullopt};
  if (!text.empty()) run_step(run, 0, text);
  if (run.error) return tl::unexpected<Error>(*std::move(run.error));
  return {};
}

void Pretokenizer::run_step(Run& run, size_t index, std::string_view text) const {
  if (run.error) return;
  if (index == steps_.size()) {
    if (!steps_.back().mapped) return run.emit(text);
    // Steps after ByteLevel only cut between stand-in characters, so the piece maps back.
    if (const auto bytes = from_byte_level(text)) run.emit(*bytes);
    return;
  }
  const Step& step = steps_[index];
  std::string prefixed;
  if (step.add_prefix_space && text.front() != ' ') {
    prefixed = " " + std::string(text);
    text = prefixed;
  }
  const bool map = step.byte_level && index + 1 < steps_.size();
  const auto next = [&](std::string_view piece) {
    if (map) {
      const std::string mapped = to_byte_level(piece);
      run_step(run, index + 1, mapped);
    } else {
      run_step(run, index + 1, piece);
    }
  };
  if (step.test == Test::kNothing) return next(text);
  Joiner joiner(step.behavior, text, next);
  size_t covered = 0;
  find_matches(run, step, index, text, [&](size_t begin, size_t end) {
    if (covered < begin) joiner.add({covered, begin, step.invert});
    joiner.add({begin, end, !step.invert});
    covered = end;
  });
  if (covered < text.size()) joiner.add({covered, text.size(), step.invert});
  joiner.finish();
}

bool Pretokenizer::matches_class(const Step& step, char32_t code) {
  switch (step.test) {
    case Test::kNumeric: return properties(code).in(kNumberMask);
    case Test::kWhiteSpace: return properties(code).white_space();
    case Test::kPunctuation: {
      const bool ascii = (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
      return ascii || properties(code).in(kPunctuationMask);
    }
    default: return false;
  }
}

void Pretokenizer::find_matches(Run& run, const Step& step, size_t index, std::string_view text, base::FunctionRef<void(size_t, size_t)> match) {
  if (step.test == Test::kScanner) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = scan_piece(step.scanner, text, at);
      match(at, end);
      at = end;
    }
  } else if (step.test == Test::kString) {
    for (size_t at = text.find(step.text); at != std::string_view::npos; at = text.find(step.text, at + step.text.size()))
      match(at, at + step.text.size());
  } else if (step.test == Test::kRegex) {
    auto& matcher = run.scratch.matchers[index];
    if (matcher == nullptr) matcher = std::make_unique<Regex::Matcher>(*step.regex);
    for (size_t at = 0; at < text.size() && !run.error;) {
      auto found = matcher->find(text, at);
      if (!found) {
        run.error = std::move(found).error();
        return;
      }
      if (!*found) return;
      const RegexMatch place = **found;
      match(place.begin, place.end);
      // An empty match cuts here and the search goes on behind the next character.
      at = place.end > place.begin ? place.end : place.end < text.size() ? place.end + decode_utf8(text, place.end).length : text.size();
    }
  } else if (step.test == Test::kWords) {
    // \w+|[^\w\s]+
    const auto kind = [&](size_t at) {
      const Properties found = properties(decode_utf8(text, at).code);
      return found.word() ? 1 : found.white_space() ? 0 : 2;
    };
    for (size_t at = 0; at < text.size();) {
      const int first = kind(at);
      size_t end = at;
      while (end < text.size() && kind(end) == first) end += decode_utf8(text, end).length;
      if (first != 0) match(at, end);
      at = end;
    }
  } else {
    for (size_t at = 0; at < text.size();) {
      const Decoded decoded = decode_utf8(text, at);
      if (matches_class(step, decoded.code)) match(at, at + decoded.length);
      at += decoded.length;
    }
  }
}

int Pretokenizer::scanner_steps() const {
  int count = 0;
  for (const Step& step : steps_) count += step.test == Test::kScanner ? 1 : 0;
  return count;
}

int Pretokenizer::regex_steps() const {
  int count = 0;
  for (const Step& step : steps_) count += step.test == Test::kRegex ? 1 : 0;
  return count;
}

}  // namespace lathe::text
