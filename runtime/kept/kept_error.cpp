#include <coxswain/runtime/kept/kept_error.hpp>

#include <array>
#include <cstddef>

namespace cox {

const char* to_string(KeptError::Kind kind) noexcept {
  static constexpr std::array names{"forked",      "in_use",     "schema", "size", "limit",
                                    "descriptors", "supervisor", "memory", "order"};
  static_assert(names.size() == static_cast<std::size_t>(KeptError::Kind::Order) + 1);
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace cox
