#include "cache/store.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace lathe::cache {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Result<void> check_options(const std::vector<LayerFamily>& families, const StoreOptions& options) {
  if (options.slots < 1 || options.blocks < 0 || options.block_tokens < 1 || options.tentative_max < 0) {
    return err(Code::kInvalidArgument, "cache store: slots {}, blocks {}, block_tokens {}, tentative_max {}: expected at least 1, 0, 1, 0",
               options.slots, options.blocks, options.block_tokens, options.tentative_max);
  }
  std::set<std::pair<int32_t, std::string>> seen;
  for (const auto& [layer, family] : families) {
    if (!seen.emplace(layer, family.name).second) {
      return err(Code::kInvalidArgument, "cache store: family '{}' of layer {} is given twice", family.name, layer);
    }
    if (family.unit != Unit::kSequence && options.block_tokens % family.tokens_per_unit != 0) {
      return err(Code::kInvalidArgument, "cache store: blocks of {} tokens do not hold whole units of {} tokens of family '{}'", options.block_tokens,
                 family.tokens_per_unit, family.name);
    }
    for (const Plane& plane : family.planes) {
      if (family.candidates && plane.rows_per_unit != options.tentative_max + 1) {
        return err(Code::kInvalidArgument, "cache store: family '{}' has {} candidate states, {} tentative tokens need {}", family.name,
                   plane.rows_per_unit, options.tentative_max, options.tentative_max + 1);
      }
    }
  }
  return {};
}

/// What open_for() may rely on.
Result<void> check_lengths(const Snapshot& snapshot, const StoreOptions& options) {
  if (snapshot.length < 0 || snapshot.draft_length < 0 || snapshot.draft_length > snapshot.length) {
    return err(Code::kDataLoss, "snapshot of {} tokens with {} draft entries: expected at least 0 tokens and no more draft entries than tokens",
               snapshot.length, snapshot.draft_length);
  }
  const StateMark& mark = snapshot.mark;
  if (mark.origin < 0 || mark.origin > mark.position || mark.position > snapshot.length) {
    return err(Code::kDataLoss, "snapshot of {} tokens with states of {} tokens, {} of them from a prompt: expected at most as many, in this order",
               snapshot.length, mark.position, mark.origin);
  }
  if (snapshot.length > options.blocks * options.block_tokens) {
    return err(Code::kResourceExhausted, "snapshot of {} tokens: the store holds {} blocks of {} tokens", snapshot.length, options.blocks,
               options.block_tokens);
  }
  return {};
}

}  // namespace

int64_t reserved_rows(const Family& family, const Plane& plane, const StoreOptions& options) {
  if (family.unit == Unit::kSequence) return options.slots * plane.rows_per_unit;
  return options.blocks * (options.block_tokens / family.tokens_per_unit);
}

std::vector<FamilyBytes> reserved_cache_bytes(std::span<const LayerFamily> families, const StoreOptions& options) {
  std::vector<FamilyBytes> out;
  for (const auto& [layer, family] : families) {
    auto found = std::find_if(out.begin(), out.end(), [&name = family.name](const FamilyBytes& entry) { return entry.family == name; });
    if (found == out.end()) found = out.insert(found, FamilyBytes{.family = family.name});
    for (const Plane& plane : family.planes) found->bytes += reserved_rows(family, plane, options) * plane.row_bytes();
  }
  return out;
}

int64_t Snapshot::bytes() const {
  int64_t total = 0;
  for (const Part& part : parts) {
    for (const auto& plane : part.planes) total += static_cast<int64_t>(plane.size());
  }
  return total;
}

Store::Store(backend::Device& device, std::vector<LayerFamily> families, const StoreOptions& options)
    : device_(device), families_(std::move(families)), options_(options) {
  for (int32_t block = static_cast<int32_t>(options.blocks); block-- > 0;) free_blocks_.push_back(block);
  for (int32_t slot = options.slots; slot-- > 0;) free_slots_.push_back(slot);
  slot_generation_.assign(static_cast<size_t>(options.slots), 0);
  block_generation_.assign(static_cast<size_t>(options.blocks), 0);
}

Result<std::unique_ptr<Store>> Store::create(backend::Device& device, std::vector<LayerFamily> families, const StoreOptions& options) {
  LATHE_TRY_VOID(check_options(families, options));
  std::unique_ptr<Store> store(new Store(device, std::move(families), options));
  LATHE_TRY_VOID(store->allocate_segments());
  return store;
}

Result<void> Store::allocate_segments() {
  for (size_t f = 0; f < families_.size(); ++f) {
    const Family& family = families_[f].family;
    for (size_t p = 0; p < family.planes.size(); ++p) {
      const Plane& plane = family.planes[p];
      const int64_t rows = reserved_rows(family, plane, options_);
      auto buffer = backend::Buffer::create(device_, std::max<int64_t>(rows * plane.row_bytes(), 64));
      if (!buffer) return base::forward_error(buffer, "cache segment '" + family.name + "' of layer " + std::to_string(families_[f].layer));
      bytes_ += rows * plane.row_bytes();
      const View view = tensor::make_view(buffer->data(), plane.dtype, {rows, plane.elements});
      segments_.push_back({.layer = families_[f].layer, .family = f, .plane = p, .buffer = std::move(*buffer), .view = view});
    }
  }
  return {};
}

const Store::Sequence& Store::at(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  LATHE_CHECK(found != sequences_.end(), "sequence {} is not open", sequence.value);
  return found->second;
}

Store::Sequence& Store::at(SequenceId sequence) { return const_cast<Sequence&>(std::as_const(*this).at(sequence)); }

const Store::Segment* Store::find(int32_t layer, const std::string& family, size_t plane) const {
  for (const Segment& segment : segments_) {
    if (segment.layer == layer && segment.plane == plane && families_[segment.family].family.name == family) return &segment;
  }
  return nullptr;
}

View Store::plane(int32_t layer, const std::string& family, int plane) const {
  const Segment* segment = find(layer, family, static_cast<size_t>(plane));
  LATHE_CHECK(segment != nullptr, "no plane {} of family '{}' in layer {}", plane, family, layer);
  return segment->view;
}

bool Store::has(int32_t layer, const std::string& family) const { return find(layer, family, 0) != nullptr; }

const Family& Store::family(int32_t layer, const std::string& family) const {
  const Segment* segment = find(layer, family, 0);
  LATHE_CHECK(segment != nullptr, "no family '{}' in layer {}", family, layer);
  return families_[segment->family].family;
}

void Store::clear_slot(int32_t slot) {
  for (const Segment& segment : segments_) {
    const Family& family = families_[segment.family].family;
    if (family.unit != Unit::kSequence) continue;
    const Plane& plane = family.planes[segment.plane];
    // A fresh sequence starts at candidate 0; the others are written before they are read.
    const int64_t rows = family.candidates ? 1 : plane.rows_per_unit;
    device_.fill_zero(static_cast<char*>(segment.view.data) + slot * plane.rows_per_unit * plane.row_bytes(), rows * plane.row_bytes());
  }
}

Result<SequenceId> Store::open(uint64_t request) {
  if (free_slots_.empty()) return err(Code::kResourceExhausted, "all {} cache slots are in use", options_.slots);
  Sequence sequence;
  sequence.blocks.reserve(static_cast<size_t>(ceil_div(options_.blocks, options_.slots)));  // an even share: decoding allocates nothing
  sequence.mark.request = request;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  ++slot_generation_[static_cast<size_t>(sequence.slot)];
  if (!options_.keep_stale_slots) clear_slot(sequence.slot);
  const SequenceId id{next_id_++};
  sequences_.emplace(id, std::move(sequence));
  return id;
}

void Store::close(SequenceId id) {
  const Sequence& sequence = at(id);
  free_slots_.push_back(sequence.slot);
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) free_blocks_.push_back(*block);
  sequences_.erase(id);
}

Result<void> Store::take_blocks(Sequence& sequence, int64_t tokens) {
  const int64_t wanted = ceil_div(tokens, options_.block_tokens) - static_cast<int64_t>(sequence.blocks.size());
  if (wanted > free_blocks()) {
    return err(Code::kResourceExhausted, "{} tokens need {} more cache blocks of {} tokens, {} of {} are free", tokens, wanted, options_.block_tokens,
               free_blocks(), options_.blocks);
  }
  for (int64_t i = 0; i < wanted; ++i) {
    const int32_t block = free_blocks_.back();
    free_blocks_.pop_back();
    ++block_generation_[static_cast<size_t>(block)];
    sequence.blocks.push_back(block);
  }
  return {};
}

Result<void> Store::append(SequenceId id, int64_t tokens, int64_t tentative) {
  Sequence& sequence = at(id);
  if (sequence.pending >= 0) return err(Code::kFailedPrecondition, "sequence {} has an uncommitted step", id.value);
  if (tokens < 0 || tentative < 0 || tentative > tokens || tentative > options_.tentative_max) {
    return err(Code::kInvalidArgument, "step of {} tokens of which {} tentative: expected 0 to {} tentative ones among them", tokens, tentative,
               options_.tentative_max);
  }
  LATHE_TRY_VOID(take_blocks(sequence, sequence.length + tokens));
  sequence.length += tokens - tentative;
  sequence.pending = tentative;
  return {};
}

void Store::commit(SequenceId id, int64_t kept) {
  Sequence& sequence = at(id);
  LATHE_CHECK(sequence.pending >= 0, "sequence {} has no step to commit", id.value);
  LATHE_CHECK(0 <= kept && kept <= sequence.pending, "commit({}) of {} tentative tokens", kept, sequence.pending);
  sequence.length += kept;
  sequence.cursor = static_cast<int32_t>((sequence.cursor + kept) % candidates());
  sequence.pending = -1;
  sequence.draft_length = std::min(sequence.draft_length, sequence.length);
}

std::vector<Store::RowRun> Store::settled_rows(const Sequence& sequence, const Segment& segment) const {
  const Family& family = families_[segment.family].family;
  const Plane& plane = family.planes[segment.plane];
  if (family.unit == Unit::kSequence) {
    if (family.candidates) return {{candidate_row(sequence, 0), 1}};
    return {{sequence.slot * plane.rows_per_unit, plane.rows_per_unit}};
  }
  std::vector<RowRun> runs;
  const int64_t per_block = block_rows(family);
  const int64_t rows = ceil_div(sequence.length, family.tokens_per_unit);
  for (int64_t row = 0; row < rows; row += per_block) {
    runs.push_back({sequence.blocks[static_cast<size_t>(row / per_block)] * per_block, std::min(per_block, rows - row)});
  }
  return runs;
}

Result<Snapshot> Store::snapshot(SequenceId id) const {
  const Sequence& sequence = at(id);
  if (sequence.pending >= 0) return err(Code::kFailedPrecondition, "snapshot of sequence {}: its step is uncommitted", id.value);
  Snapshot out{.length = sequence.length, .draft_length = sequence.draft_length, .mark = sequence.mark, .parts = {}};
  for (const Segment& segment : segments_) {
    const LayerFamily& layer_family = families_[segment.family];
    if (segment.plane == 0) {
      out.parts.push_back(
          {.layer = layer_family.layer, .family = layer_family.family.name, .layout_id = layer_family.family.layout_id(), .planes = {}});
    }
    const int64_t row_bytes = layer_family.family.planes[segment.plane].row_bytes();
    std::vector<std::byte> bytes;
    for (const RowRun& run : settled_rows(sequence, segment)) {
      const size_t before = bytes.size();
      bytes.resize(before + static_cast<size_t>(run.count * row_bytes));
      device_.copy_to_host(bytes.data() + before, static_cast<const char*>(segment.view.data) + run.first * row_bytes, run.count * row_bytes);
    }
    out.parts.back().planes.push_back(std::move(bytes));
  }
  return out;
}

Result<SequenceId> Store::open_for(const Snapshot& snapshot) {
  LATHE_TRY_VOID(check_lengths(snapshot, options_));
  LATHE_TRY(const SequenceId id, open());
  Sequence& sequence = at(id);
  if (auto taken = take_blocks(sequence, snapshot.length); !taken) {
    close(id);
    return base::forward_error(taken);
  }
  sequence.length = snapshot.length;
  sequence.draft_length = snapshot.draft_length;
  sequence.mark = snapshot.mark;
  return id;
}

Result<void> Store::deliver(SequenceId id, const Snapshot& snapshot, int32_t layer) {
  // A step may be appended already: what is delivered ends where the snapshot ends.
  LATHE_TRY_VOID(check_lengths(snapshot, options_));
  Sequence sequence = at(id);
  const int64_t room = static_cast<int64_t>(sequence.blocks.size()) * options_.block_tokens;
  if (snapshot.length > room) {
    return err(Code::kFailedPrecondition, "snapshot of {} tokens for sequence {}, which has blocks for {}", snapshot.length, id.value, room);
  }
  sequence.length = snapshot.length;
  for (const Segment& segment : segments_) {
    if (segment.layer != layer) continue;
    const Family& family = families_[segment.family].family;
    const auto part = std::find_if(snapshot.parts.begin(), snapshot.parts.end(),
                                   [&](const Snapshot::Part& p) { return p.layer == layer && p.family == family.name; });
    if (part == snapshot.parts.end()) return err(Code::kFailedPrecondition, "snapshot has no family '{}' of layer {}", family.name, layer);
    if (part->layout_id != family.layout_id()) {
      return err(Code::kFailedPrecondition, "snapshot of layer {} has layout {}, the store has {}", layer, part->layout_id, family.layout_id());
    }
    if (part->planes.size() != family.planes.size()) {
      return err(Code::kDataLoss, "snapshot of '{}' in layer {} has {} planes, expected {}", family.name, layer, part->planes.size(),
                 family.planes.size());
    }
    LATHE_TRY_VOID(deliver_plane(sequence, segment, part->planes[segment.plane]));
  }
  return {};
}

Result<void> Store::deliver_plane(const Sequence& sequence, const Segment& segment, std::span<const std::byte> bytes) {
  const Family& family = families_[segment.family].family;
  const int64_t row_bytes = family.planes[segment.plane].row_bytes();
  const std::vector<RowRun> runs = settled_rows(sequence, segment);
  int64_t needed = 0;
  for (const RowRun& run : runs) needed += run.count * row_bytes;
  if (needed != static_cast<int64_t>(bytes.size())) {
    return err(Code::kDataLoss, "snapshot of '{}' in layer {} has {} bytes in plane '{}', expected {}", family.name, segment.layer, bytes.size(),
               family.planes[segment.plane].name, needed);
  }
  const std::byte* from = bytes.data();
  for (const RowRun& run : runs) {
    device_.copy_to_device(static_cast<char*>(segment.view.data) + run.first * row_bytes, from, run.count * row_bytes);
    from += run.count * row_bytes;
  }
  return {};
}

Result<SequenceId> Store::restore(const Snapshot& snapshot) {
  LATHE_TRY(const SequenceId id, open_for(snapshot));
  std::set<int32_t> layers;
  for (const LayerFamily& family : families_) layers.insert(family.layer);
  for (const int32_t layer : layers) {
    if (auto done = deliver(id, snapshot, layer); !done) {
      close(id);
      return base::forward_error(done);
    }
  }
  return id;
}

Result<SequenceId> Store::copy(SequenceId id) {
  const Sequence source = at(id);
  if (source.pending >= 0) return err(Code::kFailedPrecondition, "copy of sequence {}: its step is uncommitted", id.value);
  LATHE_TRY(const SequenceId copied,
            open_for(Snapshot{.length = source.length, .draft_length = source.draft_length, .mark = source.mark, .parts = {}}));
  const Sequence& target = at(copied);
  for (const Segment& segment : segments_) {
    const int64_t row_bytes = families_[segment.family].family.planes[segment.plane].row_bytes();
    char* const data = static_cast<char*>(segment.view.data);
    const std::vector<RowRun> from = settled_rows(source, segment);
    const std::vector<RowRun> to = settled_rows(target, segment);
    for (size_t i = 0; i < from.size(); ++i)
      device_.copy_on_device(data + to[i].first * row_bytes, data + from[i].first * row_bytes, from[i].count * row_bytes);
  }
  return copied;
}

Result<std::vector<std::byte>> Store::materialise(SequenceId id, int32_t layer, const std::string& family, int plane) const {
  const Sequence& sequence = at(id);
  const Segment* segment = find(layer, family, static_cast<size_t>(plane));
  if (segment == nullptr) return err(Code::kNotFound, "no plane {} of family '{}' in layer {}", plane, family, layer);
  if (families_[segment->family].family.unit != Unit::kSequence) return err(Code::kInvalidArgument, "family '{}' is no state", family);
  if (families_[segment->family].family.trails && sequence.mark.position != sequence.length) {
    return err(Code::kFailedPrecondition, "family '{}' of layer {}: its state stands at {} of {} tokens, expected a prefix snapshot", family, layer,
               sequence.mark.position, sequence.length);
  }
  const int64_t row_bytes = families_[segment->family].family.planes[segment->plane].row_bytes();
  const RowRun run = settled_rows(sequence, *segment).front();
  std::vector<std::byte> bytes(static_cast<size_t>(run.count * row_bytes));
  device_.copy_to_host(bytes.data(), static_cast<const char*>(segment->view.data) + run.first * row_bytes, run.count * row_bytes);
  return bytes;
}

}  // namespace lathe::cache
