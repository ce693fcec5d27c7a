#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/heap_vector.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/launch/kernel_buffers.hpp>
#include <coxswain/runtime/tensor/tensor_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

namespace cox {

/// Scalars and metadata of a kernel, as 64-bit words. The words before `dynamic_metadata_offset` are static: a GPU
/// kernel receives them as a parameter. The words after it are dynamic, since their number may vary: a GPU kernel reads
/// them from device memory.
struct MetadataBindingInfo {
  SmallVector<std::uint64_t, 4> data;
  std::size_t dynamic_metadata_offset = 0;  ///< number of static words
};

/// The arguments of one kernel launch. At least eight buffers and four scalars are stored without an allocation.
struct KernelArguments {
  KernelBuffers buffers;
  MetadataBindingInfo info;
  HeapVector<TensorMapArgument> tensor_maps;

  /// Appends a buffer. The kernel is assumed to read and write it, unless `access` says otherwise.
  KernelArguments&& with_buffer(Binding binding, Access access = Access::Write) && {
    buffers.push_back(std::move(binding), access);
    return std::move(*this);
  }
  KernelArguments&& with_buffer(const Handle& handle, Access access = Access::Write) && {
    buffers.push_back(handle, access);
    return std::move(*this);
  }
  KernelArguments&& with_info(MetadataBindingInfo metadata) && {
    info = std::move(metadata);
    return std::move(*this);
  }
  /// Appends `value` to the static words: one word, or as many words as a larger value needs.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  KernelArguments&& with_scalar(const T& value) && {
    constexpr std::size_t words = (sizeof(T) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&value) + i * sizeof(word),
                  std::min(sizeof(word), sizeof(T) - i * sizeof(word)));
      append_static(word);
    }
    return std::move(*this);
  }
  /// Appends a tensor map. The kernel is assumed to read and write the memory, unless `access` says otherwise. Throws
  /// ServerError Validation if the tensor map is invalid or reaches beyond the memory.
  KernelArguments&& with_tensor_map(Binding binding, TensorMapDescriptor descriptor, Access access = Access::Write,
                                    std::source_location site = std::source_location::current()) && {
    validate_tensor_map(descriptor, binding.size_in_used(), site);
    tensor_maps.push_back({std::move(binding), std::move(descriptor), access});
    return std::move(*this);
  }
  KernelArguments&& with_tensor_map(const Handle& handle, TensorMapDescriptor descriptor, Access access = Access::Write,
                                    std::source_location site = std::source_location::current()) && {
    return std::move(*this).with_tensor_map(handle.binding(), std::move(descriptor), access, site);
  }

 private:
  void append_static(std::uint64_t word) {
    info.data.push_back(word);
    std::uint64_t* const place = info.data.begin() + std::min(info.dynamic_metadata_offset, info.data.size() - 1);
    std::rotate(place, info.data.end() - 1, info.data.end());
    ++info.dynamic_metadata_offset;
  }
};

}  // namespace cox
