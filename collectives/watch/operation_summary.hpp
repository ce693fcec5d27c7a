#pragma once

#include <coxswain/runtime/communication/collective_request.hpp>

#include <cstddef>
#include <string>

namespace cox::detail {

/// What is kept of an operation for messages about it: the first request, and the number of requests of a group.
/// Copying it does not allocate.
struct OperationSummary {
  CollectiveRequest first;
  std::size_t size = 0;  ///< Number of requests; 0: there is no operation.

  OperationSummary() noexcept = default;
  explicit OperationSummary(const CollectiveRequests& requests) noexcept
      : first(requests.front()), size(requests.size()) {}
};

/// The same text as that of the operation's CollectiveRequests.
[[nodiscard]] inline std::string to_string(const OperationSummary& operation) {
  return to_string(operation.first, operation.size);
}

}  // namespace cox::detail
