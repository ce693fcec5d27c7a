#pragma once

#include <coxswain/collectives/nccl/nccl.hpp>

#include <source_location>
#include <string>

namespace cox::detail {

/// "NCCL error 5 (invalid usage)", and what ncclGetLastError adds. `comm` may be null.
[[nodiscard]] std::string describe(NcclResult result, NcclComm comm);

/// Throws CollectiveError Backend for what a call returned.
[[noreturn]] void throw_nccl_error(NcclResult result, NcclComm comm, const char* call, std::source_location site);

/// For calls whose failure cannot be thrown: logs it. Returns whether all is well.
bool check_nccl(NcclResult result, NcclComm comm, const char* call) noexcept;

}  // namespace cox::detail

/// Calls a function of NCCL: COX_NCCL_TRY(comm, group_end()). Throws CollectiveError Backend with NCCL's code and
/// texts, file and line. `comm`: whose last error is added; may be null.
#define COX_NCCL_TRY(comm, call)                                                                              \
  do {                                                                                                        \
    if (const auto cox_result = ::cox::detail::nccl().call; cox_result != ::cox::detail::NcclResult::Success) \
      ::cox::detail::throw_nccl_error(cox_result, comm, #call, std::source_location::current());              \
  } while (false)

/// The same where nothing may be thrown. True: it worked.
#define COX_NCCL_CHECK(comm, call) ::cox::detail::check_nccl(::cox::detail::nccl().call, comm, #call)
