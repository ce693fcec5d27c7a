#pragma once

#include <engine/device.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace train {

/// A buffer of a launch. Values of activations are floats here, and have the type of the device there.
struct CaseBuffer {
  enum class Type : std::uint8_t { Float, Activation, Integer };
  enum class Role : std::uint8_t { In, Out, InOut };

  Type type = Type::Float;
  Role role = Role::In;
  std::vector<float> values{};
  std::vector<std::int32_t> integers{};
  std::size_t offset = 0;  ///< elements of the allocation before the buffer
};

/// A launch of a kernel with its inputs.
struct KernelCase {
  KernelId id;
  std::string label;  ///< the shape, for messages
  Units units;
  std::vector<CaseBuffer> buffers;
  std::vector<std::variant<std::uint32_t, float>> scalars;
  /// Computes the outputs, for kernels that host devices do not have.
  std::function<void(std::vector<CaseBuffer>&)> reference{};
  std::size_t terms = 0;  ///< of the longest sum of inputs with deviation 1, where its rounding is not negligible
};

/// Calls `use` for launches of every CUDA kernel with random values, with shapes below, at and above what a block
/// computes, odd ones included. `large`: also shapes as in training. One case is in memory at a time.
void for_each_kernel_case(bool large, const std::function<void(KernelCase&)>& use);
/// Rounds the inputs to bfloat16.
void round_inputs(KernelCase& given);
/// Ends the test unless the outputs agree. `bfloat16`: the type of activations of `got`. `rounded_twice`: their terms
/// were rounded to that type before they were added.
void compare(const KernelCase& given, const std::vector<CaseBuffer>& got, const std::vector<CaseBuffer>& expected,
             bool bfloat16, bool rounded_twice = false);

[[nodiscard]] std::uint16_t to_bfloat16(float value);
[[nodiscard]] float from_bfloat16(std::uint16_t bits);

/// Runs a case on a device. Returns the buffers with the outputs. Blocks.
template <class Backend>
[[nodiscard]] std::vector<CaseBuffer> run_case(const Device<Backend>& device, const KernelCase& given) {
  const auto& client = device.client();
  const bool bfloat16 = device.precision() == Precision::Bfloat16;
  cox::KernelArguments arguments;
  std::vector<cox::Handle> memory;
  for (const CaseBuffer& buffer : given.buffers) {
    cox::Bytes bytes;
    std::size_t size = 4;
    if (buffer.type == CaseBuffer::Type::Integer) {
      bytes = cox::Bytes::copy_of(buffer.integers);
    } else {
      std::vector<float> values(buffer.offset, 0.0F);
      values.insert(values.end(), buffer.values.begin(), buffer.values.end());
      if (buffer.type == CaseBuffer::Type::Activation && bfloat16) {
        std::vector<std::uint16_t> rounded;
        for (const float value : values) rounded.push_back(to_bfloat16(value));
        bytes = cox::Bytes::from_vector(std::move(rounded));
        size = 2;
      } else {
        bytes = cox::Bytes::from_vector(std::move(values));
      }
    }
    memory.push_back(client.create(std::move(bytes)).offset_start(buffer.offset * size));
    arguments.with_buffer(memory.back(), buffer.role == CaseBuffer::Role::In ? cox::Access::Read : cox::Access::Write);
  }
  for (const auto& scalar : given.scalars) std::visit([&](auto value) { arguments.with_scalar(value); }, scalar);
  device.launch(given.id, given.units, std::move(arguments));
  std::vector<CaseBuffer> result = given.buffers;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i].role == CaseBuffer::Role::In) continue;
    const cox::Bytes bytes = client.read_one(memory[i]);
    if (result[i].type == CaseBuffer::Type::Activation && bfloat16) {
      result[i].values.clear();
      for (const std::uint16_t bits : bytes.template to_vector<std::uint16_t>())
        result[i].values.push_back(from_bfloat16(bits));
    } else {
      result[i].values = bytes.template to_vector<float>();
    }
  }
  return result;
}

/// Runs all cases on `device` and compares them with the host kernels. Returns how many there were.
template <class Backend, class HostDevice>
std::size_t check_kernels(const Device<Backend>& device, const HostDevice& host, bool large) {
  const bool bfloat16 = device.precision() == Precision::Bfloat16;
  std::size_t count = 0;
  for_each_kernel_case(large, [&](KernelCase& given) {
    if (given.id == KernelId::AdamWRounded && !bfloat16) return;
    if (bfloat16) round_inputs(given);
    const std::vector<CaseBuffer> got = run_case(device, given);
    std::vector<CaseBuffer> expected = given.buffers;
    if (given.reference) {
      given.reference(expected);
    } else {
      expected = run_case(host, given);
    }
    compare(given, got, expected, bfloat16);
    ++count;
  });
  return count;
}

}  // namespace train
