#include <coxswain/runtime/handle/handle.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>

namespace cox {

void Handle::require_room(std::size_t bytes, const Site& site) const {
  if (bytes > size_in_used())
    throw IoError(IoError::Kind::OutOfBounds,
                  "an offset of " + format_byte_count(bytes) + " reaches beyond the " +
                      format_byte_count(size_in_used()) + " that the handle refers to",
                  site);
}

Handle Handle::offset_start(std::size_t bytes, Site site) const& { return Handle(*this).offset_start(bytes, site); }
Handle Handle::offset_start(std::size_t bytes, Site site) && {
  require_room(bytes, site);
  offset_start_ += bytes;
  return std::move(*this);
}
Handle Handle::offset_end(std::size_t bytes, Site site) const& { return Handle(*this).offset_end(bytes, site); }
Handle Handle::offset_end(std::size_t bytes, Site site) && {
  require_room(bytes, site);
  offset_end_ += bytes;
  return std::move(*this);
}

}  // namespace cox
