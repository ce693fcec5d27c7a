#include <coxswain/runtime/error/dlpack_error.hpp>

#include <array>
#include <cstddef>

namespace cox {

const char* to_string(DlpackError::Kind kind) noexcept {
  static constexpr std::array names{"unsupported_version", "wrong_device",  "unsupported_type",
                                    "read_only",           "invalid_shape", "unsupported_strides"};
  static_assert(names.size() == static_cast<std::size_t>(DlpackError::Kind::UnsupportedStrides) + 1);
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace cox
