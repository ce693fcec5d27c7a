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

KeptError kept_mark_error(const std::string& set, const Location& location, std::source_location site) {
  return {KeptError::Kind::Order,
          "an update of the kept set '" + set + "' was neither begun nor committed on " + location.to_string() +
              ": its record belongs to a later process, or to another update",
          site};
}

}  // namespace cox
