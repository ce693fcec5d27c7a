#pragma once

#include <coxswain/collectives/nccl/nccl.hpp>

#include <source_location>
#include <string>

namespace cox::detail {

/// "NCCL error 5 (invalid usage)", and the text of ncclGetLastError. `comm` may be null.
[[nodiscard]] std::string describe(NcclResult result, NcclComm comm);

/// Throws CollectiveError Backend for the result of a call.
[[noreturn]] void throw_nccl_error(NcclResult result, NcclComm comm, const char* call, std::source_location site);

/// For calls whose failure cannot be thrown: logs it. Returns whether the call succeeded.
bool check_nccl(NcclResult result, NcclComm comm, const char* call) noexcept;

}  // namespace cox::detail

/// Calls a function of NCCL: COX_NCCL_TRY(comm, group_end()). Throws CollectiveError Backend with NCCL's code and
/// texts, file and line. `comm`: the communicator whose last error is added; may be null.
#define COX_NCCL_TRY(comm, call)                                                                              \
  do {                                                                                                        \
    if (const auto cox_result = ::cox::detail::nccl().call; cox_result != ::cox::detail::NcclResult::Success) \
      ::cox::detail::throw_nccl_error(cox_result, comm, #call, std::source_location::current());              \
  } while (false)

/// Calls a function of NCCL where nothing may be thrown; logs a failure. Returns whether the call succeeded.
#define COX_NCCL_CHECK(comm, call) ::cox::detail::check_nccl(::cox::detail::nccl().call, comm, #call)

namespace cox::detail {

/// Calls `calls()` between ncclGroupStart and ncclGroupEnd. The group is ended also if `calls` throws: as long as a
/// thread has an open group, NCCL launches nothing for it and reports no error. Throws CollectiveError Backend, and
/// what `calls` throws. `comm`: as for COX_NCCL_TRY.
template <class F>
void in_nccl_group(NcclComm comm, const F& calls) {
  COX_NCCL_TRY(comm, group_start());
  try {
    calls();
  } catch (...) {
    static_cast<void>(nccl().group_end());  // it would return the same error
    throw;
  }
  COX_NCCL_TRY(comm, group_end());
}

}  // namespace cox::detail
