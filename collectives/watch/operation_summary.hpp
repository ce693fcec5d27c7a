#pragma once

#include <coxswain/runtime/communication/collective_request.hpp>

#include <cstddef>
#include <string>

namespace cox::detail {

/// What is kept of an operation to speak of it later: of a group the first request. Copied without an allocation.
struct OperationSummary {
  CollectiveRequest first;
  std::size_t size = 0;  ///< Requests; 0: there is no operation.

  OperationSummary() noexcept = default;
  explicit OperationSummary(const CollectiveRequests& requests) noexcept
      : first(requests.front()), size(requests.size()) {}
};

/// As that of the requests.
[[nodiscard]] inline std::string to_string(const OperationSummary& operation) {
  return to_string(operation.first, operation.size);
}

}  // namespace cox::detail
