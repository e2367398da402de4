#pragma once
// Command lines that do not hold, told in one sentence. The parser's own words are for programmers.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::apps {

/// A value that must be a whole number of this range, or one of these words; what is said of another one names it and what was expected.
CLI::Validator integer_in(int64_t least, int64_t most);
CLI::Validator one_of(std::vector<std::string> words);

/// "--flag=" of a flag that takes a value as the two words that it stands for: the library takes the next word as the value.
std::vector<std::string> with_empty_values(const CLI::App& app, std::vector<std::string> arguments);

/// What the library accepts and we do not: a flag that is given twice and is no list, and a value that is empty. One sentence, empty if there is none.
std::string repeated_or_empty(const CLI::App& app, const std::vector<std::string>& arguments);

/// A flag in the place of the value of another one: "--system --json". One sentence, empty if there is none. Flags whose value is flags take it.
std::string flag_as_value(const CLI::App& app, const std::vector<std::string>& arguments);

/// One sentence about what the library refused.
std::string usage_message(const CLI::App& app, const CLI::Error& error, const std::vector<std::string>& arguments);

}  // namespace lathe::apps
