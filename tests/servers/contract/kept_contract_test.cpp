// Memory that outlives the process, on devices of any kind, without a supervisor: the order of updates, refused writes,
// poison, graphs, two copies. What a successor finds is in tests/tools.

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/kept/kept_agreement.hpp>
#include <coxswain/runtime/kept/kept_checksum.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/settings_scope.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using Values = std::vector<std::uint32_t>;
constexpr std::size_t bytes_of_four = 4 * sizeof(std::uint32_t);

template <class F>
KeptError::Kind kept_error_of(F&& f) {
  try {
    f();
  } catch (const KeptError& error) {
    return error.kind();
  }
  FAIL("no KeptError");
  return KeptError::Kind::Order;
}

/// What the next sync throws, with its causes.
template <class Client>
std::string failure_of(const Client& client) {
  try {
    client.sync().get();
  } catch (const Error&) {
    return error_chain(std::current_exception());
  }
  return {};
}

/// A set with four elements on one device.
template <class Backend>
struct Kept {
  OpenDevice<Backend> device;
  typename Backend::Client& client = device.client();
  KeptSet set;
  Handle handle = client.kept(set, "values", bytes_of_four).handle;

  explicit Kept(KeptOptions options = {}) : set("contract", {client.device_id()}, std::move(options)) {}

  [[nodiscard]] Values values(const Handle& memory) const {
    return client.read_one(memory).template to_vector<std::uint32_t>();
  }
  [[nodiscard]] Values values() const { return values(handle); }
  /// The record, as the device has written it.
  [[nodiscard]] KeptRecord record() {
    client.sync().get();
    KeptRecord copy;
    const Handle& memory = *set.device(client.device_id(), {}).record.handles[0];
    client.accept(memory);  // a commit that fails poisons it
    const auto bytes = client.read_one(memory);
    std::memcpy(&copy, bytes.span().data(), sizeof(copy));
    return copy;
  }
  /// The checksum with that number, as the device has written it.
  [[nodiscard]] KeptChecksum checksum(std::size_t number = 0) {
    client.sync().get();
    KeptChecksum copy;
    const auto bytes = client.read_one(*set.device(client.device_id(), {}).record.handles[0]);
    std::memcpy(&copy, bytes.span().data() + KeptRecordMemory::offset_of(number), sizeof(copy));
    return copy;
  }
  void update(std::uint64_t epoch, const Values& contents) {
    client.begin_update(set, epoch);
    client.write(client.kept_next(set, "values"), Bytes::copy_of(contents));
    client.commit(set);
  }
};

constexpr std::size_t words_kept = 4;

/// A set on all devices of a fleet.
template <class Fleet>
struct FleetSet {
  Fleet& fleet;
  KeptSet set;

  explicit FleetSet(Fleet& on, KeptOptions options = {}) : fleet(on), set("fleet", on.devices(), std::move(options)) {
    fleet.for_each([&](std::size_t, auto& client) {
      static_cast<void>(client.kept(set, "values", words_kept * sizeof(std::uint32_t)));
    });
  }
  [[nodiscard]] Handle memory(std::size_t rank) { return fleet[rank].kept_current(set, "values"); }
  void update(std::size_t rank, std::uint64_t epoch) {
    fleet[rank].begin_update(set, epoch);
    fleet[rank].write(fleet[rank].kept_next(set, "values"),
                      Bytes::copy_of(Values(words_kept, static_cast<std::uint32_t>(epoch))));
    fleet[rank].commit(set);
  }
  [[nodiscard]] bool holds(std::size_t rank, std::uint64_t epoch) {
    const KeptSet::Device& device = set.device(fleet.devices()[rank], {});
    fleet[rank].accept(*device.record.handles[0]);  // a refused commit poisons it
    fleet[rank].sync().get();
    return copy_of_epoch(device.read_record(), epoch, true).has_value();
  }
  /// The text of the refusal, with its causes; empty: none.
  [[nodiscard]] std::string refusal_of_begin(std::size_t rank, std::uint64_t epoch) {
    try {
      fleet[rank].begin_update(set, epoch);
      return {};
    } catch (const KeptError& error) {
      CHECK(error.kind() == KeptError::Kind::Order);
      return error_chain(std::current_exception());
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("Kept memory is zero at first, and its set is empty", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  CHECK(kept.values() == Values{0, 0, 0, 0});
  const KeptState state = kept.set.state();
  CHECK(state.kind == KeptState::Kind::Empty);
  CHECK_FALSE(state.supervised);
  CHECK(state.last_epoch == 0);
  const auto again = kept.client.kept(kept.set, "values", bytes_of_four);
  CHECK_FALSE(again.restored);
  CHECK(again.handle.binding().memory == kept.handle.binding().memory);
  CHECK(kept_error_of([&] { static_cast<void>(kept.client.kept(kept.set, "values", 8)); }) == KeptError::Kind::Size);
}

TEMPLATE_TEST_CASE("Memory reports and the limit of a device count kept memory", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  constexpr std::size_t limit = 256 * TestType::min_memory;
  constexpr std::size_t bytes = 100 * TestType::min_memory;
  OpenDevice<TestType> device({.memory = limit, .devices = 1});
  const auto& client = device.client();
  Handle filled = client.empty(200 * TestType::min_memory);
  filled = {};  // the pool holds free memory, which makes room
  client.sync().get();
  {
    KeptSet set("counted", {client.device_id()}, {.mode = KeptMode::Double});
    static_cast<void>(client.kept(set, "values", bytes));
    const MemoryReport report = client.memory_report();
    CHECK(report.usage.number_allocs == 3);  // the record and two copies
    CHECK(report.usage.bytes_in_use >= 2 * bytes + sizeof(KeptRecord));
    CHECK(report.usage.bytes_reserved == report.usage.bytes_in_use + report.usage.bytes_padding);
    CHECK(report.usage.peak_bytes_reserved >= report.usage.bytes_reserved);
    CHECK(report.by_label.at("kept memory") == report.usage.bytes_reserved);
    CHECK(client.memory_usage() == report.usage);
    static_cast<void>(client.empty(100 * TestType::min_memory));
    CHECK_THAT(failure_of(client), ContainsSubstring("kept memory"));  // as the biggest owner
    const auto more = [&] { static_cast<void>(client.kept(set, "more", 20 * TestType::min_memory)); };
    CHECK_NOTHROW(static_cast<void>(client.empty(20 * TestType::min_memory)));
    CHECK(failure_of(client).empty());
    CHECK_NOTHROW(more());
    const auto too_much = [&] { static_cast<void>(client.kept(set, "third", 20 * TestType::min_memory)); };
    CHECK(kept_error_of(too_much) == KeptError::Kind::Memory);
    CHECK(client.memory_usage().number_allocs == 5);  // half of the refused memory was freed again
  }
  client.sync().get();
  CHECK(client.memory_usage().number_allocs == 0);
  CHECK(client.memory_usage().bytes_reserved == 0);
}

TEMPLATE_TEST_CASE("An update marks the record on the device, in stream order", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  kept.client.begin_update(kept.set, 3);
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = true, .copy = 0, .epoch = 3});
  kept.client.write(kept.handle, Bytes::copy_of(Values{1, 2, 3, 4}));
  kept.client.commit(kept.set);
  const KeptRecord record = kept.record();
  CHECK(KeptMark::from(record.mark) == KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 3});
  CHECK(record.committed[0] == 3);
  CHECK(kept.values() == Values{1, 2, 3, 4});
}

TEMPLATE_TEST_CASE("Kept memory is written between begin_update and commit alone", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  kept.update(1, {1, 2, 3, 4});
  const auto refused = [&](const std::function<void()>& write) {
    write();
    CHECK_THAT(failure_of(kept.client), ContainsSubstring("outside of an update"));
    kept.client.accept(kept.handle);  // what was to be written is poisoned, and unchanged
    CHECK(kept.values() == Values{1, 2, 3, 4});
  };
  refused([&] { kept.client.write(kept.handle, Bytes::copy_of(Values{5, 6, 7, 8})); });
  refused([&] { kept.client.write(kept.handle.offset_start(8), Bytes::copy_of(Values{5, 6})); });
  refused([&] { kept.client.call(KernelArguments().with_buffer(kept.handle, Access::Write), [](auto&&...) {}); });
  kept.update(2, {5, 6, 7, 8});
  CHECK(kept.values() == Values{5, 6, 7, 8});
}

TEMPLATE_TEST_CASE("A process of a world continues behind all updates that any process has begun", "[kept]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  using Kind = KeptError::Kind;
  const KeptOffer offer = KeptOffer::from(kept.set.state());
  CHECK(offer.epochs == std::array<std::uint64_t, 2>{0, 0});
  // Another process has committed update 6 and begun update 7; this one holds neither.
  const KeptOffer other{.epochs = {6, 5}, .last_epoch = 7, .suspect = 1};
  const auto continue_at = [&](const KeptAgreement& agreement) { kept.set.continue_at(agreement); };
  CHECK(kept_error_of([&] { continue_at(KeptAgreement::from(std::vector{other})); }) == Kind::Order);
  continue_at(KeptAgreement::from(std::vector{offer, other}));
  const KeptState state = kept.set.state();
  CHECK(state.kind == KeptState::Kind::Empty);
  CHECK(state.last_epoch == 7);
  CHECK(state.suspect);
  CHECK(kept_error_of([&] { continue_at(KeptAgreement::from(std::vector{offer})); }) == Kind::Order);  // 0 is before 7
  CHECK(kept_error_of([&] { kept.client.begin_update(kept.set, 7); }) == Kind::Order);
  kept.client.begin_update(kept.set);
  CHECK(kept_error_of([&] { continue_at({.last_epoch = 20}); }) == Kind::Order);  // an update has been begun
  kept.client.write(kept.handle, Bytes::copy_of(Values{1, 2, 3, 4}));
  kept.client.commit(kept.set);
  CHECK(KeptMark::from(kept.record().mark).epoch == 8);
  CHECK(kept_error_of([&] { KeptSet("unopened", {kept.client.device_id()}).continue_at({}); }) == Kind::Order);
}

TEMPLATE_TEST_CASE("begin_update and commit out of order are refused", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  using Kind = KeptError::Kind;
  CHECK(kept_error_of([&] { kept.client.commit(kept.set); }) == Kind::Order);
  kept.client.begin_update(kept.set, 5);
  kept.client.commit(kept.set);
  CHECK(kept_error_of([&] { kept.client.begin_update(kept.set, 5); }) == Kind::Order);
  kept.client.begin_update(kept.set);
  kept.client.commit(kept.set);
  CHECK(KeptMark::from(kept.record().mark).epoch == 6);
  CHECK(kept_error_of([&] { KeptSet again("contract", {kept.client.device_id()}); }) == Kind::InUse);
  KeptSet other("other", {DeviceId{0, 77}});
  CHECK(kept_error_of([&] { static_cast<void>(kept.client.kept(other, "values", 4)); }) == Kind::Order);
  CHECK(kept_error_of([&] { static_cast<void>(other.state()); }) == Kind::Order);
  CHECK(kept_error_of([&] { KeptSet none("none", {}); }) == Kind::Order);
  kept.set.forget();
  CHECK(kept_error_of([&] { kept.client.begin_update(kept.set); }) == Kind::Order);
}

TEMPLATE_TEST_CASE("A commit with poisoned memory fails and marks nothing; the next whole update is committed",
                   "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  kept.update(1, {1, 2, 3, 4});
  kept.client.begin_update(kept.set, 2);
  kept.client.call(KernelArguments().with_buffer(kept.handle, Access::Write),
                   [](auto&&...) { throw std::runtime_error("planned failure"); });
  kept.client.commit(kept.set);
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("planned failure"));
  const KeptRecord record = kept.record();
  CHECK(KeptMark::from(record.mark) == KeptMark{.generation = 1, .updating = true, .copy = 0, .epoch = 2});
  kept.update(3, {9, 8, 7, 6});
  CHECK(kept.values() == Values{9, 8, 7, 6});
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 3});
}

TEMPLATE_TEST_CASE("With two copies the current one is left alone until the commit", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept({.mode = KeptMode::Double});
  kept.update(1, {1, 1, 1, 1});
  const Handle first = kept.client.kept_current(kept.set, "values");
  CHECK(kept.values(first) == Values{1, 1, 1, 1});
  kept.client.begin_update(kept.set, 2);
  const Handle second = kept.client.kept_next(kept.set, "values");
  CHECK_FALSE(second.binding().memory == first.binding().memory);
  kept.client.write(second, Bytes::copy_of(Values{2, 2, 2, 2}));
  CHECK(kept.values(first) == Values{1, 1, 1, 1});
  kept.client.commit(kept.set);
  CHECK(kept.values(kept.client.kept_current(kept.set, "values")) == Values{2, 2, 2, 2});
  const KeptRecord record = kept.record();
  CHECK((KeptMark::from(record.mark).epoch == 2 && !KeptMark::from(record.mark).updating));
  CHECK(copy_of_epoch(record, 1, true));
  CHECK(copy_of_epoch(record, 2, true));
}

TEMPLATE_TEST_CASE("With two copies an update that does not write all of its memory is not committed", "[kept]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept({.mode = KeptMode::Double});
  kept.update(1, {1, 1, 1, 1});
  kept.client.begin_update(kept.set, 2);
  kept.client.write(kept.client.kept_next(kept.set, "values").offset_start(4), Bytes::copy_of(Values{2, 2, 2}));
  kept.client.commit(kept.set);
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("has not written all of 'values'"));
  CHECK(KeptMark::from(kept.record().mark).updating);
}

TEMPLATE_TEST_CASE("With two copies the update after a refused commit leaves nothing whole until its own", "[kept]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept({.mode = KeptMode::Double});
  kept.update(1, {1, 1, 1, 1});
  kept.update(2, {2, 2, 2, 2});
  kept.client.begin_update(kept.set, 3);
  kept.client.write(kept.client.kept_next(kept.set, "values").offset_start(4), Bytes::copy_of(Values{3, 3, 3}));
  kept.client.commit(kept.set);
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("has not written all of 'values'"));
  CHECK(copy_of_epoch(kept.record(), 2, true));
  kept.client.begin_update(kept.set, 4);
  const auto is_whole_at = [&](std::uint64_t epoch) { return copy_of_epoch(kept.record(), epoch, true).has_value(); };
  for (const std::uint64_t epoch : {1U, 2U, 3U, 4U}) CHECK_FALSE(is_whole_at(epoch));
  kept.client.write(kept.client.kept_next(kept.set, "values"), Bytes::copy_of(Values{4, 4, 4, 4}));
  kept.client.commit(kept.set);
  CHECK(is_whole_at(4));
  for (const std::uint64_t epoch : {1U, 2U, 3U}) CHECK_FALSE(is_whole_at(epoch));
  CHECK(kept.values(kept.client.kept_current(kept.set, "values")) == Values{4, 4, 4, 4});
  kept.update(5, {5, 5, 5, 5});
  CHECK(is_whole_at(4));
  CHECK(is_whole_at(5));
}

TEMPLATE_TEST_CASE("A graph that writes kept memory is replayed in updates alone", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  kept.update(1, {1, 2, 3, 4});
  kept.client.begin_update(kept.set, 2);
  kept.client.graph_prepare();
  launch(kept.client, TestType::multiply_add(kept.handle, 1, 1));
  kept.client.graph_start_capture();
  launch(kept.client, TestType::multiply_add(kept.handle, 1, 1));
  const auto graph = kept.client.graph_stop_capture();
  kept.client.commit(kept.set);
  for (std::uint64_t epoch = 3; epoch < 8; ++epoch) {
    kept.client.begin_update(kept.set, epoch);
    graph.replay();
    kept.client.commit(kept.set);
  }
  CHECK(kept.values() == Values{7, 8, 9, 10});
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 7});
  graph.replay();
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("outside of an update"));
  kept.client.accept(kept.handle);
  CHECK(kept.values() == Values{7, 8, 9, 10});
}

TEMPLATE_TEST_CASE("Updates are not begun or committed in a capture", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  kept.client.graph_prepare();
  kept.client.graph_start_capture();
  kept.client.begin_update(kept.set, 1);
  CHECK_THROWS_AS(kept.client.graph_stop_capture(), ServerError);
  kept.client.commit(kept.set);
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("its begin has failed"));
  kept.update(2, {2, 2, 2, 2});
  kept.client.begin_update(kept.set, 3);
  kept.client.graph_prepare();
  kept.client.graph_start_capture();
  kept.client.commit(kept.set);
  CHECK_THROWS_AS(kept.client.graph_stop_capture(), ServerError);
  kept.client.write(kept.handle, Bytes::copy_of(Values{3, 3, 3, 3}));
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("outside of an update"));
  kept.client.accept(kept.handle);
  CHECK(kept.values() == Values{2, 2, 2, 2});
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = true, .copy = 0, .epoch = 3});
  kept.update(4, {4, 4, 4, 4});
  CHECK(kept.values() == Values{4, 4, 4, 4});
}

TEMPLATE_TEST_CASE("The next update replaces one that was not committed", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept;
  kept.client.begin_update(kept.set, 1);
  kept.client.write(kept.handle.offset_start(8), Bytes::copy_of(Values{7, 7}));
  kept.update(2, {1, 2, 3, 4});
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 2});
}

TEMPLATE_TEST_CASE("Every n-th commit makes a checksum of what its update has written, on the device", "[kept]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept({.checksum_every = 2});
  const auto sum_of = [](const Values& values) { return checksum_of(std::as_bytes(std::span(values))); };
  kept.update(3, {1, 2, 3, 4});
  CHECK(kept.checksum().epoch == 0);
  kept.update(7, {5, 6, 7, 8});
  CHECK(kept.checksum().name == checksum_name("values"));
  CHECK(kept.checksum().epoch == 7);
  CHECK(kept.checksum().sum == sum_of({5, 6, 7, 8}));
  kept.update(8, {9, 9, 9, 9});
  CHECK(kept.checksum().epoch == 7);
  kept.update(9, {1, 1, 1, 1});
  CHECK(kept.checksum().epoch == 9);
  CHECK(kept.checksum().sum == sum_of({1, 1, 1, 1}));
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 9});
}

TEMPLATE_TEST_CASE("A checksum is that of the memory alone, whatever its size", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  KeptSet set("sizes", {client.device_id()}, {.checksum_every = 1});
  std::vector<Handle> all;
  const std::vector<std::size_t> sizes{1, 15, 16, 17, 4096, 100'003};
  std::vector<std::vector<std::byte>> contents;
  for (const std::size_t size : sizes) {
    all.push_back(client.kept(set, std::to_string(size), size).handle);
    contents.emplace_back(size);
    for (std::size_t i = 0; i < size; ++i) contents.back()[i] = static_cast<std::byte>(i * 7 + size);
  }
  client.begin_update(set);
  for (std::size_t i = 0; i < all.size(); ++i) client.write(all[i], Bytes::from_vector(contents[i]));
  client.commit(set);
  client.sync().get();
  const auto bytes = client.read_one(*set.device(client.device_id(), {}).record.handles[0]);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    KeptChecksum found;
    const std::size_t number = set.device(client.device_id(), {}).memory.at(std::to_string(sizes[i])).checksums[0];
    std::memcpy(&found, bytes.span().data() + KeptRecordMemory::offset_of(number), sizeof(found));
    CAPTURE(sizes[i]);
    CHECK(found.sum == checksum_of(contents[i]));
  }
}

TEMPLATE_TEST_CASE("With two copies a checksum is that of the copy that was written", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept({.mode = KeptMode::Double, .checksum_every = 1});
  kept.update(1, {1, 1, 1, 1});
  kept.update(2, {2, 2, 2, 2});
  std::map<std::uint64_t, KeptChecksum> found;
  for (const std::size_t number : {std::size_t{0}, std::size_t{1}})
    found[kept.checksum(number).epoch] = kept.checksum(number);
  const auto sum_of = [](const Values& values) { return checksum_of(std::as_bytes(std::span(values))); };
  CHECK(found.at(1).sum == sum_of({1, 1, 1, 1}));
  CHECK(found.at(2).sum == sum_of({2, 2, 2, 2}));
  CHECK(found.at(1).name != found.at(2).name);
}

TEMPLATE_TEST_CASE("A commit with a checksum of poisoned memory fails and marks nothing", "[kept]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Kept<TestType> kept({.checksum_every = 1});
  kept.update(1, {1, 2, 3, 4});
  kept.client.begin_update(kept.set, 2);
  kept.client.call(KernelArguments().with_buffer(kept.handle, Access::Write),
                   [](auto&&...) { throw std::runtime_error("planned failure"); });
  kept.client.commit(kept.set);
  CHECK_THAT(failure_of(kept.client), ContainsSubstring("planned failure"));
  CHECK(KeptMark::from(kept.record().mark).updating);
  kept.update(3, {9, 8, 7, 6});
  CHECK(KeptMark::from(kept.record().mark) == KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 3});
  CHECK(kept.checksum().epoch == 3);
}

TEST_CASE("Memory of an earlier process is restored as of the epoch at which its set continues", "[kept]") {
  constexpr DeviceId first{host_device_type, 0};
  constexpr DeviceId second{host_device_type, 1};
  KeptSet set("by hand", {first, second}, {.mode = KeptMode::Double});
  KeptSet::Device& one = set.device(first, {});
  KeptSet::Device& two = set.device(second, {});
  one.found = {KeptMark{.generation = 1, .updating = false, .copy = 0, .epoch = 6}.word(), {6, 5}};
  two.found = {KeptMark{.generation = 1, .updating = true, .copy = 1, .epoch = 6}.word(), {4, 5}};
  const auto add = [&](const char* name, std::optional<std::uint64_t> since) {
    KeptSet::Memory memory;
    memory.adopted_since = since;
    set.add(one, name, std::move(memory), {});
  };
  const auto is_restored = [&](const char* name) { return set.is_restored(one, one.memory.at(name)); };
  add("old", 0);
  add("made after update 5", 5);
  set.opened(one, {});
  CHECK(is_restored("made after update 5"));  // as far as this device is known
  set.opened(two, {});
  REQUIRE(set.state().epoch == 5);
  add("opened later", 5);
  add("new", std::nullopt);
  CHECK(is_restored("old"));
  for (const char* const name : {"made after update 5", "opened later", "new"}) {
    CAPTURE(name);
    CHECK_FALSE(is_restored(name));
  }
}

TEST_CASE("Memory that a first update has torn is poisoned", "[kept]") {
  OpenDevice<HostBackend> device({.devices = 1});
  KeptSet set("by hand", {device.client().device_id()});
  KeptSet::Device& it = set.device(device.client().device_id(), {});
  std::vector<Handle> poisoned;
  it.poison = [&](const Handle& memory, const std::exception_ptr&) { poisoned.push_back(memory); };
  it.found.mark = KeptMark{.generation = 1, .updating = true, .copy = 0, .epoch = 1}.word();
  const auto add = [&](const char* name, std::optional<std::uint64_t> since) {
    KeptSet::Memory memory;
    memory.handles[0] = device.client().empty(4);
    memory.adopted_since = since;
    set.add(it, name, std::move(memory), {});
  };
  add("torn", 0);
  add("new", std::nullopt);
  set.opened(it, {});
  add("opened later", 0);
  CHECK(set.state().kind == KeptState::Kind::Torn);
  REQUIRE(poisoned.size() == 2);
  CHECK(poisoned[0].binding().memory == it.memory.at("torn").handles[0]->binding().memory);
  CHECK(poisoned[1].binding().memory == it.memory.at("opened later").handles[0]->binding().memory);
}

TEMPLATE_TEST_CASE("With two copies no device begins an update before all have made the last commit", "[kept]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  FleetSet<TestType> kept(fleet, {.mode = KeptMode::Double});
  kept.update(0, 1);
  typename TestType::Hold hold;
  hold.launch(fleet[1]);
  hold.wait_until_entered();
  kept.update(1, 1);  // behind the hold
  std::atomic<bool> opened{false};
  bool began_before = true;
  std::thread other([&] {
    kept.update(0, 2);
    began_before = !opened.load();
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  opened.store(true);
  hold.open();
  other.join();
  CHECK_FALSE(began_before);
  kept.update(1, 2);
  for (const std::size_t rank : {0U, 1U}) {
    CHECK(kept.holds(rank, 1));
    CHECK(kept.holds(rank, 2));
  }
}

TEMPLATE_TEST_CASE("An update is refused if another device does not commit the last one in time", "[kept]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  FleetSet<TestType> kept(fleet, {.mode = KeptMode::Double});
  kept.update(0, 1);
  {
    const SettingsScope settings{{"collectives.timeout", std::chrono::nanoseconds(std::chrono::milliseconds(50))}};
    CHECK_THAT(kept.refusal_of_begin(0, 2),
               ContainsSubstring(fleet.devices()[1].to_string() + " has not committed update 1 within 50ms"));
  }
  kept.update(1, 1);
  CHECK(kept.refusal_of_begin(0, 2).empty());
}

TEMPLATE_TEST_CASE("After a refused commit no device overwrites the last update that all hold", "[kept]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  FleetSet<TestType> kept(fleet, {.mode = KeptMode::Double});
  for (const std::size_t rank : {0U, 1U}) kept.update(rank, 1);
  kept.update(0, 2);
  fleet[1].begin_update(kept.set, 2);  // and writes nothing
  fleet[1].commit(kept.set);
  CHECK_THAT(kept.refusal_of_begin(0, 3),
             ContainsSubstring("the commit of update 2 on " + fleet.devices()[1].to_string() + " has failed") &&
                 ContainsSubstring("has not written all of 'values'"));
  CHECK_FALSE(kept.refusal_of_begin(1, 3).empty());
  CHECK_THAT(failure_of(fleet[1]), ContainsSubstring("has not written all of 'values'"));
  CHECK(failure_of(fleet[0]).empty());
  CHECK(kept.holds(0, 1));
  CHECK(kept.holds(1, 1));
}

TEMPLATE_TEST_CASE("Where a collective lies between two updates begin_update does not wait", "[kept]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  FleetSet<TestType> kept(fleet, {.mode = KeptMode::Double, .collective_between = true});
  for (std::uint64_t epoch = 1; epoch < 4; ++epoch) kept.update(0, epoch);
  CHECK(kept.holds(0, 3));
}

TEMPLATE_TEST_CASE("Collectives and transfers into kept memory are refused outside of an update", "[kept]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  FleetSet<TestType> kept(fleet);
  for (const std::size_t rank : {0U, 1U}) kept.update(rank, 1);
  const CommunicationId all(fleet.devices());
  const Handle source = to_device(fleet[1], Values{9, 9, 9, 9});
  const Handle own = to_device(fleet[0], Values{9, 9, 9, 9});
  const Handle result = fleet[1].empty(words_kept * sizeof(std::uint32_t));
  const bool transfers = GENERATE(false, true);
  const auto exchange = [&] {
    if (transfers) {
      fleet[1].send(source, ElementType::U32, fleet.devices()[0]);
      fleet[0].receive(kept.memory(0), ElementType::U32, fleet.devices()[1]);
    } else {
      fleet[1].all_reduce(source, result, ElementType::U32, all);
      fleet[0].all_reduce(own, kept.memory(0), ElementType::U32, all);
    }
  };
  exchange();
  CHECK_THAT(failure_of(fleet[0]), ContainsSubstring("outside of an update"));
  static_cast<void>(failure_of(fleet[1]));  // a rank has failed
  fleet[0].accept(kept.memory(0));
  CHECK(from_device<std::uint32_t>(fleet[0], kept.memory(0)) == Values(words_kept, 1));
  fleet[0].begin_update(kept.set, 2);
  exchange();
  fleet[0].commit(kept.set);
  CHECK(failure_of(fleet[0]).empty());
  CHECK(from_device<std::uint32_t>(fleet[0], kept.memory(0)) == Values(words_kept, transfers ? 9 : 18));
}
