#include "weights/stream.h"

#include <algorithm>
#include <optional>

#include "base/sync.h"

namespace lathe::weights {
namespace {

struct Piece {
  size_t part = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

/// Cuts the parts into pieces, a few at a time.
class Cutter {
 public:
  Cutter(std::span<const StreamPart> parts, uint64_t piece_bytes) : parts_(parts), piece_bytes_(piece_bytes) {}

  /// The next pieces, at most `count`; none at the end.
  std::vector<Piece> next(size_t count) {
    std::vector<Piece> out;
    while (out.size() < count && part_ < parts_.size()) {
      const StreamPart& part = parts_[part_];
      const uint64_t step = std::max(part.unit, piece_bytes_ / part.unit * part.unit);
      const uint64_t bytes = std::min(step, part.bytes - begin_);
      if (bytes > 0) out.push_back({part_, begin_, bytes});
      begin_ += bytes;
      if (begin_ == part.bytes) ++part_, begin_ = 0;
    }
    return out;
  }

 private:
  std::span<const StreamPart> parts_;
  uint64_t piece_bytes_;
  size_t part_ = 0;
  uint64_t begin_ = 0;
};

/// The first error of all workers.
class FirstError {
 public:
  void keep(const Result<void>& result) {
    if (result) return;
    const base::Lock lock(mutex_);
    if (!error_) error_ = result.error();
  }
  Result<void> status() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  base::Mutex mutex_{"stream error"};
  std::optional<Error> error_;
};

}  // namespace

Result<void> stream_parts(const base::OutputFile& file, std::span<const StreamPart> parts, FillPart fill, const StreamOptions& options) {
  constexpr size_t kPiecesAtOnce = 16;  // of each thread, between two looks at the progress
  std::optional<base::ThreadPool> own;
  base::ThreadPool& pool = options.pool != nullptr ? *options.pool : own.emplace(1);
  std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(pool.threads()));
  Cutter cutter(parts, options.piece_bytes);
  FirstError error;
  uint64_t done = options.done_before;
  while (true) {
    const std::vector<Piece> pieces = cutter.next(kPiecesAtOnce * buffers.size());
    if (pieces.empty()) return {};
    pool.for_each(static_cast<int64_t>(pieces.size()), [&](int64_t task, int worker) {
      const Piece& piece = pieces[static_cast<size_t>(task)];
      std::vector<std::byte>& buffer = buffers[static_cast<size_t>(worker)];
      if (buffer.size() < piece.bytes) buffer.resize(piece.bytes);
      const std::span<std::byte> bytes(buffer.data(), piece.bytes);
      Result<void> result = fill(piece.part, piece.begin, bytes);
      if (result) result = file.write_at(parts[piece.part].offset + piece.begin, bytes);
      error.keep(result);
    });
    LATHE_TRY_VOID(error.status());
    for (const Piece& piece : pieces) done += piece.bytes;
    if (options.progress != nullptr && !(*options.progress)(done)) return err(Code::kCancelled, "stopped while writing '{}'", file.path());
  }
}

}  // namespace lathe::weights
