#include <coxswain/collectives/store/store_error.hpp>

#include <array>
#include <cstddef>

namespace cox {

const char* to_string(StoreError::Kind kind) noexcept {
  static constexpr std::array names{"timeout", "unreachable", "protocol", "refused", "too_large", "unsupported"};
  static_assert(names.size() == static_cast<std::size_t>(StoreError::Kind::Unsupported) + 1);
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace cox
