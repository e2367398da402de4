// Filters on lists, dicts and anything that has elements.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "text/template_operations.h"

namespace lathe::text::jinja {
namespace {

Result<Value> length(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  if (const MarkedText* text = input.string()) {
    LATHE_TRY_VOID(r.charge(1 + text->text.size() / 2));
    return Value::size(count_code_points(text->text));
  }
  if (const List* list = input.list()) return Value::size(list->items.size());
  if (const Dict* dict = input.dict()) return Value::size(dict->size());
  if (input.is_undefined()) return Value(int64_t{0});
  return r.fail("{} has no length", input.kind_name());
}

enum class End : uint8_t { kFirst, kLast };
Result<Value> end_of(Runtime& r, const Value& input, const CallArgs& args, End end) {
  LATHE_TRY_VOID(bind(r, args, {}));
  if (const MarkedText* text = input.string())
    return text->text.empty() ? Result<Value>(Value()) : r.item(input, Value(int64_t{end == End::kLast ? -1 : 0}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  if (list->items.empty()) return Value();
  return end == End::kLast ? list->items.back() : list->items.front();
}
Result<Value> first(Runtime& r, const Value& input, const CallArgs& args) { return end_of(r, input, args, End::kFirst); }
Result<Value> last(Runtime& r, const Value& input, const CallArgs& args) { return end_of(r, input, args, End::kLast); }

Result<Value> as_list(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  if (list->kind == ListKind::kList) return Value(list);
  return r.list(list->items);
}

Result<Value> items(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  if (input.is_undefined()) return r.list({});
  if (input.dict() == nullptr) return r.fail("'items' needs a dict, not {}", input.kind_name());
  return call_method(r, input, "items", {});
}

Result<Value> reverse(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  std::vector<Value> reversed(list->items.rbegin(), list->items.rend());
  if (!input.is_string()) return r.list(std::move(reversed));
  MarkedText out;
  for (const Value& character : reversed) append(out, *character.string());
  return r.string(std::move(out));
}

/// What of an element a filter works on.
struct Key {
  const Value* path = nullptr;     ///< an attribute; null or none: the element itself
  bool fold_case = false;          ///< strings in lower case
  const Value* missing = nullptr;  ///< what stands for an attribute that is not there
};
Result<Value> key_of(Runtime& r, const Value& element, const Key& of) {
  const auto& [path, fold_case, missing] = of;
  Value key = element;
  if (path != nullptr && !path->is_none()) {
    if (path->is_int()) {
      LATHE_TRY(key, r.item(element, *path));
    } else {
      LATHE_TRY(const MarkedText* name, string_argument(r, path, "attribute"));
      LATHE_TRY(key, r.attribute_path(element, name->text, missing));
    }
  }
  if (fold_case && key.is_string()) {
    LATHE_TRY_VOID(r.charge_walk(*key.string(), 2));
    return r.string(change_case(*key.string(), Case::kLower));
  }
  return key;
}

enum class Order : uint8_t { kAscending, kDescending };

/// Order of `keys`: all numbers or all strings. Stable, so equal ones keep their order also when reversed.
Result<std::vector<size_t>> sorted_order(Runtime& r, const std::vector<Value>& keys, Order wanted) {
  const bool descending = wanted == Order::kDescending;
  uint64_t work = 4 * keys.size();
  for (const Value& key : keys) {
    work += 2 * key.weight();
    const bool fits = keys[0].is_string() ? key.is_string() : keys[0].is_number() && key.is_number();
    if (!fits) return r.fail("{} and {} have no order", keys[0].kind_name(), key.kind_name());
    if (key.is_float() && std::isnan(key.as_double())) return r.fail("nan has no order");
  }
  LATHE_TRY_VOID(r.charge(work * static_cast<uint64_t>(std::bit_width(keys.size()))));
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    bool comparable = true;
    const Value& first_key = keys[descending ? b : a];
    const Value& second_key = keys[descending ? a : b];
    if (less(first_key, second_key, comparable)) return true;
    return !less(second_key, first_key, comparable) && a < b;
  });
  return order;
}

Order order_of(const Value* reversed) { return reversed != nullptr && reversed->truthy() ? Order::kDescending : Order::kAscending; }

Result<Value> sort(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"reverse", "case_sensitive", "attribute"}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  const bool fold = bound[1] == nullptr || !bound[1]->truthy();
  std::vector<Value> keys;
  for (const Value& element : list->items) {
    LATHE_TRY(Value key, key_of(r, element, {.path = bound[2], .fold_case = fold}));
    keys.push_back(std::move(key));
  }
  LATHE_TRY(const std::vector<size_t> order, sorted_order(r, keys, order_of(bound[0])));
  std::vector<Value> sorted;
  sorted.reserve(order.size());
  for (const size_t i : order) sorted.push_back(list->items[i]);
  return r.list(std::move(sorted));
}

Result<Value> dict_sort(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"case_sensitive", "by", "reverse"}));
  const Dict* dict = input.dict();
  if (dict == nullptr) return r.fail("'dictsort' needs a dict, not {}", input.kind_name());
  bool by_value = false;
  if (bound[1] != nullptr) {
    LATHE_TRY(const MarkedText* by, string_argument(r, bound[1], "by"));
    if (by->text != "key" && by->text != "value") return r.fail("'by' must be 'key' or 'value', not '{}'", by->text);
    by_value = by->text == "value";
  }
  const bool fold = bound[0] == nullptr || !bound[0]->truthy();
  std::vector<Value> keys;
  for (const auto& entry : dict->entries()) {
    LATHE_TRY(Value key, key_of(r, by_value ? entry.second : entry.first, {.fold_case = fold}));
    keys.push_back(std::move(key));
  }
  LATHE_TRY(const std::vector<size_t> order, sorted_order(r, keys, order_of(bound[2])));
  std::vector<Value> sorted;
  for (const size_t i : order) {
    LATHE_TRY(Value pair, r.list({dict->entries()[i].first, dict->entries()[i].second}, ListKind::kTuple));
    sorted.push_back(std::move(pair));
  }
  return r.list(std::move(sorted));
}

Result<Value> unique(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"case_sensitive", "attribute"}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  const bool fold = bound[0] == nullptr || !bound[0]->truthy();
  std::unordered_set<std::string> seen_strings;
  std::vector<Value> seen_others;
  std::vector<Value> kept;
  for (const Value& element : list->items) {
    LATHE_TRY(const Value key, key_of(r, element, {.path = bound[1], .fold_case = fold}));
    bool fresh = true;
    if (const MarkedText* text = key.string()) {
      LATHE_TRY_VOID(r.charge(8 + key.weight()));
      fresh = seen_strings.insert(text->text).second;
    } else {
      for (size_t i = 0; i < seen_others.size() && fresh; ++i) {
        LATHE_TRY(const bool same, r.same(seen_others[i], key));
        fresh = !same;
      }
      if (fresh) seen_others.push_back(key);
    }
    if (fresh) kept.push_back(element);
  }
  return r.list(std::move(kept));
}

CallArgs rest_of(const CallArgs& args, size_t from) {
  return {.positional = {args.positional.begin() + static_cast<ptrdiff_t>(std::min(from, args.positional.size())), args.positional.end()},
          .keyword = args.keyword};
}

/// As in Jinja2, what is false (none, 0 …) counts as empty for map and the select family.
Result<ListPtr> elements_or_empty(Runtime& r, const Value& input) { return r.elements(input.truthy() ? input : Value()); }

/// map(attribute=…, default=…) or map('filter', …).
Result<Value> map(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const ListPtr list, elements_or_empty(r, input));
  std::vector<Value> mapped;
  mapped.reserve(list->items.size());
  if (args.positional.empty()) {
    LATHE_TRY(const auto bound, bind(r, args, {"attribute", "default"}));
    if (bound[0] == nullptr) return r.fail("'map' needs the name of a filter or attribute=…");
    for (const Value& element : list->items) {
      LATHE_TRY(Value key, key_of(r, element, {.path = bound[0], .missing = bound[1]}));
      if (key.is_undefined() && bound[1] != nullptr) key = *bound[1];
      mapped.push_back(std::move(key));
    }
    return r.list(std::move(mapped));
  }
  LATHE_TRY(const MarkedText* name, string_argument(r, args.positional.data(), "filter"));
  const Operation operation = find_filter(name->text);
  if (operation == nullptr) return r.fail("there is no filter '{}'", name->text.substr(0, 40));
  const Runtime::Level level(r);
  LATHE_TRY_VOID(level.check());
  LATHE_TRY_VOID(r.charge(args.positional.size()));
  const CallArgs rest = rest_of(args, 1);
  for (const Value& element : list->items) {
    LATHE_TRY_VOID(r.charge(4));
    LATHE_TRY(Value value, operation(r, element, rest));
    mapped.push_back(std::move(value));
  }
  return r.list(std::move(mapped));
}

/// select, reject (test, …) and selectattr, rejectattr (attribute, test, …); without a test: what is true.
enum class By : uint8_t { kElement, kAttribute };
enum class Keep : uint8_t { kWhatHolds, kWhatDoesNot };
struct Choice {
  By by = By::kElement;
  Keep keep = Keep::kWhatHolds;
};
Result<Value> choose(Runtime& r, const Value& input, const CallArgs& args, Choice choice) {
  const bool by_attribute = choice.by == By::kAttribute;
  LATHE_TRY(const ListPtr list, elements_or_empty(r, input));
  const Value* attribute = nullptr;
  if (by_attribute) {
    if (args.positional.empty()) return r.fail("the attribute to choose by is missing");
    attribute = &args.positional[0];
  }
  const size_t test_at = by_attribute ? 1 : 0;
  Operation test = nullptr;
  if (args.positional.size() > test_at) {
    LATHE_TRY(const MarkedText* name, string_argument(r, &args.positional[test_at], "test"));
    test = find_test(name->text);
    if (test == nullptr) return r.fail("there is no test '{}'", name->text.substr(0, 40));
  }
  const Runtime::Level level(r);
  LATHE_TRY_VOID(level.check());
  LATHE_TRY_VOID(r.charge(args.positional.size()));
  const CallArgs rest = rest_of(args, test_at + 1);
  std::vector<Value> kept;
  for (const Value& element : list->items) {
    LATHE_TRY_VOID(r.charge(4));
    LATHE_TRY(const Value key, key_of(r, element, {.path = attribute}));
    bool holds = key.truthy();
    if (test != nullptr) {
      LATHE_TRY(const Value result, test(r, key, rest));
      holds = result.truthy();
    }
    if (holds == (choice.keep == Keep::kWhatHolds)) kept.push_back(element);
  }
  return r.list(std::move(kept));
}
Result<Value> select(Runtime& r, const Value& input, const CallArgs& args) { return choose(r, input, args, {}); }
Result<Value> reject(Runtime& r, const Value& input, const CallArgs& args) { return choose(r, input, args, {.keep = Keep::kWhatDoesNot}); }
Result<Value> selectattr(Runtime& r, const Value& input, const CallArgs& args) { return choose(r, input, args, {.by = By::kAttribute}); }
Result<Value> rejectattr(Runtime& r, const Value& input, const CallArgs& args) {
  return choose(r, input, args, {.by = By::kAttribute, .keep = Keep::kWhatDoesNot});
}

Result<Value> join(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"d", "attribute"}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  MarkedText separator;
  if (bound[0] != nullptr) {
    LATHE_TRY(separator, r.text_of(*bound[0]));
  }
  MarkedText out;
  for (size_t i = 0; i < list->items.size(); ++i) {
    LATHE_TRY(const Value part, key_of(r, list->items[i], {.path = bound[1]}));
    if (i > 0) append(out, separator);
    LATHE_TRY_VOID(r.charge(4 + (i > 0 ? separator.text.size() / 8 + separator.literal.size() : 0)));
    LATHE_TRY_VOID(r.append_text(out, part));
  }
  return r.string(std::move(out));
}

Result<Value> sum(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"attribute", "start"}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  Value total = bound[1] == nullptr ? Value(int64_t{0}) : *bound[1];
  for (const Value& element : list->items) {
    LATHE_TRY(const Value key, key_of(r, element, {.path = bound[0]}));
    LATHE_TRY_VOID(r.charge(2));
    LATHE_TRY(total, add(r, total, key));
  }
  return total;
}

enum class Extreme : uint8_t { kLeast, kMost };
Result<Value> extreme(Runtime& r, const Value& input, const CallArgs& args, Extreme which) {
  LATHE_TRY(const auto bound, bind(r, args, {"case_sensitive", "attribute"}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  if (list->items.empty()) return Value();
  const bool fold = bound[0] == nullptr || !bound[0]->truthy();
  size_t best = 0;
  LATHE_TRY(Value best_key, key_of(r, list->items[0], {.path = bound[1], .fold_case = fold}));
  for (size_t i = 1; i < list->items.size(); ++i) {
    LATHE_TRY(Value key, key_of(r, list->items[i], {.path = bound[1], .fold_case = fold}));
    LATHE_TRY_VOID(r.charge(2));
    LATHE_TRY(const bool better, which == Extreme::kMost ? r.before(best_key, key) : r.before(key, best_key));
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return list->items[best];
}
Result<Value> min(Runtime& r, const Value& input, const CallArgs& args) { return extreme(r, input, args, Extreme::kLeast); }
Result<Value> max(Runtime& r, const Value& input, const CallArgs& args) { return extreme(r, input, args, Extreme::kMost); }

Result<Value> batch(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"linecount", "fill_with"}));
  LATHE_TRY(const ListPtr list, r.elements(input));
  LATHE_TRY(const int64_t count, int_argument(r, bound[0], "linecount", 0));
  if (count < 1) return r.fail("'batch' needs a count of at least 1, not {}", count);
  std::vector<Value> batches;
  std::vector<Value> row;
  for (size_t i = 0; i < list->items.size(); ++i) {
    row.push_back(list->items[i]);
    const bool full = static_cast<int64_t>(row.size()) == count;
    if (!full && i + 1 < list->items.size()) continue;
    if (!full && bound[1] != nullptr && !bound[1]->is_none()) {
      LATHE_TRY_VOID(r.charge(static_cast<uint64_t>(count)));
      row.resize(static_cast<size_t>(count), *bound[1]);
    }
    LATHE_TRY_VOID(r.charge(8));
    LATHE_TRY(Value done, r.list(std::exchange(row, {})));
    batches.push_back(std::move(done));
  }
  return r.list(std::move(batches));
}

constexpr NamedOperation kFilters[] = {
    {"batch", batch},
    {"count", length},
    {"dictsort", dict_sort},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", as_list},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", reject},
    {"rejectattr", rejectattr},
    {"reverse", reverse},
    {"select", select},
    {"selectattr", selectattr},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const NamedOperation> list_filters() { return kFilters; }

}  // namespace lathe::text::jinja
