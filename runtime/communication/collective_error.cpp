#include <coxswain/runtime/communication/collective_error.hpp>

namespace cox::detail {

std::exception_ptr with_site(const std::exception_ptr& error, const std::source_location& site) noexcept {
  try {
    try {
      std::rethrow_exception(error);
    } catch (const CollectiveError& shared) {
      if (shared.site().line() == 0)
        return std::make_exception_ptr(CollectiveError(shared.kind(), shared.what(), site, shared.cause()));
    }
  } catch (...) {  // another type of error, or no memory for the copy
  }
  return error;
}

}  // namespace cox::detail
