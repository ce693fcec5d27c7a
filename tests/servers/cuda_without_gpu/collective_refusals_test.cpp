// Reductions that neither NCCL nor kernels in peer memory do: all ranks get the reason, and the communicator stays
// usable.
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/settings_scope.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/error/launch_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using ErrorKind = CollectiveError::Kind;

/// The clients of GPUs from 0 on, each with eight words of memory, all of them 0.
class RefusedRanks {
 public:
  explicit RefusedRanks(std::uint16_t count) : devices_(first_devices(count)) {
    for (std::uint16_t rank = 0; rank < count; ++rank) {
      clients_.push_back(FakeGpus::client(rank));
      data_.push_back(clients_.back().create(Bytes::copy_of(std::vector<std::uint32_t>(8))));
    }
    for (const CudaClient& client : clients_) client.sync().get();
  }

  [[nodiscard]] const CommunicationId& devices() const { return devices_; }
  [[nodiscard]] const CudaClient& front() const { return clients_.front(); }

  void all_reduce(ElementType type, ReduceOperation operation = ReduceOperation::Sum) const {
    for (std::size_t rank = 0; rank < clients_.size(); ++rank)
      clients_[rank].all_reduce(data_[rank], data_[rank], type, devices_, operation);
  }
  /// One group: an all_reduce and a broadcast.
  void reduce_and_broadcast(ElementType type) const {
    for (std::size_t rank = 0; rank < clients_.size(); ++rank)
      clients_[rank].collective_group(devices_, [&](CollectiveGroup& group) {
        const Handle half = data_[rank].offset_end(16);
        const Handle other = data_[rank].offset_start(16);
        group.all_reduce(half, half, type);
        group.broadcast(other, other, type, FakeGpus::device(0));
      });
  }

  /// The error of each rank's operations so far, as its stream reports it; null if they have succeeded.
  [[nodiscard]] std::vector<std::exception_ptr> errors() const {
    std::vector<std::exception_ptr> found;
    for (const CudaClient& client : clients_) {
      client.sync_collective();
      auto done = client.sync();
      if (!done.wait_for(std::chrono::seconds(30))) throw std::runtime_error("the operations of a rank do not end");
      try {
        done.get();
        found.emplace_back();
      } catch (...) {
        found.push_back(std::current_exception());
      }
    }
    return found;
  }
  void accept() const {
    for (std::size_t rank = 0; rank < clients_.size(); ++rank) clients_[rank].accept(data_[rank]);
  }
  [[nodiscard]] bool are_zero() const {
    return std::ranges::all_of(clients_, [&](const CudaClient& client) {
      const Handle& memory = data_[static_cast<std::size_t>(&client - clients_.data())];
      return client.read_one(memory).to_vector<std::uint32_t>() == std::vector<std::uint32_t>(8);
    });
  }

 private:
  [[nodiscard]] static std::vector<DeviceId> first_devices(std::uint16_t count) {
    std::vector<DeviceId> devices;
    for (std::uint16_t rank = 0; rank < count; ++rank) devices.push_back(FakeGpus::device(rank));
    return devices;
  }

  CommunicationId devices_;
  std::vector<CudaClient> clients_;
  std::vector<Handle> data_;
};

/// The error Unsupported of a rank that could not take part; null if `error` is another one.
const CollectiveError* refusal_in(const std::exception_ptr& error) {
  const auto* const failed = find_cause<CollectiveError>(error);
  if (failed == nullptr || failed->kind() != ErrorKind::RankFailed) return nullptr;
  const auto* const refused = find_cause<CollectiveError>(failed->cause());
  return refused != nullptr && refused->kind() == ErrorKind::Unsupported ? refused : nullptr;
}

void require_refused(const RefusedRanks& ranks, const std::string& why) {
  for (const std::exception_ptr& error : ranks.errors()) {
    const CollectiveError* const refused = refusal_in(error);
    REQUIRE(refused != nullptr);
    CHECK_THAT(refused->what(), ContainsSubstring("NCCL does not reduce in the order of ranks"));
    CHECK_THAT(refused->what(), ContainsSubstring("setting collectives.reproducible"));
    CHECK_THAT(refused->what(), ContainsSubstring(why));
  }
}

/// The communicator does an operation that is not refused.
void require_usable(const RefusedRanks& ranks) {
  ranks.accept();
  ranks.all_reduce(ElementType::I32, ReduceOperation::Max);
  for (const std::exception_ptr& error : ranks.errors()) REQUIRE(error == nullptr);
  CHECK(ranks.are_zero());
}

}  // namespace

TEST_CASE("With collectives.reproducible, what only NCCL could reduce is refused with its reason, the rest is done") {
  FakeGpus gpus;
  const std::size_t before = FakeGpus::nccl_creations();
  bool peer_memory = true;
  std::uint16_t count = 2;
  ElementType type = ElementType::F32;
  bool in_mixed_group = false;
  std::string why;
  SECTION("peer memory is off") {
    peer_memory = false;
    why = "the setting collectives.peer_memory is false";
  }
  SECTION("the GPUs have no access to each other") {
    gpus.fake.has_peer_access = false;
    why = "not all of these GPUs can access each other's memory";
  }
  SECTION("more GPUs than the kernels support") {
    gpus.fake.devices = count = 9;
    why = "at most 8 GPUs";
  }
  SECTION("elements without kernels") {
    type = ElementType::F8E4M3;
    why = "no kernels in peer memory for elements of type f8e4m3";
  }
  SECTION("a group with another operation") {
    in_mixed_group = true;
    why = "broadcast";
  }
  {
    const SettingsScope settings({{"collectives.reproducible", true}, {"collectives.peer_memory", peer_memory}});
    const RefusedRanks ranks(count);
    if (in_mixed_group) {
      ranks.reduce_and_broadcast(type);
    } else {
      ranks.all_reduce(type);
    }
    require_refused(ranks, why);
    CHECK(FakeGpus::nccl_creations() == before);  // a refusal does not wait for it
    require_usable(ranks);
  }
  CHECK(gpus.fake.misuse.empty());
}

TEST_CASE("With collectives.reproducible, kernels that cannot be loaded are the cause of the refusal") {
  FakeGpus gpus;
  const SettingsScope settings({{"collectives.reproducible", true}, {"collectives.peer_memory", true}});
  const RefusedRanks ranks(2);
  const std::string code = "f64_product";  // of no other test: kernels stay loaded
  std::vector<std::map<std::string, FakeCuda::KernelType>::node_type> missing;
  {
    const std::lock_guard lock(gpus.fake.mutex);
    for (auto next = gpus.fake.kernels.begin(); next != gpus.fake.kernels.end();) {
      const auto at = next++;
      if (at->first.ends_with(code)) missing.push_back(gpus.fake.kernels.extract(at));
    }
  }
  REQUIRE_FALSE(missing.empty());
  for (int times = 0; times < 2; ++times) {
    ranks.all_reduce(ElementType::F64, ReduceOperation::Product);
    for (const std::exception_ptr& error : ranks.errors()) {
      const CollectiveError* const refused = refusal_in(error);
      REQUIRE(refused != nullptr);
      CHECK_THAT(refused->what(), ContainsSubstring(code));
      CHECK(find_cause<LaunchError>(error) != nullptr);
    }
    require_usable(ranks);
  }
  const std::lock_guard lock(gpus.fake.mutex);
  for (auto& kernel : missing) gpus.fake.kernels.insert(std::move(kernel));
}

TEST_CASE("With collectives.reproducible, a lack of memory for the kernels is the cause of the refusal") {
  FakeGpus gpus;
  const SettingsScope settings({{"collectives.reproducible", true}, {"collectives.peer_memory", true}});
  const RefusedRanks ranks(2);
  {
    const std::lock_guard lock(gpus.fake.mutex);
    gpus.fake.largest_piece = 0;
  }
  ranks.all_reduce(ElementType::F32);
  for (const std::exception_ptr& error : ranks.errors()) {
    const CollectiveError* const refused = refusal_in(error);
    REQUIRE(refused != nullptr);
    CHECK_THAT(refused->what(), ContainsSubstring("no memory for kernels in peer memory"));
    CHECK(find_cause<std::bad_alloc>(error) != nullptr);
  }
}

TEST_CASE("If the devices of a communicator cannot be opened, all ranks get the cause, and it can be renewed") {
  FakeGpus::find();
  const SettingsScope settings({{"collectives.reproducible", true},
                                {"collectives.peer_memory", true},
                                {"collectives.timeout", std::chrono::nanoseconds(std::chrono::seconds(5))}});
  const ElementType type = GENERATE(ElementType::F32, ElementType::I16);
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    const RefusedRanks ranks(2);
    gpus.fail_after(calls);
    ranks.all_reduce(type);
    const std::vector<std::exception_ptr> errors = ranks.errors();
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    const bool is_refused = refusal_in(errors.front()) != nullptr;
    for (const std::exception_ptr& error : errors) {
      if (error == nullptr) continue;
      REQUIRE(failed != nullptr);
      REQUIRE((refusal_in(error) != nullptr) == is_refused);
      const std::string text = describe(error);
      REQUIRE_THAT(text, is_refused ? ContainsSubstring("no memory for kernels in peer memory")
                                    : ContainsSubstring("CUDA_ERROR_OUT_OF_MEMORY"));
    }
    if (failed == nullptr) break;
    // A refusal leaves the communicator as it is.
    if (is_refused) ranks.front().abort_collective(ranks.devices(), errors.front());
    ranks.front().ensure_init_collective(ranks.devices());
    ranks.accept();
    ranks.all_reduce(type);
    for (const std::exception_ptr& error : ranks.errors()) REQUIRE(error == nullptr);
    REQUIRE(ranks.are_zero());
  }
}
