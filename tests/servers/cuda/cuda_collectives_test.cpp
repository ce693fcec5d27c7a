// Collectives between GPUs by value: every operation with every type, small and large, aligned or not.

#include <coxswain/tests/servers/cuda/collective_values.hpp>
#include <coxswain/tests/servers/cuda/open_cuda.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <latch>
#include <limits>
#include <span>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// All ranks of all GPUs.
class Gpus {
 public:
  explicit Gpus(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      devices_.push_back({.type = cuda_device_type, .index = static_cast<std::uint16_t>(i)});
      clients_.push_back(CudaClient::load(devices_.back()));
    }
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  ~Gpus() {
    clients_.clear();
    shutdown_all();
  }

  [[nodiscard]] std::size_t size() const noexcept { return clients_.size(); }
  [[nodiscard]] const CudaClient& operator[](std::size_t rank) const { return clients_[rank]; }
  [[nodiscard]] const std::vector<DeviceId>& devices() const noexcept { return devices_; }

 private:
  std::vector<DeviceId> devices_;
  std::vector<CudaClient> clients_;
};

constexpr std::size_t most = 8;

}  // namespace

TEST_CASE("Every reduction of every type is right, small and large", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(std::min(enumerate_cuda_devices().size(), most));
  for (const auto& facts : element_types) {
    const ElementType type = facts.type;
    if (!can_reduce(type)) continue;
    for (const ReduceOperation operation :
         {ReduceOperation::Sum, ReduceOperation::Min, ReduceOperation::Max, ReduceOperation::Product})
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{13}, std::size_t{4097}, std::size_t{300'001}, std::size_t{9} << 20U}) {
        if (count > 1'000'000 && (operation != ReduceOperation::Sum || element_size(type) > 4)) continue;
        INFO(to_string(operation) << " of " << count << " " << to_string(type));
        const Bytes expected = bytes_of(type, reduced(operation, gpus.size(), count));
        std::vector<Handle> sources;
        std::vector<Handle> results;
        std::vector<Handle> in_place;
        for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
          sources.push_back(gpus[rank].create(bytes_of(type, values_of(rank, count))));
          results.push_back(gpus[rank].empty(sources[rank].size_in_used()));
          in_place.push_back(gpus[rank].create(bytes_of(type, values_of(rank, count))));
          gpus[rank].all_reduce(sources[rank], results[rank], type, gpus.devices(), operation);
          gpus[rank].all_reduce(in_place[rank], in_place[rank], type, gpus.devices(), operation);
        }
        for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
          REQUIRE(equal(gpus[rank], results[rank], expected));
          REQUIRE(equal(gpus[rank], in_place[rank], expected));
        }
      }
  }
}

TEST_CASE("The mean of floats is right on GPUs", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(2);
  for (const ElementType type : {ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64})
    for (const std::size_t count : {std::size_t{5}, std::size_t{70'000}, std::size_t{9} << 20U}) {
      INFO(count << " " << to_string(type));
      Values twice = values_of(0, count);
      for (unsigned& value : twice) value *= 2;
      const Bytes expected = bytes_of(type, values_of(0, count));  // of twice that, and nothing
      std::vector<Handle> data;
      data.push_back(gpus[0].create(bytes_of(type, twice)));
      data.push_back(gpus[1].create(bytes_of(type, Values(count))));
      for (std::size_t rank = 0; rank < 2; ++rank)
        gpus[rank].all_reduce(data[rank], data[rank], type, gpus.devices(), ReduceOperation::Mean);
      for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(equal(gpus[rank], data[rank], expected));
    }
}

TEST_CASE("Every other collective is right with every type", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(std::min(enumerate_cuda_devices().size(), most));
  const std::size_t ranks = gpus.size();
  const DeviceId root = gpus.devices()[1];
  for (const auto& facts : element_types) {
    const ElementType type = facts.type;
    for (const std::size_t block : {std::size_t{3}, std::size_t{4'000}, std::size_t{100'003}, std::size_t{1'100'003}}) {
      const std::size_t count = block * ranks;
      INFO(count << " " << to_string(type));
      struct Results {
        Handle broadcast, gather, exchange, reduce, scatter;
      };
      std::vector<Results> results(ranks);
      const bool reduces = can_reduce(type);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const CudaClient& client = gpus[rank];
        const Handle source = client.create(bytes_of(type, values_of(rank, count)));
        const std::size_t size = source.size_in_used();
        results[rank] = {client.empty(size), client.empty(size * ranks), client.empty(size), client.empty(size),
                         client.empty(size / ranks)};
        client.broadcast(source, results[rank].broadcast, type, gpus.devices(), root);
        client.all_gather(source, results[rank].gather, type, gpus.devices());
        client.all_to_all(source, results[rank].exchange, type, gpus.devices());
        if (!reduces) continue;
        client.reduce(source, results[rank].reduce, type, gpus.devices(), ReduceOperation::Sum, root);
        client.reduce_scatter(source, results[rank].scatter, type, gpus.devices());
      }
      Values gathered;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Values values = values_of(rank, count);
        gathered.insert(gathered.end(), values.begin(), values.end());
      }
      const Values sum = reduced(ReduceOperation::Sum, ranks, count);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        INFO("rank " << rank);
        Values exchanged;
        for (std::size_t from = 0; from < ranks; ++from) {
          const Values part = part_of(values_of(from, count), rank, ranks);
          exchanged.insert(exchanged.end(), part.begin(), part.end());
        }
        REQUIRE(equal(gpus[rank], results[rank].broadcast, bytes_of(type, values_of(1, count))));
        REQUIRE(equal(gpus[rank], results[rank].gather, bytes_of(type, gathered)));
        REQUIRE(equal(gpus[rank], results[rank].exchange, bytes_of(type, exchanged)));
        if (!reduces) continue;
        if (rank == 1) REQUIRE(equal(gpus[rank], results[rank].reduce, bytes_of(type, sum)));
        REQUIRE(equal(gpus[rank], results[rank].scatter, bytes_of(type, part_of(sum, rank, ranks))));
      }
    }
  }
}

TEST_CASE("Blocks are gathered, scattered and broadcast in place, wherever they begin, and nothing beside them",
          "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(std::min(enumerate_cuda_devices().size(), most));
  const std::size_t ranks = gpus.size();
  constexpr ElementType type = ElementType::U8;
  for (const std::size_t block : {std::size_t{1}, std::size_t{32}, std::size_t{1001}, std::size_t{70'001}})
    for (const std::size_t first : {std::size_t{0}, std::size_t{5}, std::size_t{16}}) {
      INFO(block << " from " << first);
      const BlocksInPlace blocks{.ranks = ranks, .first = first, .block = block};
      struct Data {
        Handle gather, scatter, broadcast;
      };
      std::vector<Data> data(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (Handle* handle : {&data[rank].gather, &data[rank].scatter, &data[rank].broadcast})
          *handle = gpus[rank].create(bytes_of(type, values_of(rank, blocks.count())));
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto all = [&](const Handle& handle) { return handle.offset_start(first).offset_end(7); };
        const auto own = [&](const Handle& handle) {
          return all(handle).offset_start(rank * block).offset_end((ranks - rank - 1) * block);
        };
        gpus[rank].all_gather(own(data[rank].gather), all(data[rank].gather), type, gpus.devices());
        gpus[rank].reduce_scatter(all(data[rank].scatter), own(data[rank].scatter), type, gpus.devices());
        gpus[rank].broadcast(all(data[rank].broadcast), all(data[rank].broadcast), type, gpus.devices(),
                             gpus.devices().back());
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto after = [&](CollectiveOperation operation) { return bytes_of(type, blocks.after(operation, rank)); };
        REQUIRE(equal(gpus[rank], data[rank].gather, after(CollectiveOperation::AllGather)));
        REQUIRE(equal(gpus[rank], data[rank].scatter, after(CollectiveOperation::ReduceScatter)));
        REQUIRE(equal(gpus[rank], data[rank].broadcast, after(CollectiveOperation::Broadcast)));
      }
    }
}

TEST_CASE("More collectives than a rank may be ahead can be asked for while their communicator is made", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(2);
  const std::size_t rounds = 3 * settings().get<std::uint64_t>("collectives.max_ahead");
  constexpr ElementType type = ElementType::U32;
  std::vector<Handle> data;
  for (std::size_t rank = 0; rank < 2; ++rank)
    data.push_back(gpus[rank].create(bytes_of(type, values_of(rank, rounds))));
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const Handle one = data[rank].offset_start(4 * round).offset_end(4 * (rounds - round - 1));
      gpus[rank].all_reduce(one, one, type, gpus.devices());
    }
  for (std::size_t rank = 0; rank < 2; ++rank)
    REQUIRE(equal(gpus[rank], data[rank], bytes_of(type, reduced(ReduceOperation::Sum, 2, rounds))));
}

TEST_CASE("Windows that begin and end anywhere are reduced, and nothing beside them", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(2);
  constexpr ElementType type = ElementType::U8;
  constexpr std::size_t count = 200'003;
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{150'001}})
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{9}, std::size_t{16}}) {
      INFO(size << " from " << first);
      Values expected = values_of(0, count);
      const Values sum = reduced(ReduceOperation::Sum, 2, count);
      std::vector<Handle> data;
      for (std::size_t rank = 0; rank < 2; ++rank)
        data.push_back(gpus[rank].create(bytes_of(type, values_of(rank, count))));
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const Handle window = data[rank].offset_start(first).offset_end(count - first - size);
        gpus[rank].all_reduce(window, window, type, gpus.devices());
      }
      for (std::size_t i = first; i < first + size; ++i) expected[i] = sum[i];
      REQUIRE(equal(gpus[0], data[0], bytes_of(type, expected)));
    }
}

TEST_CASE("Many small sums of changing sizes come out right, one behind the other", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(std::min(enumerate_cuda_devices().size(), most));
  constexpr std::size_t most_elements = 600'000;
  std::vector<Handle> sources;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank)
    sources.push_back(gpus[rank].create(bytes_of(ElementType::I32, values_of(rank, most_elements))));
  const Values sum = reduced(ReduceOperation::Sum, gpus.size(), most_elements);
  std::vector<std::vector<Handle>> results(gpus.size());
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 300; ++i) sizes.push_back(1 + (i * 7919 * (i % 5 == 0 ? 300 : 1)) % most_elements);
  for (const std::size_t size : sizes)
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      results[rank].push_back(gpus[rank].empty(size * 4));
      gpus[rank].all_reduce(sources[rank].offset_end((most_elements - size) * 4), results[rank].back(),
                            ElementType::I32, gpus.devices());
    }
  for (std::size_t rank = 0; rank < gpus.size(); ++rank)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      INFO("rank " << rank << ", sum " << i << " of " << sizes[i]);
      REQUIRE(equal(gpus[rank], results[rank][i],
                    bytes_of(ElementType::I32, {sum.begin(), sum.begin() + static_cast<std::ptrdiff_t>(sizes[i])})));
    }
}

// What is sent between two sums of the sender, and received between those of the receiver, is legal: if the sender's
// sums were over for others only together, each rank would wait for the other.
TEST_CASE("A sum is over for what follows it, also where the driver was given the next one with it", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  set_settings({{"collectives.timeout", std::chrono::nanoseconds(std::chrono::seconds(10))}});
  {
    const Gpus gpus(2);
    const CommunicationId both(gpus.devices());
    constexpr std::size_t count = 1000;
    constexpr ElementType type = ElementType::U32;
    const auto pass = [&](std::size_t rank) {
      DeviceHandle<CudaServer>::get(gpus.devices()[rank]).submit_blocking([](CudaServer&) {});
    };
    for (int round = 0; round < 50; ++round) {
      std::vector<Handle> first;
      std::vector<Handle> second;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        first.push_back(gpus[rank].create(bytes_of(type, Values(count, 1))));
        second.push_back(gpus[rank].create(bytes_of(type, Values(count, 1))));
      }
      gpus[0].all_reduce(first[0], first[0], type, both);
      gpus[0].all_reduce(second[0], second[0], type, both);
      gpus[0].send(first[0], type, gpus.devices()[1]);
      pass(0);
      // Device 0 finds all of its turns at a time.
      std::latch asked(1);
      DeviceHandle<CudaServer>::get(gpus.devices()[0]).submit([&asked](CudaServer&) { asked.wait(); });
      gpus[1].all_reduce(first[1], first[1], type, both);
      gpus[1].receive(second[1], type, gpus.devices()[0]);
      gpus[1].all_reduce(second[1], second[1], type, both);
      pass(1);
      asked.count_down();
      INFO("round " << round);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        REQUIRE(equal(gpus[rank], first[rank], bytes_of(type, Values(count, 2))));
        REQUIRE(equal(gpus[rank], second[rank], bytes_of(type, Values(count, 3))));
      }
    }
  }
  reset_settings({"collectives.timeout"});
}

TEST_CASE("The mean of integers is exact on GPUs, also where their sum is no such integer", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(2);
  const auto check = [&]<class T>(ElementType type, T) {
    const T high = std::numeric_limits<T>::max();
    const T low = std::numeric_limits<T>::min();
    for (const std::size_t count : {std::size_t{6}, std::size_t{30'000}, std::size_t{3} << 20U}) {
      INFO(count << " " << to_string(type));
      std::vector<T> first(count);
      std::vector<T> second(count);
      std::vector<T> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        first[i] = i % 3 == 0 ? high : i % 3 == 1 ? low : static_cast<T>(i % 100);
        second[i] = i % 3 == 0 ? static_cast<T>(high - 2) : i % 3 == 1 ? static_cast<T>(low + 4) : T{3};
        expected[i] = i % 3 == 0   ? static_cast<T>(high - 1)
                      : i % 3 == 1 ? static_cast<T>(low + 2)
                                   : static_cast<T>((i % 100 + 3) / 2);
      }
      const auto bytes = [](const std::vector<T>& values) { return Bytes::copy_of(std::as_bytes(std::span(values))); };
      const std::vector<Handle> data{gpus[0].create(bytes(first)), gpus[1].create(bytes(second))};
      for (std::size_t rank = 0; rank < 2; ++rank)
        gpus[rank].all_reduce(data[rank], data[rank], type, gpus.devices(), ReduceOperation::Mean);
      for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(equal(gpus[rank], data[rank], bytes(expected)));
    }
  };
  check(ElementType::I8, std::int8_t{});
  check(ElementType::U16, std::uint16_t{});
  check(ElementType::I32, std::int32_t{});
  check(ElementType::I64, std::int64_t{});
  check(ElementType::U64, std::uint64_t{});
}

TEST_CASE("A group of tensors of any sizes is right, by one kernel, by several, or by NCCL", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  const Gpus gpus(std::min(enumerate_cuda_devices().size(), most));
  struct Tensors {
    ElementType type;
    std::vector<std::size_t> counts;
  };
  std::vector<std::size_t> many;
  for (std::size_t i = 0; i < 100; ++i) many.push_back(1 + i * i * 7 % 5003);
  for (const auto& [type, counts] :
       {Tensors{ElementType::F32, many}, Tensors{ElementType::U8, {1, 15, 16, 17, 4099}},
        Tensors{ElementType::I16, {3, 5'000'000, 7}}, Tensors{ElementType::F32, {5'000'000, 1, 70'000}}}) {
    INFO(counts.size() << " tensors of " << to_string(type));
    std::vector<std::vector<Handle>> results(gpus.size());
    for (std::size_t rank = 0; rank < gpus.size(); ++rank)
      for (const std::size_t count : counts)
        results[rank].push_back(gpus[rank].create(bytes_of(type, values_of(rank, count))));
    for (std::size_t rank = 0; rank < gpus.size(); ++rank)
      gpus[rank].collective_group(gpus.devices(), [&](CollectiveGroup& group) {
        for (const Handle& tensor : results[rank]) group.all_reduce(tensor, tensor, type);
      });
    for (std::size_t rank = 0; rank < gpus.size(); ++rank)
      for (std::size_t i = 0; i < counts.size(); ++i)
        REQUIRE(
            equal(gpus[rank], results[rank][i], bytes_of(type, reduced(ReduceOperation::Sum, gpus.size(), counts[i]))));
  }
}

TEST_CASE("What nobody reduces is refused for all ranks, and the next sum is done", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  set_settings({{"collectives.peer_memory", false}});
  const Gpus gpus(2);
  std::vector<Handle> data;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    data.push_back(gpus[rank].create(bytes_of(ElementType::I16, values_of(rank, 10))));
    gpus[rank].all_reduce(data[rank], data[rank], ElementType::I16, gpus.devices());
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    gpus[rank].sync_collective();
    try {
      gpus[rank].sync().get();
      FAIL("16-bit integers were reduced");
    } catch (const ServerError& error) {
      REQUIRE(error.errors().size() == 1);
      CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("NCCL does not do this reduction"));
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    gpus[rank].accept(data[rank]);  // it is as it was
    gpus[rank].all_reduce(data[rank], data[rank], ElementType::U8, gpus.devices(), ReduceOperation::Max);
  }
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK_NOTHROW(gpus[rank].read_one(data[rank]));
  reset_settings({"collectives.peer_memory"});
}
