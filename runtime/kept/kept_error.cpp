#include <coxswain/runtime/kept/kept_error.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <string>

namespace cox {

const char* to_string(KeptError::Kind kind) noexcept {
  static constexpr std::array names{"forked",      "in_use",     "schema", "size", "limit",
                                    "descriptors", "supervisor", "memory", "lost", "order"};
  static_assert(names.size() == static_cast<std::size_t>(KeptError::Kind::Order) + 1);
  return names[static_cast<std::size_t>(kind)];
}

KeptError kept_mark_error(const std::string& set, const Location& location, std::source_location site) {
  return {KeptError::Kind::Order,
          "an update of the kept set '" + set + "' was neither begun nor committed on " + location.to_string() +
              ": its record belongs to a later process, or to another update",
          site};
}

KeptError kept_memory_does_not_fit(const Location& location, std::size_t bytes, const MemoryReport& report,
                                   std::source_location site) {
  const IoError cause = allocation_error(location, bytes, report, site);
  return {KeptError::Kind::Memory, std::string("kept memory does not fit: ") + cause.what(), site,
          std::make_exception_ptr(cause)};
}

}  // namespace cox
