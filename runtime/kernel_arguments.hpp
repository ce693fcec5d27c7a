#pragma once

#include <coxswain/runtime/access.hpp>
#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/handle.hpp>
#include <coxswain/runtime/small_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace cox {

/// A buffer that a kernel is given.
struct KernelBuffer {
  Binding binding;
  Access access = Access::Write;
};

/// Scalars and metadata that a kernel is given, one 64-bit word each.
struct MetadataBindingInfo {
  SmallVector<std::uint64_t, 4> data;
  std::size_t dynamic_metadata_offset = 0;  ///< words before the part whose length varies
};

/// What a kernel runs on. Up to eight buffers and four scalars are held without an allocation.
struct KernelArguments {
  SmallVector<KernelBuffer, 8> buffers;
  MetadataBindingInfo info;

  /// Read and written, unless `access` says that the kernel only reads it.
  KernelArguments&& with_buffer(Binding binding, Access access = Access::Write) && {
    buffers.push_back({std::move(binding), access});
    return std::move(*this);
  }
  KernelArguments&& with_buffer(const Handle& handle, Access access = Access::Write) && {
    return std::move(*this).with_buffer(handle.binding(), access);
  }
  KernelArguments&& with_info(MetadataBindingInfo metadata) && {
    info = std::move(metadata);
    return std::move(*this);
  }
  /// Appends one word that holds `value`.
  template <class T>
    requires(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t))
  KernelArguments&& with_scalar(T value) && {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    info.data.push_back(word);
    return std::move(*this);
  }
};

}  // namespace cox
