#include "evaluate/bench_rival_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "ops/cases/problem.h"

namespace lathe::evaluate {
namespace {

using config::Json;

constexpr int64_t kDecodeTokens = 32;  // of each sequence while all of them decode
constexpr int64_t kTokensAhead = 2;    // of one that waits for the prompt of another: so many more for each of the others

std::string place(const RivalServer& server, const std::string& target) {
  return fmt::format("http://{}{}{}", server.url.authority, server.url.path, target);
}

/// The JSON of an answer with status 200.
Result<Json> json_of(const RivalServer& server, const std::string& target, const net::HttpResponse& response) {
  if (response.status != 200) {
    return err(Code::kFailedPrecondition, "{} answers with status {}: '{}'", place(server, target), response.status,
               base::one_line(response.body.substr(0, 200)));
  }
  auto json = config::parse_json(response.body);
  if (!json) return base::forward_error(base::file_content(json), "answer of " + place(server, target));
  return json;
}

Result<int64_t> count_of(const Json& json, std::string_view key, const std::string& where) {
  const Json* const value = json.find(key);
  if (value == nullptr || !value->is_int() || value->as_int() < 1)
    return err(Code::kFailedPrecondition, "{}: '{}' is {}, expected a number from 1 on: llama-server of llama.cpp is what can be asked", where, key,
               value == nullptr ? "missing" : value->dump());
  return value->as_int();
}

/// A prompt that the server has not seen.
std::string completion(const RivalServer& server, int64_t tokens, int64_t answer, uint64_t& draw) {
  Json::Array ids;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int64_t>(1 + ops::cases::mix(++draw) % static_cast<uint64_t>(server.vocabulary - 1)));
  }
  return Json(Json::Object{{"prompt", std::move(ids)},
                           {"n_predict", answer},
                           {"temperature", 0},
                           {"ignore_eos", true},
                           {"cache_prompt", false},
                           {"stream", answer > 1}})
      .dump();
}

Result<double> prefill_rate(const RivalServer& server, int64_t tokens, uint64_t& draw) {
  const std::string target = "/completion";
  const net::HttpRequest request{.target = target, .body = completion(server, tokens, 1, draw)};
  LATHE_TRY(const auto responses, net::http_exchange(server.url, {&request, 1}));
  LATHE_TRY(const Json json, json_of(server, target, responses.front()));
  const Json* const timings = json.find("timings");
  const Json* const count = timings != nullptr ? timings->find("prompt_n") : nullptr;
  const Json* const ms = count != nullptr ? timings->find("prompt_ms") : nullptr;
  if (ms == nullptr || !ms->is_number() || !count->is_int() || !(ms->as_double() > 0)) {
    return err(Code::kFailedPrecondition, "{}: 'timings' with prompt_n and prompt_ms is missing in '{}'", place(server, target),
               base::one_line(responses.front().body.substr(0, 200)));
  }
  if (count->as_int() < tokens)
    return err(Code::kFailedPrecondition, "{} read {} tokens of a prompt of {}: expected all of them", place(server, target), count->as_int(),
               tokens);
  return static_cast<double>(count->as_int()) / ms->as_double() * 1e3;
}

Result<double> decode_rate(const RivalServer& server, int64_t batch, uint64_t& draw) {
  const int64_t answer = decode_answer(batch);
  std::vector<net::HttpRequest> requests;
  for (int64_t i = 0; i < batch; ++i) requests.push_back({.target = "/completion", .body = completion(server, server.decode_context, answer, draw)});
  LATHE_TRY(const auto responses, net::http_exchange(server.url, requests));
  std::vector<std::vector<int64_t>> answers;
  for (const net::HttpResponse& response : responses) {
    if (response.status != 200) return base::forward_error(json_of(server, "/completion", response), fmt::format("decode {}", batch));
    auto times = base::file_content(token_times(response));
    if (!times) return base::forward_error(times, "answer of " + place(server, "/completion"));
    answers.push_back(std::move(*times));
  }
  const auto rate = common_rate(answers);
  if (!rate) return base::forward_error(rate, fmt::format("decode {} of {}", batch, place(server, "/completion")));
  return rate;
}

}  // namespace

Result<void> ask_server(RivalServer& server) {
  const net::HttpRequest requests[] = {{.target = "/health", .body = {}}, {.target = "/props", .body = {}}, {.target = "/v1/models", .body = {}}};
  LATHE_TRY(const auto responses, net::http_exchange(server.url, requests));
  LATHE_TRY_VOID(json_of(server, "/health", responses[0]));
  LATHE_TRY(const Json props, json_of(server, "/props", responses[1]));
  const std::string where = place(server, "/props");
  LATHE_TRY(server.slots, count_of(props, "total_slots", where));
  const Json* const defaults = props.find("default_generation_settings");
  LATHE_TRY(server.context, count_of(defaults == nullptr ? Json() : *defaults, "n_ctx", where + " default_generation_settings"));
  LATHE_TRY(const Json models, json_of(server, "/v1/models", responses[2]));
  const Json* const list = models.find("data");
  const Json* const meta = list != nullptr && list->is_array() && !list->as_array().empty() ? list->as_array()[0].find("meta") : nullptr;
  LATHE_TRY(server.vocabulary, count_of(meta == nullptr ? Json() : *meta, "n_vocab", place(server, "/v1/models") + " meta"));
  if (server.vocabulary < 2) return err(Code::kFailedPrecondition, "{}: a vocabulary of one id", place(server, "/v1/models"));
  return {};
}

Result<BenchFigures> run_server(const RivalServer& server, uint64_t draw, ArmRun& run) {
  BenchFigures figures;
  const int64_t begin = base::now_ns();
  const auto add = [&](const std::string& name, auto measure) -> Result<void> {
    std::vector<double> rates;
    for (int64_t i = 0; i < server.samples; ++i) {
      LATHE_TRY(rates.emplace_back(), measure());
    }
    figures[name] = median(rates);
    return {};
  };
  for (const int64_t tokens : server.prompts) {
    LATHE_TRY_VOID(add(fmt::format("prefill {}", tokens), [&] { return prefill_rate(server, tokens, draw); }));
  }
  for (const int64_t batch : server.batches) {
    LATHE_TRY_VOID(add(fmt::format("decode {}", batch), [&] { return decode_rate(server, batch, draw); }));
  }
  run.wall_ns += base::now_ns() - begin;
  return figures;
}

int64_t decode_answer(int64_t batch) { return kDecodeTokens + kTokensAhead * batch; }

Result<std::vector<int64_t>> token_times(const net::HttpResponse& response) {
  constexpr std::string_view kData = "data: ";
  std::vector<int64_t> times;
  const std::string& body = response.body;
  auto arrival = response.arrivals.begin();
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('\n', begin), body.size());
    const std::string line = body.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line == "\r") continue;
    if (!line.starts_with(kData)) return err(Code::kInvalidArgument, "'{}' is no event of a stream", base::one_line(line.substr(0, 200)));
    if (line.starts_with("data: [DONE]")) break;
    LATHE_TRY(const Json event, config::parse_json(line.substr(kData.size())));
    const Json* const stop = event.find("stop");
    if (stop == nullptr || !stop->is_bool()) return err(Code::kInvalidArgument, "'{}' has no 'stop'", base::one_line(line.substr(0, 200)));
    if (stop->as_bool()) break;
    while (arrival != response.arrivals.end() && arrival->bytes < end) ++arrival;
    if (arrival == response.arrivals.end()) return err(Code::kInvalidArgument, "the last event is cut");
    times.push_back(arrival->ns);
  }
  return times;
}

Result<double> common_rate(const std::vector<std::vector<int64_t>>& answers) {
  int64_t begin = INT64_MIN, end = INT64_MAX;
  for (const std::vector<int64_t>& times : answers) {
    if (times.size() < 2) return err(Code::kFailedPrecondition, "an answer has {} tokens, expected several", times.size());
    begin = std::max(begin, times.front()), end = std::min(end, times.back());
  }
  if (begin >= end)
    return err(Code::kFailedPrecondition, "at no time were all {} answers written: expected a server with as many slots", answers.size());
  int64_t tokens = 0;
  for (const std::vector<int64_t>& times : answers) {
    tokens += std::count_if(times.begin(), times.end(), [&](int64_t ns) { return ns > begin && ns <= end; });
  }
  return static_cast<double>(tokens) * 1e9 / static_cast<double>(end - begin);
}

}  // namespace lathe::evaluate
