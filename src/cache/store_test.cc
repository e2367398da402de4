// Goal: described rows survive snapshot, copy and restore whatever they mean; slots and blocks have one owner and a generation; commit moves every family.
#include "cache/store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>

namespace lathe::cache {
namespace {

/// Plain host memory as a device: the store needs copies only.
class HostDevice : public backend::Device {
 public:
  const char* name() const override { return "host"; }
  bool host_visible() const override { return true; }
  Result<void*> allocate(int64_t bytes) override { return std::calloc(1, static_cast<size_t>(bytes)); }
  void release(void* memory, int64_t) override { std::free(memory); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override { std::memcpy(device, host, static_cast<size_t>(bytes)); }
  void copy_to_host(void* host, const void* device, int64_t bytes) override { std::memcpy(host, device, static_cast<size_t>(bytes)); }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void fill_zero(void* device, int64_t bytes) override { std::memset(device, 0, static_cast<size_t>(bytes)); }
  std::span<const ops::Variant> table() const override { return {}; }
  void launch(const ops::Variant&, const void*, ops::OpCounters*) override {}
  void synchronise() override {}
  std::string describe() const override { return "host"; }
};

constexpr int kTentative = 3;

/// A latent family of 528-byte rows (512 FP8 values, 4 scales), pools, candidate states, and a ring of 4 unflushed steps with decay and cursor.
std::vector<LayerFamily> test_families() {
  const Family latent{.name = "latent", .unit = Unit::kToken, .planes = {{"values", DType::kF8E4M3, 512}, {"scales", DType::kF32, 4}}, .shard = {}};
  const Family pools{.name = "pools", .unit = Unit::kPool, .tokens_per_unit = 4, .planes = {{"keys", DType::kBF16, 8}}, .shard = {}};
  const Family state{.name = "state", .unit = Unit::kSequence, .planes = {{"s", DType::kF32, 16, kTentative + 1}}, .candidates = true, .shard = {}};
  const Family ring{.name = "ring",
                    .unit = Unit::kSequence,
                    .planes = {{"checkpoint", DType::kF16, 16}, {"keys", DType::kBF16, 4, 4}, {"decay", DType::kF32, 4}, {"cursor", DType::kI32, 1}},
                    .shard = {}};
  return {{0, latent}, {0, pools}, {1, state}, {1, ring}, {2, latent}};
}

std::unique_ptr<Store> make_store(HostDevice& device, int slots = 3, int64_t blocks = 8) {
  return std::move(
      Store::create(device, test_families(), {.block_tokens = 16, .blocks = blocks, .slots = slots, .tentative_max = kTentative}).value());
}

/// Fills everything that belongs to the sequence with bytes that depend on `seed`, as a kernel would write them.
void scribble(Store& store, SequenceId id, uint8_t seed) {
  for (const auto& [layer, family] : store.families()) {
    for (size_t p = 0; p < family.planes.size(); ++p) {
      const View view = store.plane(layer, family.name, static_cast<int>(p));
      const int64_t row_bytes = family.planes[p].row_bytes();
      const auto fill = [&](int64_t row, int64_t salt) {
        for (int64_t i = 0; i < row_bytes; ++i)
          static_cast<uint8_t*>(view.data)[row * row_bytes + i] = static_cast<uint8_t>(seed + salt * 7 + i + layer);
      };
      if (family.unit == Unit::kSequence) {
        const int64_t rows = family.planes[p].rows_per_unit;
        for (int64_t r = 0; r < rows; ++r) fill(store.slot(id) * rows + r, family.candidates ? 0 : r);
      } else {
        const int64_t per_block = store.block_rows(family);
        for (size_t b = 0; b < store.block_table(id).size(); ++b) {
          for (int64_t r = 0; r < per_block; ++r) fill(store.block_table(id)[b] * per_block + r, static_cast<int64_t>(b) * per_block + r);
        }
      }
    }
  }
}

bool same(const Snapshot& a, const Snapshot& b) {
  if (a.length != b.length || a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    if (a.parts[i].planes != b.parts[i].planes || a.parts[i].layout_id != b.parts[i].layout_id) return false;
  }
  return true;
}

TEST(Store, SnapshotCopyRestoreKeepEveryByte) {
  HostDevice device;
  auto store = make_store(device);
  const SequenceId a = store->open().value();
  ASSERT_TRUE(store->append(a, 37, 0).has_value());
  store->commit(a, 0);
  scribble(*store, a, 11);
  const Snapshot taken = store->snapshot(a).value();
  // 37 tokens: 37 latent rows in two layers, 10 pool rows (the last incomplete), one state, one ring unit.
  EXPECT_EQ(taken.bytes(), 2 * 37 * 528 + 10 * 16 + 64 + (32 + 32 + 16 + 4));
  const SequenceId b = store->copy(a).value();
  scribble(*store, a, 99);
  EXPECT_TRUE(same(store->snapshot(b).value(), taken));
  EXPECT_FALSE(same(store->snapshot(a).value(), taken));
  store->close(a);
  const SequenceId c = store->restore(taken).value();
  EXPECT_TRUE(same(store->snapshot(c).value(), taken));
  HostDevice other_device;
  auto other = make_store(other_device, 1);
  EXPECT_TRUE(same(other->snapshot(other->restore(taken).value()).value(), taken));
}

TEST(Store, LayersAreDeliveredOneByOne) {
  HostDevice device;
  auto store = make_store(device);
  const SequenceId a = store->open().value();
  ASSERT_TRUE(store->append(a, 20, 0).has_value());
  store->commit(a, 0);
  scribble(*store, a, 3);
  const Snapshot taken = store->snapshot(a).value();
  const SequenceId b = store->open_for(taken).value();
  for (const int layer : {2, 0, 1}) ASSERT_TRUE(store->deliver(b, taken, layer).has_value());
  EXPECT_TRUE(same(store->snapshot(b).value(), taken));
  Snapshot wrong = taken;
  wrong.parts[0].layout_id = "latent@2";
  EXPECT_EQ(store->deliver(b, wrong, 0).error().code, Code::kFailedPrecondition);
}

TEST(Store, ASnapshotThatIsNotItsLayoutsIsRefused) {
  HostDevice device;
  auto store = make_store(device);
  const SequenceId a = store->open().value();
  ASSERT_TRUE(store->append(a, 20, 0).has_value());
  store->commit(a, 0);
  scribble(*store, a, 5);
  store->set_draft_length(a, 19);
  const Snapshot good = store->snapshot(a).value();
  const auto refusal = [&](void (*damage)(Snapshot&)) {
    Snapshot bad = good;
    damage(bad);
    const auto restored = store->restore(bad);
    EXPECT_EQ(store->free_slots(), 2) << "a refused snapshot gives its slot back";
    return restored ? Code::kInternal : restored.error().code;
  };
  EXPECT_EQ(refusal([](Snapshot& s) { s.parts[0].planes.pop_back(); }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.parts[3].planes.clear(); }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.parts[1].planes.emplace_back(); }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.parts[0].planes[1].pop_back(); }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.parts[2].planes[0].push_back({}); }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.length = 19; }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.length = -1; }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.draft_length = -1; }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.draft_length = 21; }), Code::kDataLoss);
  EXPECT_EQ(refusal([](Snapshot& s) { s.length = int64_t{8} * 16 + 1; }), Code::kResourceExhausted);
  EXPECT_EQ(refusal([](Snapshot& s) { s.length = INT64_MAX; }), Code::kResourceExhausted);
  EXPECT_TRUE(same(store->snapshot(store->restore(good).value()).value(), good));
  Snapshot longer = good;
  longer.length = 33;
  EXPECT_EQ(store->deliver(a, longer, 1).error().code, Code::kFailedPrecondition);
}

TEST(Store, ReservesWhatWasSaidWithoutAStore) {
  HostDevice device;
  for (const int tentative : {0, kTentative}) {
    std::vector<LayerFamily> families = test_families();
    families[2].family.planes[0].rows_per_unit = tentative + 1;
    const StoreOptions options{.block_tokens = 16, .blocks = 7, .slots = 3, .tentative_max = tentative};
    const std::vector<FamilyBytes> said = reserved_cache_bytes(families, options);
    ASSERT_EQ(said.size(), 4u);
    EXPECT_EQ(said[0].family, "latent");
    EXPECT_EQ(said[0].bytes, 2 * 7 * 16 * 528);
    EXPECT_EQ(said[1].bytes, 7 * 4 * 16);
    EXPECT_EQ(said[2].bytes, 3 * (tentative + 1) * 64);
    EXPECT_EQ(said[3].bytes, 3 * (32 + 32 + 16 + 4));
    int64_t sum = 0;
    for (const FamilyBytes& family : said) sum += family.bytes;
    EXPECT_EQ(sum, Store::create(device, families, options).value()->bytes());
  }
}

TEST(Store, MarksGoWhereTheirSequenceGoes) {
  HostDevice device;
  std::vector<LayerFamily> families = test_families();
  families[3].family.trails = true;
  const StoreOptions options{.block_tokens = 16, .blocks = 8, .slots = 3, .tentative_max = kTentative};
  auto store = std::move(Store::create(device, families, options).value());
  const SequenceId a = store->open(0xfeed).value();
  EXPECT_EQ(store->mark(a).request, 0xfeedu);
  ASSERT_TRUE(store->append(a, 20, 0).has_value());
  store->commit(a, 0);
  store->set_mark(a, {.request = 0xfeed, .origin = 9, .position = 16});
  const Snapshot taken = store->snapshot(a).value();
  for (const SequenceId other : {store->copy(a).value(), store->restore(taken).value()}) {
    EXPECT_EQ(store->mark(other).request, 0xfeedu);
    EXPECT_EQ(store->mark(other).origin, 9);
    EXPECT_EQ(store->mark(other).position, 16);
  }
  const auto behind = store->materialise(a, 1, "ring");
  ASSERT_EQ(behind.error().code, Code::kFailedPrecondition);
  EXPECT_NE(behind.error().message.find("stands at 16 of 20"), std::string::npos) << behind.error().message;
  EXPECT_TRUE(store->materialise(a, 1, "state").has_value()) << "a family with candidates does not trail";
  store->set_mark(a, {.origin = 9, .position = 20});
  EXPECT_TRUE(store->materialise(a, 1, "ring").has_value());
  store->close(a);
  const SequenceId fresh = store->open(7).value();
  EXPECT_EQ(store->mark(fresh).origin, 0);
  EXPECT_EQ(store->mark(fresh).position, 0);
  store->close(fresh);
  for (const StateMark& wrong : {StateMark{.origin = -1}, StateMark{.origin = 3, .position = 2}, StateMark{.origin = 3, .position = 21}}) {
    Snapshot bad = taken;
    bad.mark = wrong;
    EXPECT_EQ(store->restore(bad).error().code, Code::kDataLoss);
  }
}

TEST(Store, CommitMovesTheCursorAndTheLength) {
  HostDevice device;
  auto store = make_store(device);
  const SequenceId a = store->open().value();
  ASSERT_TRUE(store->append(a, 5, 3).has_value());
  EXPECT_EQ(store->length(a), 2);
  EXPECT_EQ(store->append(a, 1, 0).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(store->snapshot(a).error().code, Code::kFailedPrecondition);
  const int32_t second = store->tentative_row(a, 1);
  store->commit(a, 2);
  EXPECT_EQ(store->length(a), 4);
  EXPECT_EQ(store->state_row(a), second);
  ASSERT_TRUE(store->append(a, 3, 3).has_value());
  EXPECT_EQ(store->tentative_row(a, 2), store->slot(a) * 4 + 1);  // wraps around
  store->commit(a, 0);
  EXPECT_EQ(store->state_row(a), second);
  EXPECT_EQ(store->append(a, 5, 4).error().code, Code::kInvalidArgument);
}

TEST(Store, SlotsAndBlocksHaveOneOwnerAndAGeneration) {
  HostDevice device;
  auto store = make_store(device, 2, 4);
  const SequenceId a = store->open().value();
  const SequenceId b = store->open().value();
  EXPECT_EQ(store->open().error().code, Code::kResourceExhausted);
  ASSERT_TRUE(store->append(a, 33, 0).has_value());
  const auto full = store->append(b, 17, 0);
  ASSERT_FALSE(full.has_value());
  EXPECT_NE(full.error().message.find("2 more cache blocks of 16 tokens, 1 of 4"), std::string::npos) << full.error().message;
  ASSERT_TRUE(store->append(b, 16, 0).has_value());
  std::map<int32_t, int> owners;
  for (const SequenceId id : {a, b}) {
    for (const int32_t block : store->block_table(id)) ++owners[block];
  }
  EXPECT_EQ(owners.size(), 4u);
  const int32_t slot = store->slot(a);
  const uint32_t generation = store->slot_generation(slot);
  store->commit(a, 0);
  scribble(*store, a, 1);
  store->close(a);
  EXPECT_EQ(store->free_blocks(), 3);
  const SequenceId c = store->open().value();
  EXPECT_EQ(store->slot(c), slot);
  EXPECT_EQ(store->slot_generation(slot), generation + 1);
  EXPECT_EQ(store->materialise(c, 1, "state").value(), std::vector<std::byte>(64));
  EXPECT_EQ(store->materialise(c, 1, "ring", 1).value(), std::vector<std::byte>(32));
}

TEST(Store, RefusesWhatCannotBe) {
  HostDevice device;
  EXPECT_FALSE(Store::create(device, test_families(), {.block_tokens = 18, .blocks = 1, .slots = 1, .tentative_max = kTentative}).has_value());
  EXPECT_FALSE(Store::create(device, test_families(), {.block_tokens = 16, .blocks = 1, .slots = 1, .tentative_max = 1}).has_value());
  EXPECT_FALSE(Store::create(device, {test_families()[0], test_families()[0]}, {.block_tokens = 16, .blocks = 1, .slots = 1}).has_value());
}

}  // namespace
}  // namespace lathe::cache
