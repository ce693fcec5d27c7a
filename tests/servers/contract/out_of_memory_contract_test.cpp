#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::Handle;
using cox::IoError;
using cox::ServerError;

namespace {

/// Some 256 granules: what a device is filled with has to be written, by the gigabyte where a granule is 2 MiB.
template <class Backend>
constexpr std::size_t all_memory = Backend::fine_memory / 4;
template <class Backend>
constexpr std::size_t part = all_memory<Backend> / 64;
template <class Backend>
constexpr DeviceOptions four_threads{.memory = all_memory<Backend>, .threads = 4};

/// What the stream failed with, if it did, and nothing else than allocations.
template <class Client>
std::optional<IoError> allocation_failure(const Client& client) {
  try {
    client.sync().get();
  } catch (const ServerError& error) {
    try {
      std::rethrow_exception(error.cause());
    } catch (const IoError& cause) {
      return cause;
    }
  }
  return std::nullopt;
}

// Byte by byte the same, so that even the sanitizers look at a full device quickly.
template <class Client>
void fill(const Client& client, const Handle& data, std::size_t value) {
  Bytes content = Bytes::uninitialized(data.size_in_used());
  std::memset(content.data(), static_cast<int>(value % 251), content.size());
  client.write(data, std::move(content));
}

template <class Client>
bool is_filled(const Client& client, const Handle& data, std::size_t value) {
  const Bytes found = client.read_one(data);
  return !found.empty() && found.data()[0] == static_cast<std::byte>(value % 251) &&
         std::memcmp(found.data(), found.data() + 1, found.size() - 1) == 0;
}

/// Buffers of `least` to twice as many bytes until 99 % of the device are in use, each filled with its number.
template <class Backend>
std::vector<Handle> fill_device(const typename Backend::Client& client, std::size_t least) {
  std::mt19937_64 random(1);
  std::vector<Handle> buffers;
  for (std::size_t used = 0; used < all_memory<Backend> / 100 * 99;) {
    const std::size_t wanted = (least + random() % least) / 512 * 512;
    const std::size_t size = std::min(wanted, all_memory<Backend> / 1000 * 995 / 512 * 512 - used);
    buffers.push_back(client.empty(size));
    fill(client, buffers.back(), buffers.size());
    used += size;
  }
  return buffers;
}

/// One buffer of all there is; its ends are used.
template <class Backend>
void require_whole_device(const typename Backend::Client& client) {
  const Handle all = client.empty(all_memory<Backend>);
  const Handle first = all.offset_end(all_memory<Backend> - 4096);
  const Handle last = all.offset_start(all_memory<Backend> - 4096);
  fill(client, first, 3);
  fill(client, last, 4);
  REQUIRE(is_filled(client, first, 3));
  REQUIRE(is_filled(client, last, 4));
}

}  // namespace

TEMPLATE_TEST_CASE("L12: a device that is full says what was asked for, what there is, and who has it", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(four_threads<TestType>);
  const auto& client = device.client();
  const std::vector<Handle> buffers = fill_device<TestType>(client, part<TestType> / 2);
  REQUIRE_FALSE(allocation_failure(client));
  REQUIRE(client.memory_usage().bytes_in_use >= all_memory<TestType> / 100 * 99);

  const Handle failed = client.empty(2 * part<TestType>);
  const Handle later = client.empty(1024);  // there is room for that
  const auto error = allocation_failure(client);
  REQUIRE(error);
  REQUIRE(error->kind() == IoError::Kind::OutOfMemory);
  REQUIRE(error->sizes()->requested == 2 * part<TestType>);
  REQUIRE(error->sizes()->capacity == all_memory<TestType>);
  REQUIRE(error->sizes()->in_use >= all_memory<TestType> / 100 * 99);
  INFO(error->what());
  const cox::MemoryReport report = client.memory_report();
  REQUIRE(mentions(error->what(),
                   {device.name(), "stream", std::to_string(2 * part<TestType>) + " B",
                    std::to_string(all_memory<TestType>) + " B", "in use", "reserved", "peak", "the largest piece",
                    "fragmentation", "biggest owners: out_of_memory_contract_test.cpp:"}));
  REQUIRE(report.by_label.size() == 2);

  // The handle says so, on any stream; everybody else is served.
  const auto other = device.on_new_stream();
  REQUIRE(kind_of<IoError>([&] { (void)client.read_one(failed); }) == IoError::Kind::AllocationFailed);
  REQUIRE(mentions(message_of([&] { (void)other.read_one(failed); }),
                   {"its allocation failed", std::to_string(2 * part<TestType>) + " B"}));
  fill(other, later, 5);
  REQUIRE(is_filled(client, later, 5));
  for (std::size_t i = 0; i < buffers.size(); ++i) REQUIRE(is_filled(i % 2 == 0 ? client : other, buffers[i], i + 1));
}

TEMPLATE_TEST_CASE("One tensor of 90 % of the free memory is had, however many pieces that is in", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(four_threads<TestType>);
  const auto& client = device.client();
  // Free pieces of some 25 granules of 64 KiB: what is less than a granule at their ends cannot be moved together.
  std::vector<Handle> buffers = fill_device<TestType>(client, TestType::fine_memory / 64);
  REQUIRE(allocation_failure(client) == std::nullopt);
  // Every other buffer goes: a free piece beside each that stays.
  std::size_t kept_bytes = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (i % 2 == 0) {
      buffers[i] = {};
    } else {
      kept_bytes += buffers[i].size();
    }
  }
  const std::size_t size = (all_memory<TestType> - kept_bytes) / 10 * 9 / 4096 * 4096;
  for (int round = 0; round < 3; ++round) {
    const auto tensor = client.empty_tensor({size / 4096, 1024}, 4);
    REQUIRE(tensor.memory.size() == size);
    fill(client, tensor.memory, 77);
    REQUIRE(is_filled(client, tensor.memory, 77));
    REQUIRE(client.memory_usage().bytes_in_use == kept_bytes + size);
  }
  for (std::size_t i = 1; i < buffers.size(); i += 2) REQUIRE(is_filled(client, buffers[i], i + 1));
}

TEMPLATE_TEST_CASE("A device is used again after it was full, as often as one likes", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(four_threads<TestType>);
  const auto& client = device.client();
  for (int round = 0; round < 5; ++round) {
    std::vector<Handle> buffers;
    std::optional<IoError> error;
    while (!error) {
      buffers.push_back(client.empty(3 * part<TestType> + static_cast<std::size_t>(round) * 4096));
      error = allocation_failure(client);
    }
    REQUIRE(error->kind() == IoError::Kind::OutOfMemory);
    REQUIRE(buffers.size() >= 17);
    buffers.clear();
    REQUIRE_FALSE(allocation_failure(client));
    REQUIRE(client.memory_usage().number_allocs == 0);
    require_whole_device<TestType>(client);
  }
}

TEMPLATE_TEST_CASE("8 threads that fill one device together fail alone, and lose nothing", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(four_threads<TestType>);
  std::atomic<int> refused{0};
  std::atomic<int> wrong{0};
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const auto client = device.on_new_stream();
      std::mt19937_64 random(t);
      std::vector<std::pair<Handle, std::uint32_t>> mine;
      for (std::uint32_t i = 0; i < 100; ++i) {
        Handle made = client.empty(4 * (1 + random() % (part<TestType> / 2)));
        if (const auto error = allocation_failure(client)) {
          ++refused;
          if (error->kind() != IoError::Kind::OutOfMemory || !mentions(error->what(), {"biggest owners"})) ++wrong;
          if (kind_of<IoError>([&] { (void)client.read_one(made); }) != IoError::Kind::AllocationFailed) ++wrong;
          if (mine.size() > 2) mine.resize(mine.size() / 2);
          continue;
        }
        const std::uint32_t value = t * 1000 + i;
        fill(client, made, value);
        mine.emplace_back(std::move(made), value);
      }
      for (const auto& [data, value] : mine) ++(is_filled(client, data, value) ? right : wrong);
    });
  for (auto& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  REQUIRE(right > 0);
  REQUIRE(refused > 0);
  REQUIRE_FALSE(allocation_failure(device.client()));
  REQUIRE(device.client().memory_usage().number_allocs == 0);
  require_whole_device<TestType>(device.client());
}
