#include <coxswain/runtime/memory/borrowed_memory.hpp>

#include <coxswain/runtime/error/server_error.hpp>

namespace cox {

void BorrowedMemory::refuse_write(std::source_location site) const {
  throw ServerError(ServerError::Kind::Validation,
                    "memory of the kept set '" + guard_->set + "' was to be written on " +
                        location_.device.to_string() +
                        " outside of an update: call begin_update before, and commit after all writes",
                    site);
}

}  // namespace cox
