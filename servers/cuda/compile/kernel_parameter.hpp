#pragma once

#include <coxswain/runtime/base/access.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

struct CUtensorMap_st;  // declared in cuda.h, which need not be installed

namespace cox {

/// One parameter of a kernel with its own signature. The buffers, scalars and tensor maps of a launch are assigned to
/// the parameters of their kind, in order.
struct KernelParameter {
  enum class Kind : std::uint8_t {
    Buffer,     ///< a pointer to the first byte of the buffer's window
    Scalar,     ///< by value; takes as many argument words as it fills
    TensorMap,  ///< a CUtensorMap by value
  };
  Kind kind = Kind::Buffer;
  std::size_t size = sizeof(void*);  ///< bytes
  Access access = Access::Write;     ///< of a buffer: Read if the kernel cannot write it

  friend constexpr bool operator==(const KernelParameter&, const KernelParameter&) = default;

  [[nodiscard]] static constexpr KernelParameter buffer(Access access = Access::Write) noexcept {
    return {Kind::Buffer, sizeof(void*), access};
  }
  [[nodiscard]] static constexpr KernelParameter scalar(std::size_t bytes) noexcept {
    return {Kind::Scalar, bytes, Access::Read};
  }
  [[nodiscard]] static constexpr KernelParameter tensor_map() noexcept { return {Kind::TensorMap, 128, Access::Write}; }

  /// The kernel parameter for a C++ parameter of type P: a pointer is a buffer, a pointer to const is a buffer that is
  /// only read, CUtensorMap is a tensor map, and anything else that is trivially copyable is a scalar.
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
  /// The parameters of a function of this type.
  template <class... P>
  [[nodiscard]] static std::vector<KernelParameter> of_function(void (*)(P...)) {
    return {of<P>()...};
  }
};

}  // namespace cox
