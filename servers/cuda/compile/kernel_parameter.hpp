#pragma once

#include <coxswain/runtime/base/access.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

struct CUtensorMap_st;  // cuda.h's, which need not be there

namespace cox {

/// One parameter of a kernel whose signature is its own. The buffers, scalars and tensor maps of a launch go to the
/// parameters of their kind in order.
struct KernelParameter {
  enum class Kind : std::uint8_t {
    Buffer,     ///< a pointer to the first byte of the buffer's window
    Scalar,     ///< by value; as many words of the arguments as it fills
    TensorMap,  ///< a CUtensorMap by value
  };
  Kind kind = Kind::Buffer;
  std::size_t size = sizeof(void*);  ///< bytes
  Access access = Access::Write;     ///< of a buffer: Read where the kernel cannot write it

  friend constexpr bool operator==(const KernelParameter&, const KernelParameter&) = default;

  [[nodiscard]] static constexpr KernelParameter buffer(Access access = Access::Write) noexcept {
    return {Kind::Buffer, sizeof(void*), access};
  }
  [[nodiscard]] static constexpr KernelParameter scalar(std::size_t bytes) noexcept {
    return {Kind::Scalar, bytes, Access::Read};
  }
  [[nodiscard]] static constexpr KernelParameter tensor_map() noexcept { return {Kind::TensorMap, 128, Access::Write}; }

  /// What a parameter of type P of a kernel is: pointers are buffers, pointers to const are only read; anything else
  /// that is trivially copyable is a scalar.
  template <class P>
  [[nodiscard]] static constexpr KernelParameter of() noexcept {
    using Value = std::remove_cv_t<P>;
    if constexpr (std::is_pointer_v<Value>) {
      static_assert(!std::is_function_v<std::remove_pointer_t<Value>>, "a kernel cannot be given a function");
      return buffer(std::is_const_v<std::remove_pointer_t<Value>> ? Access::Read : Access::Write);
    } else if constexpr (std::is_same_v<Value, CUtensorMap_st>) {
      return tensor_map();
    } else {
      static_assert(std::is_trivially_copyable_v<Value>, "a kernel's parameters are pointers or trivially copyable");
      return scalar(sizeof(Value));
    }
  }
  /// Those of a function with such parameters.
  template <class... P>
  [[nodiscard]] static std::vector<KernelParameter> of_function(void (*)(P...)) {
    return {of<P>()...};
  }
};

}  // namespace cox
