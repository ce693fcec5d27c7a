#include <coxswain/collectives/nccl/nccl_try.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/log.hpp>

namespace cox::detail {

std::string describe(NcclResult result, NcclComm comm) {
  const Nccl& library = nccl();
  std::string text = "NCCL error " + std::to_string(static_cast<int>(result)) + " (" + library.error_text(result) + ")";
  const char* const last = library.last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

void throw_nccl_error(NcclResult result, NcclComm comm, const char* call, std::source_location site) {
  throw CollectiveError(CollectiveError::Kind::Backend, std::string(call) + ": " + describe(result, comm), site);
}

bool check_nccl(NcclResult result, NcclComm comm, const char* call) noexcept {
  if (result == NcclResult::Success) return true;
  try {
    log::write(LogSubsystem::Collectives, LogLevel::Error,
               [&] { return std::string(call) + ": " + describe(result, comm); });
  } catch (...) {  // no memory for the text
  }
  return false;
}

}  // namespace cox::detail
