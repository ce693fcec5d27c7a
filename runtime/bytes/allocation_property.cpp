#include <coxswain/runtime/bytes/allocation_property.hpp>

#include <array>
#include <cstddef>

namespace cox {

const char* to_string(AllocationProperty property) noexcept {
  static constexpr std::array names{"native", "pinned", "file", "device", "other"};
  static_assert(names.size() == static_cast<std::size_t>(AllocationProperty::Other) + 1);
  return names[static_cast<std::size_t>(property)];
}

}  // namespace cox
