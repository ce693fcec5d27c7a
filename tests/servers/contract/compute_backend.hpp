#pragma once

// What the contract of compute servers runs on: a device of one kind, open for one test, and a vocabulary of kernels
// that every kind has. A test is written once:
//
//     TEMPLATE_TEST_CASE("What is uploaded comes back", "", COX_BACKENDS) {
//       COX_REQUIRE_DEVICES(TestType, 1);
//       OpenDevice<TestType> device;
//       ...
//
// Its titles end in " - HostBackend" and " - CudaBackend"; ctest gives the latter the label gpu.

#include <coxswain/tests/servers/contract/host_backend.hpp>
#include <coxswain/tests/servers/contract/open_device.hpp>
#include <coxswain/tests/support/catch.hpp>

#if COX_CUDA_TESTS
#include <coxswain/tests/servers/contract/cuda_backend.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

/// The implementations of the contract.
#if COX_CUDA_TESTS
#define COX_BACKENDS HostBackend, CudaBackend
#else
#define COX_BACKENDS HostBackend
#endif

/// Ends the test, saying so, where there are fewer devices of that kind.
#define COX_REQUIRE_DEVICES(Backend, count)                                              \
  if (const std::string cox_lack = Backend::missing_devices(count); !cox_lack.empty()) { \
    WARN("skipped: needs " << cox_lack);                                                 \
    return;                                                                              \
  }

namespace cox::test {

/// Queues it on the client's stream.
template <class Client, class Work>
void launch(const Client& client, Work work, std::source_location site = std::source_location::current()) {
  client.launch(std::move(work.kernel), std::move(work.count), std::move(work.arguments), ExecutionMode::Checked, site);
}

template <class Client>
[[nodiscard]] Handle upload(const Client& client, const std::vector<std::uint32_t>& values,
                            std::source_location site = std::source_location::current()) {
  return client.create(Bytes::copy_of(values), site);
}
/// What the buffer holds when the client's stream comes to it.
/// 0, 1, ... up to `count`.
[[nodiscard]] inline std::vector<std::uint32_t> counted(std::size_t count) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0U);
  return values;
}

template <class Client>
[[nodiscard]] std::vector<std::uint32_t> content(const Client& client, const Handle& handle) {
  return numbers(client.read_one(handle));
}

}  // namespace cox::test
