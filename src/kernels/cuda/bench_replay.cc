// cuda_bench: replay decoding of KDA; and whether windows, single steps and flushes agree.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cuda/bench.h"
#include "kernels/cuda/replay_args.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int64_t kWidth = 128;
constexpr int64_t kHeadState = kWidth * kWidth;

struct Format {
  const char* name;
  Kept kept;
  Type keys, values;
  int period;
};
constexpr std::array kFormats = {
    Format{"f32, bf16 + bf16", Kept::kF32, Type::kBF16, Type::kBF16, 16}, Format{"f32, bf16 + f32", Kept::kF32, Type::kBF16, Type::kF32, 13},
    Format{"f32, f32 + f32", Kept::kF32, Type::kF32, Type::kF32, 11}, Format{"f16, bf16 + bf16", Kept::kF16, Type::kBF16, Type::kBF16, 11},
    Format{"i8, bf16 + bf16", Kept::kI8, Type::kBF16, Type::kBF16, 8}};

int64_t state_bytes(Kept kept) { return kept == Kept::kF32 ? 4 : kept == Kept::kF16 ? 2 : 1; }
int64_t entry_bytes(Type type) { return type == Type::kF32 ? 4 : 2; }
Memory contents(int64_t count, Content content, float low, float high) {
  const int64_t bytes = content == Content::kF32 ? 4 : content == Content::kBF16 ? 2 : 1;
  Memory memory(count * bytes);
  launch_fill(memory.as<void>(), content, low, high, count, bench.seed += 1'000'003, bench.stream);
  return memory;
}
Memory entries(int64_t count, Type type) { return contents(count, type == Type::kF32 ? Content::kF32 : Content::kBF16, -0.3f, 0.3f); }

/// Slots of a layer.
struct Slots {
  Slots(const Format& f, int64_t slots, int64_t heads_, int rows_, int decay_rows_)
      : format(f),
        heads(heads_),
        rows(rows_),
        decay_rows(decay_rows_),
        states(contents(slots * heads_ * kHeadState,
                        f.kept == Kept::kF32   ? Content::kF32
                        : f.kept == Kept::kF16 ? Content::kBF16
                                               : Content::kF8,
                        -0.1f, 0.1f)),
        scales(floats(slots * heads_ * kWidth, 0.0005f, 0.001f)),
        keys(entries(slots * rows_ * heads_ * kWidth, f.keys)),
        values(entries(slots * rows_ * heads_ * kWidth, f.values)),
        decay(floats(slots * decay_rows_ * heads_ * kWidth, -2, 0)) {}
  StatePool pool() const { return {states.as<void>(), heads * kHeadState, scales.as(), heads * kWidth, format.kept}; }
  RingArgs ring() const {
    const int64_t row = heads * kWidth;
    return {.keys = keys.as<void>(),
            .values = values.as<void>(),
            .decay = decay.as(),
            .key_slot = rows * row,
            .key_row = row,
            .value_slot = rows * row,
            .value_row = row,
            .decay_slot = decay_rows * row,
            .decay_row = row,
            .rows = rows,
            .decay_rows = decay_rows,
            .key_type = format.keys,
            .value_type = format.values};
  }
  Format format;
  int64_t heads;
  int rows, decay_rows;
  Memory states, scales, keys, values, decay;
};

/// Tokens of a layer, and the step that takes `count` sequences with `window` of them each.
struct TokenRows {
  TokenRows(int64_t tokens, int64_t heads_)
      : heads(heads_),
        q(floats(tokens * heads_ * kWidth, -1, 1)),
        k(floats(tokens * heads_ * kWidth, -1, 1)),
        v(floats(tokens * heads_ * kWidth, -1, 1)),
        g(floats(tokens * heads_ * kWidth, -1, 0)),
        beta(floats(tokens * heads_, 0, 1)),
        o(tokens * heads_ * kWidth * 4) {}
  int64_t heads;
  Memory q, k, v, g, beta, o;
};
/// Where sequences stand: rows of slots, checkpoints, starts, and which rows fold.
struct Places {
  Memory rows, checkpoint, to, start, begin, fold;
  int32_t sequences, tokens;
};
VerifyArgs verify_args(const Slots& slots, const TokenRows& t, const Places& at, const int32_t* rows, int64_t first = 0) {
  const int64_t stride = slots.heads * kWidth;
  return {.q = {t.q.as() + first * stride, stride, kWidth},
          .k = {t.k.as() + first * stride, stride, kWidth},
          .v = {t.v.as() + first * stride, stride, kWidth},
          .g = {t.g.as() + first * stride, stride},
          .beta = {t.beta.as() + first * slots.heads, slots.heads},
          .states = slots.pool(),
          .state = rows,
          .checkpoint = at.checkpoint.as<int32_t>(),
          .slot = rows,
          .fold = at.fold.as<int32_t>(),
          .ring = slots.ring(),
          .batch = {at.begin.as<int32_t>(), at.start.as<int32_t>(), at.sequences, at.tokens},
          .o = {t.o.as() + first * stride, stride, kWidth},
          .heads = static_cast<int32_t>(slots.heads),
          .keys = kWidth,
          .values = kWidth,
          .longest = at.sequences > 0 ? at.tokens / at.sequences : 0};
}
FlushArgs flush_args(const Slots& slots, const Places& at, const int32_t* rows, int folded) {
  return {.entering = slots.pool(),
          .states = slots.pool(),
          .state_in = rows,
          .into = rows,
          .checkpoint = at.checkpoint.as<int32_t>(),
          .to = at.to.as<int32_t>(),
          .slot = rows,
          .ring = slots.ring(),
          .sequences = at.sequences,
          .heads = static_cast<int32_t>(slots.heads),
          .keys = kWidth,
          .values = kWidth,
          .folded_max = folded};
}

constexpr int64_t kSlots = 1031;  // a prime
constexpr int64_t kHeads = 64;

/// `launches` steps of `batch` sequences: those whose checkpoint is due are flushed, then all decode `window` rows; phases are spread evenly.
struct Steps {
  Steps(const Format& f, int64_t batch, int window) : launches(static_cast<int>(std::clamp<int64_t>(kSlots / batch, 2, 64))) {
    std::vector<int32_t> all, due, checkpoints, starts, begins{0}, folds(static_cast<size_t>(batch * window)), from, to;
    for (int64_t s = 0; s < batch; ++s) {
      const auto behind = static_cast<int32_t>(s * f.period / batch);
      checkpoints.push_back(1000), starts.push_back(1000 + behind), begins.push_back(static_cast<int32_t>((s + 1) * window));
      if (behind == 0) from.push_back(1000 - f.period), to.push_back(1000);
    }
    for (int64_t i = 0; i < launches; ++i) {
      for (int64_t s = 0; s < batch; ++s) {
        all.push_back(static_cast<int32_t>((i * batch + s) * 7919 % kSlots));
        if (s < static_cast<int64_t>(from.size())) due.push_back(all.back());
      }
    }
    const auto n = static_cast<int32_t>(batch), few = static_cast<int32_t>(from.size());
    decode = {integers(all), integers(checkpoints), integers({0}), integers(starts), integers(begins), integers(folds), n, n * window};
    flush = {integers(due), integers(from), integers(to), integers({0}), integers({0}), integers({0}), few, few};
  }
  int launches;
  Places decode{Memory(4), Memory(4), Memory(4), Memory(4), Memory(4), Memory(4), 0, 0};
  Places flush{Memory(4), Memory(4), Memory(4), Memory(4), Memory(4), Memory(4), 0, 0};
};

void replay_row(const Slots& slots, const TokenRows& tokens, int64_t batch, int window, std::string& table) {
  const Format& f = slots.format;
  const Steps steps(f, batch, window);
  const auto verify = [&](int i) {
    launch_verify_128(verify_args(slots, tokens, steps.decode, steps.decode.rows.as<int32_t>() + i * batch), bench.stream);
  };
  const auto flush = [&](int i) {
    launch_flush_128(flush_args(slots, steps.flush, steps.flush.rows.as<int32_t>() + i * steps.flush.sequences, f.period), bench.stream);
  };
  const auto state = static_cast<double>(kHeadState * state_bytes(f.kept) + (f.kept == Kept::kI8 ? kWidth * 4 : 0));
  const auto entry = static_cast<double>(kWidth * (entry_bytes(f.keys) + entry_bytes(f.values)));
  const double l = f.period, heads = static_cast<double>(batch * kHeads);
  // docs/formats.md; a window adds an entry and a row of decay for each of its rows.
  const double floor = heads * (state * (1 + 1 / l) + entry * (l - 1) / 2 + entry * window + 512.0 * (window + 1));
  const double alone = heads * (state + entry * (l - 1) / 2 + entry * window + 512.0 * (window + 1));
  const auto add = [&](const char* name, double bytes, const std::function<void(int)>& launch) {
    const double us = measure(steps.launches, launch);
    report(fmt::format("replay/{}", name), fmt::format("{} L={} B={} rows={}", f.name, f.period, batch, window), us, bytes, bench.in_place_gbs);
    table += fmt::format("{:>9.1f} {:>4.2f}x", us, us * bench.in_place_gbs * 1000 / bytes);
  };
  table += fmt::format("{:<17} {:>3} {:>5} {:>4}", f.name, f.period, batch, window);
  add("step", floor, [&](int i) { flush(i), verify(i); });
  add("verify", alone, verify);
  add("flush", static_cast<double>(steps.flush.sequences) * kHeads * (2 * state + entry * l + 512), flush);
  table += "\n";
}

/// The recurrence itself over narrow states, read and written at every token.
void narrow_row(const Slots& slots, const TokenRows& tokens, int64_t batch, std::string& table) {
  const Steps steps(slots.format, batch, 1);
  const double us = measure(steps.launches, [&](int i) {
    const int32_t* const rows = steps.decode.rows.as<int32_t>() + i * batch;
    const VerifyArgs v = verify_args(slots, tokens, steps.decode, rows);
    RecurrenceArgs r{};
    r.q = v.q, r.k = v.k, r.v = v.v, r.g = v.g, r.beta = v.beta, r.o = v.o, r.batch = v.batch;
    r.state_in = r.state_out = rows, r.heads = v.heads, r.keys = r.values = kWidth;
    launch_recurrence_narrow_128(r, {slots.pool(), slots.pool()}, bench.stream);
  });
  const auto bytes =
      static_cast<double>(batch * kHeads * 2 * (kHeadState * state_bytes(slots.format.kept) + (slots.format.kept == Kept::kI8 ? kWidth * 4 : 0)));
  report("kda_decode/narrow", fmt::format("{} B={}", slots.format.name, batch), us, bytes, bench.in_place_gbs);
  table += fmt::format("{:<17}     {:>5} {:>9.1f} {:>3.0f}%\n", slots.format.name, batch, us, bytes / us / 10 / bench.in_place_gbs);
}

}  // namespace

void replay() {
  std::string table, narrow;
  for (const Format& f : kFormats) {
    const Slots slots(f, kSlots, kHeads, 24, 8);
    const TokenRows tokens(int64_t{512} * 4, kHeads);
    for (const int64_t batch : {1, 8, 32, 64, 128, 256, 512}) replay_row(slots, tokens, batch, 1, table);
    for (const int64_t batch : {8, 64, 256}) replay_row(slots, tokens, batch, 4, table);
    for (const int64_t batch : {1, 64, 256}) {
      if (f.kept != Kept::kF32) narrow_row(slots, tokens, batch, narrow);
    }
  }
  std::printf(
      "replay, us and times its traffic floor (in-place bandwidth, 64 heads); step: flush of the sequences that are due, then a row (or 4) of all; "
      "verify, flush alone\nformat              L     B rows           step         verify          flush\n%s",
      table.c_str());
  std::printf("recurrence over narrow states, us and %% of in-place bandwidth\n%s", narrow.c_str());
}

void replay_for_counters() {
  for (const Format& f : {kFormats[0], kFormats[4]}) {
    const Slots slots(f, kSlots, kHeads, 24, 8);
    const TokenRows tokens(64, kHeads);
    const Steps steps(f, 64, 1);
    launch_flush_128(flush_args(slots, steps.flush, steps.flush.rows.as<int32_t>(), f.period), bench.stream);
    launch_verify_128(verify_args(slots, tokens, steps.decode, steps.decode.rows.as<int32_t>()), bench.stream);
    BENCH_CUDA(cudaStreamSynchronize(bench.stream));
  }
}

namespace {

/// One sequence of kCheckTokens tokens in one slot, cut into windows of these sizes.
struct Decoded {
  std::vector<float> o, state;
};
constexpr int kCheckTokens = 61;

Decoded decode(const Format& f, const Slots& start, const TokenRows& tokens, const std::vector<int>& windows) {
  const int period = 8;
  Slots slots(f, 2, start.heads, 24, 8);
  const auto copy = [](const Memory& to, const Memory& from, int64_t bytes) {
    BENCH_CUDA(cudaMemcpyAsync(to.as<void>(), from.as<void>(), static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, bench.stream));
  };
  const int64_t count = 2 * start.heads * kHeadState;
  copy(slots.states, start.states, count * state_bytes(f.kept)), copy(slots.scales, start.scales, count / kWidth * 4);
  int at = 0, checkpoint = 0;
  const auto place = [&](int rows, int to) {
    std::vector<int32_t> folds;
    for (int i = 0; i < rows; ++i) folds.push_back((at + i) % period == 0 ? 1 : 0);
    return Places{integers({1}),
                  integers({checkpoint}),
                  integers({to}),
                  integers({at}),
                  integers({0, rows}),
                  integers(folds.empty() ? std::vector<int32_t>{0} : folds),
                  1,
                  rows};
  };
  for (size_t i = 0; at < kCheckTokens; ++i) {
    const int rows = std::min(windows[i % windows.size()], kCheckTokens - at);
    const Places step = place(rows, 0);
    launch_verify_128(verify_args(slots, tokens, step, step.rows.as<int32_t>(), at), bench.stream);
    at += rows;
    while (checkpoint + period <= at) {
      const Places due = place(0, checkpoint + period);
      launch_flush_128(flush_args(slots, due, due.rows.as<int32_t>(), period), bench.stream);
      checkpoint += period;
      BENCH_CUDA(cudaStreamSynchronize(bench.stream));
    }
    BENCH_CUDA(cudaStreamSynchronize(bench.stream));
  }
  BENCH_CUDA(cudaGetLastError());
  return {on_host(tokens.o.as(), kCheckTokens * start.heads * kWidth), on_host(slots.states.as(), count * state_bytes(f.kept) / 4)};
}

}  // namespace

bool check_replay() {
  constexpr int64_t kH = 3;
  bool good = true;
  for (const Format& f : kFormats) {
    const Slots start(f, 2, kH, 24, 8);
    const TokenRows tokens(kCheckTokens, kH);
    const Decoded single = decode(f, start, tokens, {1});
    int differing = 0;
    for (const std::vector<int>& windows : {std::vector<int>{2}, std::vector<int>{7}, std::vector<int>{4, 1, 6}, std::vector<int>{3, 5, 2}}) {
      const Decoded other = decode(f, start, tokens, windows);
      differing += std::memcmp(other.o.data(), single.o.data(), single.o.size() * 4) != 0 ? 1 : 0;
      differing += std::memcmp(other.state.data(), single.state.data(), single.state.size() * 4) != 0 ? 1 : 0;
    }
    double error = 0;
    if (f.kept == Kept::kF32) {
      const Memory states(kH * kHeadState * 4);
      BENCH_CUDA(
          cudaMemcpyAsync(states.as<void>(), start.states.as() + kH * kHeadState, kH * kHeadState * 4, cudaMemcpyDeviceToDevice, bench.stream));
      const Memory in = integers({0}), out = integers(std::vector<int32_t>(kCheckTokens, -1)), begin = integers({0, kCheckTokens});
      RecurrenceArgs r{};
      r.q = {tokens.q.as(), kH * kWidth, kWidth}, r.k = {tokens.k.as(), kH * kWidth, kWidth}, r.v = {tokens.v.as(), kH * kWidth, kWidth};
      r.g = {tokens.g.as(), kH * kWidth}, r.beta = {tokens.beta.as(), kH};
      r.entering = r.states = states.as(), r.entering_stride = r.states_stride = kH * kHeadState;
      r.state_in = in.as<int32_t>(), r.state_out = out.as<int32_t>(), r.batch = {begin.as<int32_t>(), in.as<int32_t>(), 1, kCheckTokens};
      r.o = {tokens.o.as(), kH * kWidth, kWidth}, r.heads = kH, r.keys = r.values = kWidth;
      launch_recurrence_128(r, KdaRung::kAuto, bench.stream);
      error = difference(single.o, on_host(tokens.o.as(), kCheckTokens * kH * kWidth));
    }
    const bool exact = f.keys == Type::kF32;
    const bool fine = differing == 0 && error < (exact ? 2e-6 : 1e-2) && difference(single.o, single.o) == 0;
    std::printf("replay %s: against the recurrence %.1e, %d of 8 windows with other bits: %s\n", f.name, error, differing, fine ? "ok" : "WRONG");
    std::fprintf(bench.json, "{\"what\": \"replay check\", \"format\": \"%s\", \"error\": %.3e, \"other_bits\": %d}\n", f.name, error, differing);
    good = good && fine;
  }
  return good;
}

}  // namespace lathe::kernels::cuda
