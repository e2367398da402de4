#pragma once
// A checkpoint directory as one set of named tensors: one file or shards with an index, memory-mapped, each tensor used exactly once.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/view.h"
#include "weights/safetensors.h"

namespace lathe::weights {

/// Owner of the mapped files; every view it hands out dies with it.
///
/// Memory   Views point into read-only maps: writing through them faults. A tensor whose address is not a multiple of its element size (the format
///          allows that) is copied to aligned memory when it is taken.
/// Threads  One owner during loading (take, finish); afterwards the views may be read from any thread.
class Checkpoint {
 public:
  /// Opens a directory that holds `model.safetensors` or `model.safetensors.index.json` with its shards, or one .safetensors file.
  /// Errors  not_found (neither file, a shard missing), and those of parse_safetensors; invalid_argument if index and shards disagree (a tensor in another
  ///         shard, in two shards, in a shard but not in the index, in the index but in no shard).
  static Result<Checkpoint> open(const std::string& path);

  /// Where it was opened, for messages.
  const std::string& path() const { return path_; }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The declaration of a tensor, or null. Does not count as use.
  const TensorEntry* find(std::string_view name) const;
  /// The file that holds a tensor, for messages; "" if there is no such tensor.
  std::string_view file_of(std::string_view name) const;

  /// The tensor as a contiguous view (rank 0 becomes [1]), and marks it used.
  /// Errors  not_found (names the checkpoint), failed_precondition (taken before).
  Result<View> take(std::string_view name);

  /// The same for a tensor of a floating type as f32: a copy where it is stored narrower.
  Result<View> take_f32(std::string_view name);

  /// Error invalid_argument if tensors were never taken: says how many and names the first of them.
  Result<void> finish() const;

  std::vector<std::string> names() const;  ///< in ascending order
  size_t size() const { return tensors_.size(); }
  uint64_t data_bytes() const;  ///< sum over all tensors
  const std::vector<std::string>& files() const { return files_; }
  /// Free-form strings of the files' headers (the first file wins).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Tensor {
    TensorEntry entry;
    size_t shard = 0;
    bool used = false;
  };
  struct Shard {
    base::MappedFile file;
    uint64_t data_begin = 0;
  };
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  Result<void> add_shard(const std::string& file);
  Result<void> add_indexed_shards(const std::string& index_file);

  std::string path_;
  std::vector<std::string> files_;
  std::vector<Shard> shards_;
  std::unordered_map<std::string, Tensor, NameHash, std::equal_to<>> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  ///< of unaligned tensors, and of widened ones
  std::map<std::string, std::string> metadata_;
};

}  // namespace lathe::weights
