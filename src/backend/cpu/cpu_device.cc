#include "backend/cpu/cpu_device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/isa.h"
#include "backend/cpu/thread_choice.h"
#include "backend/host_context.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "kernels/ref/reference.h"
#ifdef LATHE_PLANTED_FAULTS
#include "backend/planted.h"
#endif

namespace lathe::backend {
namespace {

/// Most bytes that this process can ever hold: physical memory, or less in a container.
int64_t memory_limit() {
  int64_t limit = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  if (const Result<std::string> text = base::read_file("/sys/fs/cgroup/memory.max", 64)) {
    int64_t group = 0;
    if (std::from_chars(text->data(), text->data() + text->size(), group).ec == std::errc()) limit = std::min(limit, group);  // else "max"
  }
  return limit;
}

/// Adds what the pool does not know to its spans.
class PieceRecorder final : public base::Recorder {
 public:
  void begin(base::Recorder* target, const char* variant, const LaunchNote& note) { target_ = target, variant_ = variant, note_ = note; }
  void span(const base::Span& span) override {
    base::Span piece = span;
    piece.detail = variant_;
    piece.layer = note_.layer, piece.rank = note_.rank, piece.tokens = note_.tokens;
    target_->span(piece);
  }

 private:
  base::Recorder* target_ = nullptr;
  const char* variant_ = "";
  LaunchNote note_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(const CpuOptions& options, base::ThreadPlan plan, std::string isa, std::vector<ops::Variant> table)
      : limit_(memory_limit()),
        plan_(std::move(plan)),
        context_(plan_, options.scratch_max > 0 ? options.scratch_max : limit_),
        isa_(std::move(isa)),
        table_(std::move(table)) {}
  ~CpuDevice() override { LATHE_DCHECK(used_ == 0, "{} bytes of device memory outlive their device", used_); }

  const char* name() const override { return "cpu"; }
  int threads() { return context_.pool().threads(); }
  bool host_visible() const override { return true; }

  Result<void*> allocate(int64_t bytes) override {
    LATHE_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
    if (bytes > limit_ - used_) {
      return err(Code::kResourceExhausted, "cannot allocate {} bytes: this machine has {} bytes of memory and {} of them are in use by the device",
                 bytes, limit_, used_);
    }
    void* const memory = mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return err(Code::kResourceExhausted, "cannot allocate {} bytes: {}", bytes, std::strerror(errno));
    used_ += bytes;
    return memory;
  }
  void release(void* memory, int64_t bytes) override {
    used_ -= bytes;
    LATHE_CHECK(munmap(memory, mapped(bytes)) == 0, "release of {} bytes at {}", bytes, memory);
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override { copy(device, host, bytes); }
  void copy_to_host(void* host, const void* device, int64_t bytes) override { copy(host, device, bytes); }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void fill_zero(void* device, int64_t bytes) override {
    if (bytes > 0) std::memset(device, 0, static_cast<size_t>(bytes));
  }
  void settle(const void* data, int64_t bytes) override {
    if (plan_.nodes > 1) settle_pages(context_.pool(), plan_, data, bytes);
  }
  std::span<const ops::Variant> table() const override { return table_; }

  void launch(const ops::Variant& variant, const void* params, ops::OpCounters* counters) override {
    if (recorder_ == nullptr) [[likely]] {
      context_.run(variant, params, counters);
      return;
    }
    const char* const op = ops::op_info(variant.op).name;
    pieces_.begin(recorder_, variant.name, note_);
    context_.pool().set_recorder(&pieces_, op);
    const int64_t ready = std::max(enqueued_ns_, last_end_ns_);
    const int64_t start = base::now_ns();
    context_.run(variant, params, counters);
    last_end_ns_ = base::now_ns();
    recorder_->span({.name = op,
                     .category = "op",
                     .detail = variant.name,
                     .ready_ns = ready,
                     .start_ns = start,
                     .end_ns = last_end_ns_,
                     .layer = note_.layer,
                     .rank = note_.rank,
                     .tokens = note_.tokens});
  }
  void synchronise() override {}
  Result<void> take_error() override { return context_.take_error(); }

  void set_recorder(base::Recorder* recorder) override {
    recorder_ = recorder;
    note_ = {};
    enqueued_ns_ = last_end_ns_ = base::now_ns();
    if (recorder == nullptr) context_.pool().set_recorder(nullptr);
  }
  void annotate(const LaunchNote& note) override {
    note_ = note;
    enqueued_ns_ = base::now_ns();  // the launch follows at once
  }
  std::string describe() const override {
    return fmt::format("cpu: instruction set {}, {} threads, {} of them pinned, {} kernels", isa_, context_.threads(), context_.pinned(),
                       table_.size());
  }

 private:
  /// Whole pages, at least one: release must give back what allocate took.
  static size_t mapped(int64_t bytes) { return static_cast<size_t>(std::max<int64_t>(bytes, 1)); }
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  int64_t limit_;
  base::ThreadPlan plan_;
  HostContext context_;
  std::string isa_;
  std::vector<ops::Variant> table_;
  int64_t used_ = 0;
  base::Recorder* recorder_ = nullptr;
  PieceRecorder pieces_;
  LaunchNote note_;
  int64_t enqueued_ns_ = 0;  ///< of the launch that annotate() announced
  int64_t last_end_ns_ = 0;  ///< of the launch before, while recording
};

}  // namespace

std::span<const ops::Variant> reference_table() { return kernels::ref::reference_variants(); }

Result<IsaLevel> chosen_isa(const CpuOptions& options) { return choose_isa(options.isa, std::getenv("LATHE_ISA")); }

Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options) {
  LATHE_TRY(ThreadChoice choice, choose_threads(options));
  const int wanted = choice.plan.threads;
  std::string isa = "reference";
  std::vector<ops::Variant> table;
  if (!options.reference) {
    LATHE_TRY(const IsaLevel level, chosen_isa(options));
    isa = isa_name(level);
    table = isa_table(level);
  }
  const auto reference = reference_table();
  table.insert(table.end(), reference.begin(), reference.end());
#ifdef LATHE_PLANTED_FAULTS
  table = with_planted_faults(std::move(table));
#endif
  auto device = std::make_unique<CpuDevice>(options, std::move(choice.plan), std::move(isa), std::move(table));
  if (device->threads() < wanted) {
    return err(Code::kResourceExhausted, "cannot start {} threads: the system started {}", wanted, device->threads());
  }
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace lathe::backend
