#pragma once

#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace cox::test {

/// The argument at `index` of a kernel that is a function.
template <class T>
T argument(const FakeCuda::Run& run, std::size_t index) {
  T value;
  std::memcpy(&value, run.arguments[index], sizeof(value));
  return value;
}
/// As many elements of the buffer at `index`.
template <class T = std::uint32_t>
std::span<T> elements(const FakeCuda::Run& run, std::size_t index, std::size_t count) {
  return {argument<T*>(run, index), count};
}
inline std::uint32_t number(const FakeCuda::Run& run, std::size_t index) { return argument<std::uint32_t>(run, index); }

// Bytes of parameters.
inline constexpr std::size_t address = 8;
inline constexpr std::size_t word = 4;

/// A kernel that does it at once.
inline FakeCuda::KernelType function_kernel(std::vector<std::size_t> parameters,
                                            std::function<void(const FakeCuda::Run&)> what) {
  return {std::move(parameters), [what = std::move(what)] {
            return [what](const FakeCuda::Run& run) {
              what(run);
              return true;
            };
          }};
}

}  // namespace cox::test
