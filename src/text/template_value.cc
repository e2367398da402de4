#include "text/template_value.h"

#include <algorithm>

namespace lathe::text::jinja {
namespace {

constexpr size_t kIndexAbove = 8;  // a short scan is faster than a hash below this
constexpr size_t kNowhere = static_cast<size_t>(-1);

constexpr uint64_t kFloatWeight = 4;  // its digits take long to find

uint64_t add_weights(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

bool lists_equal(const List& a, const List& b) {
  if (&a == &b) return true;
  return a.kind == b.kind && std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
}

bool dicts_equal(const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

}  // namespace

size_t Dict::position(std::string_view key) const {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? kNowhere : it->second;
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const MarkedText* text = entries_[i].first.string();
    if (text != nullptr && text->text == key) return i;
  }
  return kNowhere;
}

size_t Dict::position(const Value& key) const {
  if (const MarkedText* text = key.string()) return position(text->text);
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].first.is_string() && equal(entries_[i].first, key)) return i;
  }
  return kNowhere;
}

const Value* Dict::find(std::string_view key) const {
  const size_t at = position(key);
  return at == kNowhere ? nullptr : &entries_[at].second;
}

const Value* Dict::find(const Value& key) const {
  const size_t at = position(key);
  return at == kNowhere ? nullptr : &entries_[at].second;
}

void Dict::set(Value key, Value value) {
  depth_ = std::max({depth_, 1 + key.depth(), 1 + value.depth()});
  weight_ = add_weights(weight_, add_weights(key.weight(), value.weight()));
  if (!key.is_string()) weight_ = add_weights(weight_, entries_.size());  // it is found by a scan
  const size_t at = position(key);
  if (at != kNowhere) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  const auto add = [&](size_t i) {
    if (const MarkedText* text = entries_[i].first.string()) index_.emplace(text->text, i);  // the shared string does not move
  };
  if (!index_.empty()) {
    add(entries_.size() - 1);
  } else if (entries_.size() > kIndexAbove) {
    for (size_t i = 0; i < entries_.size(); ++i) add(i);
  }
}

Value Value::data_string(std::string text) { return Value(MarkedText{.text = std::move(text), .literal = {}}); }

Value Value::literal_string(std::string text) {
  MarkedText marked{.text = std::move(text), .literal = {}};
  if (!marked.text.empty()) marked.literal.push_back({0, marked.text.size()});
  return Value(std::move(marked));
}

Value Value::list(std::vector<Value> items, ListKind kind) {
  uint32_t depth = 0;
  uint64_t weight = 1;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth());
    weight = add_weights(weight, item.weight());
  }
  return Value(std::make_shared<const List>(List{.items = std::move(items), .kind = kind, .depth = depth + 1, .weight = weight}));
}

double Value::as_double() const {
  if (const bool* b = get<bool>()) return *b ? 1.0 : 0.0;
  if (const int64_t* i = get<int64_t>()) return static_cast<double>(*i);
  return *get<double>();
}

int64_t Value::as_int() const {
  if (const bool* b = get<bool>()) return *b ? 1 : 0;
  if (const double* d = get<double>()) return static_cast<int64_t>(*d);
  return *get<int64_t>();
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* b = get<bool>()) return *b;
  if (const int64_t* i = get<int64_t>()) return *i != 0;
  if (const double* d = get<double>()) return *d != 0.0;
  if (const MarkedText* s = string()) return !s->text.empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return d->size() > 0;
  return true;
}

uint32_t Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth();
  return 0;
}

uint64_t Value::weight() const {
  if (const MarkedText* s = string()) return 1 + s->text.size() / 8 + 2 * s->literal.size();
  if (const List* l = list()) return l->weight;
  if (const Dict* d = dict()) return d->weight();
  return is_float() ? kFloatWeight : 1;
}

uint64_t saturating_product(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }

std::string_view Value::kind_name() const {
  static constexpr std::string_view kNames[] = {"undefined", "none",   "a boolean",   "an integer", "a float",   "a string",
                                                "a list",    "a dict", "a namespace", "a loop",     "a function"};
  return kNames[data_.index()];
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.as_double() == b.as_double() : a.as_int() == b.as_int();
  }
  if (a.string() != nullptr && b.string() != nullptr) return a.string()->text == b.string()->text;
  if (a.list() != nullptr && b.list() != nullptr) return lists_equal(*a.list(), *b.list());
  if (a.dict() != nullptr && b.dict() != nullptr) return dicts_equal(*a.dict(), *b.dict());
  if (a.names() != nullptr && b.names() != nullptr) return a.names() == b.names();
  if (a.loop() != nullptr && b.loop() != nullptr) return a.loop() == b.loop();
  if (a.callable() != nullptr && b.callable() != nullptr) return a.callable() == b.callable();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, bool& comparable) {
  comparable = true;
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.as_double() < b.as_double() : a.as_int() < b.as_int();
  }
  // Bytes of UTF-8 order as their code points do.
  if (a.string() != nullptr && b.string() != nullptr) return a.string()->text < b.string()->text;
  if (a.list() != nullptr && b.list() != nullptr && a.list()->kind == b.list()->kind) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return less(x[i], y[i], comparable);
    }
    return x.size() < y.size();
  }
  comparable = false;
  return false;
}

}  // namespace lathe::text::jinja
