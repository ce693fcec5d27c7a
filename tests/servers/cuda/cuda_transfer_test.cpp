#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/servers/cuda/open_cuda.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

TEST_CASE("Memory goes from one GPU to another, and what is written to either later is not in it", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  OpenCuda first(0);
  OpenCuda second(1);
  for (const std::size_t count : {1U, 1000U, 100'000U, 5'000'000U}) {
    const Handle source = first.client().create(Bytes::copy_of(counting(count, 3)));
    const Handle received = first.client().to_client(source, second.client(), ElementType::U32);
    first.client().write(source, Bytes::copy_of(counting(count, 9)));
    CHECK(numbers(second.client().read_one(received)) == counting(count, 3));
    CHECK(numbers(first.client().read_one(source)) == counting(count, 9));
  }
}

TEST_CASE("A padded tensor goes to another GPU, from dense memory and to it", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  OpenCuda first(0);
  OpenCuda second(1);
  const Shape shape{300, 77};
  const auto values = counting(300 * 77);
  const MemoryLayout padded = first.client().create_tensor(Bytes::copy_of(values), shape, 4);
  const MemoryLayout received =
      first.client().to_client_tensor(padded.copy_descriptor(shape, 4), second.client(), ElementType::U32);
  CHECK(numbers(second.client().read_one_tensor(received.copy_descriptor(shape, 4))) == values);
  const Handle dense = first.client().create(Bytes::copy_of(values));
  const MemoryLayout from_dense =
      first.client().to_client_tensor(dense.copy_descriptor(shape, {77, 1}, 4), second.client(), ElementType::U32);
  CHECK(numbers(second.client().read_one_tensor(from_dense.copy_descriptor(shape, 4))) == values);
}

TEST_CASE("L10 H4: GPUs that send to each other at the same time do not wait for each other", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  OpenCuda first(0);
  OpenCuda second(1);
  const auto send = [](const CudaClient& from, const CudaClient& to, std::uint32_t begin) {
    for (std::uint32_t round = 0; round < 100; ++round) {
      const auto values = counting(50'000, begin + round);
      const Handle received = from.to_client(from.create(Bytes::copy_of(values)), to, ElementType::U32);
      if (numbers(to.read_one(received)) != values) return false;
    }
    return true;
  };
  bool there = false;
  std::thread sender([&] { there = send(first.client(), second.client(), 1); });
  const bool back = send(second.client(), first.client(), 1'000'000);
  sender.join();
  CHECK(there);
  CHECK(back);
}

TEST_CASE("L10: StreamIds that share a stream of the driver do not wait for each other's transfers", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  set_settings({{"cuda.streams", std::uint64_t{1}}});
  {
    OpenCuda first(0);
    OpenCuda second(1);
    const CudaClient first_other = first.on_new_stream();
    const CudaClient second_other = second.on_new_stream();
    const auto values = counting(1000);
    const auto more = counting(1000, 7);
    const Handle sent = first.client().create(Bytes::copy_of(values));
    const Handle returned = second.client().create(Bytes::copy_of(more));
    const Handle received = second.client().empty(4000);
    const Handle received_back = first.client().empty(4000);
    // On each device the first stream waits for what the second stream of the other one does later.
    first.client().receive(received_back, ElementType::U32, second.device());
    first.client().write(received_back.offset_start(3996), Bytes::copy_of(std::vector<std::uint32_t>{1}));
    second.client().receive(received, ElementType::U32, first.device());
    second.client().write(received.offset_start(3996), Bytes::copy_of(std::vector<std::uint32_t>{2}));
    first_other.send(sent, ElementType::U32, second.device());
    second_other.send(returned, ElementType::U32, first.device());
    auto expected = values;
    expected.back() = 2;
    CHECK(numbers(second.client().read_one(received)) == expected);
    expected = more;
    expected.back() = 1;
    CHECK(numbers(first.client().read_one(received_back)) == expected);
    first_other.sync().get();
    second_other.sync().get();
  }
  reset_settings({"cuda.streams"});
}

TEST_CASE("L11: memory that is sent and dropped is nobody else's before it has arrived", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  OpenCuda first(0);
  OpenCuda second(1);
  std::vector<Handle> received;
  for (std::uint32_t round = 0; round < 50; ++round) {
    received.push_back(first.client().to_client(first.client().create(Bytes::copy_of(counting(20'000, round))),
                                                second.client(), ElementType::U32));
    static_cast<void>(first.client().create(Bytes::copy_of(counting(20'000, 77))));  // may get the same memory
  }
  for (std::uint32_t round = 0; round < 50; ++round)
    REQUIRE(numbers(second.client().read_one(received[round])) == counting(20'000, round));
}

TEST_CASE("L12: what could not be sent fails on both GPUs, and the next transfer is as good as any", "[gpu]") {
  COX_REQUIRE_GPUS(2U);
  OpenCuda first(0);
  OpenCuda second(1);
  const Handle impossible = first.client().empty(std::size_t{1} << 50U);
  CHECK_THROWS_AS(first.client().sync().get(), ServerError);
  const Handle received = first.client().to_client(impossible.offset_end((std::size_t{1} << 50U) - 4096),
                                                   second.client(), ElementType::U32);
  CHECK_THROWS_AS(second.client().read_one(received), ServerError);
  CHECK_THROWS_AS(first.client().sync().get(), ServerError);
  const auto values = counting(1000);
  const Handle sound = first.client().create(Bytes::copy_of(values));
  CHECK(numbers(second.client().read_one(first.client().to_client(sound, second.client(), ElementType::U32))) ==
        values);
}
