#include "kernels/cuda/emulation.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/check.h"

// Saves the callee-saved registers on the running stack, swaps stacks, restores. void lathe_emulation_switch(void** save, void* next)
extern "C" void lathe_emulation_switch(void** save, void* next);
#ifndef __x86_64__
#error "the emulation of CUDA kernels knows x86-64 only"
#endif
asm(R"(
.text
.globl lathe_emulation_switch
.type lathe_emulation_switch,@function
lathe_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lathe_emulation_switch,.-lathe_emulation_switch
)");

namespace lathe::kernels::cuda::emulated {

Dim3 block_index, block_size, grid_size, thread_index;

namespace {

constexpr size_t kStackBytes = 96 * 1024;
constexpr int kWords = 16;

struct Warp {
  int live = 0;
  int arrived = 0;
  uint32_t generation = 0;
  std::array<std::array<uint64_t, 32>, 2> slots{};
  std::array<std::array<uint32_t, 32 * kWords>, 2> words{};
};

struct Thread {
  void* stack_pointer = nullptr;
  Dim3 index;
  int warp = 0;
  int block = 0;  ///< of the cluster
  bool done = false;
  uint32_t cluster_generation = 0;
};

struct Block {
  Dim3 index;
  std::vector<std::byte> shared;
  int live = 0;
  int arrived = 0;
  uint32_t generation = 0;
  std::array<int, 16> part_arrived{};
  std::array<uint32_t, 16> part_generation{};
};

struct Engine {
  std::unique_ptr<std::byte[]> stacks;  // most of it is never touched
  size_t stack_count = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Block> blocks;  // of the running cluster
  int live = 0;
  int arrived = 0;
  uint32_t generation = 0;
  int current = -1;
  void* scheduler = nullptr;
  const std::function<void()>* body = nullptr;
};
Engine engine;

void yield() {
  Thread& me = engine.threads[static_cast<size_t>(engine.current)];
  lathe_emulation_switch(&me.stack_pointer, engine.scheduler);
}

/// Lets the others go if everybody who lives has come.
void release_warp(Warp& warp) {
  if (warp.arrived > 0 && warp.arrived == warp.live) warp.arrived = 0, ++warp.generation;
}
void release_block(Block& block) {
  if (block.arrived > 0 && block.arrived == block.live) block.arrived = 0, ++block.generation;
}
void release_cluster() {
  if (engine.arrived > 0 && engine.arrived == engine.live) engine.arrived = 0, ++engine.generation;
}

void thread_main() {
  (*engine.body)();
  Thread& me = engine.threads[static_cast<size_t>(engine.current)];
  me.done = true;
  Warp& warp = engine.warps[static_cast<size_t>(me.warp)];
  Block& block = engine.blocks[static_cast<size_t>(me.block)];
  --warp.live, --block.live, --engine.live;
  release_warp(warp), release_block(block), release_cluster();
  yield();
  std::abort();
}

Thread& me() { return engine.threads[static_cast<size_t>(engine.current)]; }
Warp& my_warp() { return engine.warps[static_cast<size_t>(me().warp)]; }
Block& my_block() { return engine.blocks[static_cast<size_t>(me().block)]; }
std::byte* shared_of(Block& block) { return block.shared.data() + (64 - reinterpret_cast<uintptr_t>(block.shared.data()) % 64); }

void prepare(Thread& thread, size_t number) {
  auto top = reinterpret_cast<uintptr_t>(engine.stacks.get() + (number + 1) * kStackBytes);
  top &= ~uintptr_t{63};
  auto* at = reinterpret_cast<uintptr_t*>(top);
  *--at = 0;  // where thread_main would return to: keeps the stack aligned as after a call
  *--at = reinterpret_cast<uintptr_t>(&thread_main);
  for (int i = 0; i < 6; ++i) *--at = 0;
  thread.stack_pointer = at;
  thread.done = false;
}

void run_cluster(Dim3 block) {
  const size_t count = engine.threads.size();
  const size_t each = count / engine.blocks.size();
  for (Warp& warp : engine.warps) warp.live = warp.arrived = 0;
  for (size_t i = 0; i < count; ++i) {
    Thread& thread = engine.threads[i];
    const auto n = static_cast<unsigned>(i % each);
    thread.index = Dim3(n % block.x, n / block.x % block.y, n / (block.x * block.y));
    thread.block = static_cast<int>(i / each);
    thread.warp = static_cast<int>(i / each * ((each + 31) / 32) + n / 32);
    ++engine.warps[static_cast<size_t>(thread.warp)].live;
    prepare(thread, i);
  }
  for (Block& each_block : engine.blocks) {
    each_block.live = static_cast<int>(each);
    each_block.arrived = 0;
    std::memset(each_block.shared.data(), 0xFF, each_block.shared.size());
  }
  engine.live = static_cast<int>(count);
  engine.arrived = 0;
  while (engine.live > 0) {
    for (size_t i = 0; i < count; ++i) {
      Thread& thread = engine.threads[i];
      if (thread.done) continue;
      engine.current = static_cast<int>(i);
      thread_index = thread.index;
      block_index = engine.blocks[static_cast<size_t>(thread.block)].index;
      lathe_emulation_switch(&engine.scheduler, thread.stack_pointer);
    }
  }
}

}  // namespace

void* dynamic_shared() { return shared_of(my_block()); }

void* remote_shared(void* mine, int rank) {
  return shared_of(engine.blocks[static_cast<size_t>(rank)]) + (static_cast<std::byte*>(mine) - shared_of(my_block()));
}

void block_barrier() {
  Block& block = my_block();
  const uint32_t generation = block.generation;
  ++block.arrived;
  release_block(block);
  while (block.generation == generation) yield();
}

void cluster_arrive() {
  me().cluster_generation = engine.generation;
  ++engine.arrived;
  release_cluster();
}
void cluster_wait() {
  while (engine.generation == me().cluster_generation) yield();
}

void warp_barrier() {
  Warp& warp = my_warp();
  const uint32_t generation = warp.generation;
  ++warp.arrived;
  release_warp(warp);
  while (warp.generation == generation) yield();
}

void pause() { yield(); }

void part_barrier(int id, int threads) {
  Block& block = my_block();
  const auto i = static_cast<size_t>(id);
  const uint32_t generation = block.part_generation[i];
  if (++block.part_arrived[i] == threads) block.part_arrived[i] = 0, ++block.part_generation[i];
  while (block.part_generation[i] == generation) yield();
}

uint64_t exchange(uint64_t mine, int from) {
  Warp& warp = my_warp();
  auto& slots = warp.slots[warp.generation % 2];
  slots[static_cast<size_t>(lane())] = mine;
  warp_barrier();
  return slots[static_cast<size_t>(from & 31)];
}

unsigned ballot(bool predicate) {
  Warp& warp = my_warp();
  auto& slots = warp.slots[warp.generation % 2];
  const bool first = warp.arrived == 0;
  if (first) slots.fill(0);
  slots[static_cast<size_t>(lane())] = predicate ? 1 : 0;
  warp_barrier();
  unsigned bits = 0;
  for (size_t i = 0; i < 32; ++i) bits |= static_cast<unsigned>(slots[i]) << i;
  return bits;
}

const uint32_t* gather(const uint32_t* mine, int words) {
  LATHE_CHECK(words <= kWords, "{} words", words);
  Warp& warp = my_warp();
  auto& all = warp.words[warp.generation % 2];
  std::memcpy(all.data() + lane() * words, mine, static_cast<size_t>(words) * 4);
  warp_barrier();
  return all.data();
}

void run(Dim3 grid, Dim3 block, int64_t shared_bytes, const std::function<void()>& thread, unsigned cluster) {
  const size_t each = size_t{block.x} * block.y * block.z;
  const size_t count = each * cluster;
  LATHE_CHECK(each >= 1 && each <= 1024, "{} threads in a block", each);
  LATHE_CHECK(shared_bytes <= 227 * 1024, "{} bytes of shared memory", shared_bytes);
  LATHE_CHECK(grid.x >= 1 && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535, "grid of {} x {} x {}", grid.x, grid.y, grid.z);
  LATHE_CHECK(cluster >= 1 && cluster <= 8 && grid.x % cluster == 0, "clusters of {} in a grid of {}", cluster, grid.x);
  if (engine.stack_count < count) engine.stacks = std::make_unique_for_overwrite<std::byte[]>(count * kStackBytes), engine.stack_count = count;
  engine.threads.resize(count);
  engine.warps.resize((each + 31) / 32 * cluster);
  engine.blocks.resize(cluster);
  for (Block& one : engine.blocks) one.shared.resize(static_cast<size_t>(shared_bytes) + 128);
  engine.body = &thread;
  grid_size = grid, block_size = block;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += cluster) {
        for (unsigned i = 0; i < cluster; ++i) engine.blocks[i].index = Dim3(x + i, y, z);
        run_cluster(block);
      }
    }
  }
}

}  // namespace lathe::kernels::cuda::emulated
