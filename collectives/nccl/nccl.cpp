#include <coxswain/collectives/nccl/nccl.hpp>

#include <coxswain/runtime/base/library_search.hpp>
#include <coxswain/runtime/base/shared_library.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <cstdlib>
#include <memory>
#include <source_location>

namespace cox::detail {
namespace {

constexpr int oldest_nccl = 21403;

/// Fills in `nccl`. Returns an error text, empty if there is no error.
std::string load(const SharedLibrary& library, Nccl& nccl) {
  std::string missing;
  const auto find = [&](const char* name) {
    void* const found = library.find(name);
    if (found == nullptr && missing.empty()) missing = name;
    return found;
  };
#define COX_NCCL_ENTRY(member, function, ...) nccl.member = reinterpret_cast<decltype(nccl.member)>(find(#function));
#include <coxswain/collectives/nccl/nccl_entries.inc>
#undef COX_NCCL_ENTRY
  nccl.error_text = reinterpret_cast<decltype(nccl.error_text)>(find("ncclGetErrorString"));
  nccl.last_error = reinterpret_cast<decltype(nccl.last_error)>(find("ncclGetLastError"));
  nccl.revoke = reinterpret_cast<decltype(nccl.revoke)>(library.find("ncclCommRevoke"));
  nccl.split = reinterpret_cast<decltype(nccl.split)>(library.find("ncclCommSplit"));
  nccl.file = library.file();
  if (!missing.empty()) return library.file() + " has no " + missing;
  if (nccl.get_version(&nccl.version) != NcclResult::Success)
    return library.file() + " does not report its version (ncclGetVersion failed)";
  if (nccl.version < oldest_nccl)
    return library.file() + " is NCCL " + nccl_version_text(nccl.version) + "; at least " +
           nccl_version_text(oldest_nccl) + " is needed";
  return {};
}

FoundNccl open_of_process() {
  if (!settings().get<bool>("collectives.nvlink_multicast")) ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  const LibrarySearch search{settings().get<std::string>("collectives.nccl"), {"libnccl.so.2"}, {"nvidia/nccl/lib"}};
  return open_nccl(library_candidates(search, SearchRoots::of_process()));
}

}  // namespace

NcclConfig launch_config(int ctas, const char* name) {
  NcclConfig config{.version = static_cast<unsigned>(nccl().version), .blocking = 1, .comm_name = name};
  if (ctas != 0) config.min_ctas = config.max_ctas = ctas;
  return config;
}

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

FoundNccl open_nccl(const std::vector<std::string>& files) {
  const SharedLibrary library = SharedLibrary::open(files);
  if (!library)
    return {nullptr,
            "NCCL, which collectives between GPUs need, was not found (setting collectives.nccl): " + library.error()};
  auto nccl = std::make_unique<Nccl>();
  const std::string wrong = load(library, *nccl);
  if (!wrong.empty()) return {nullptr, "NCCL was found, but cannot be used: " + wrong};
  log::write(LogSubsystem::Collectives, LogLevel::Debug,
             [&] { return "NCCL is " + nccl_version_text(nccl->version) + ", " + nccl->file; });
  return {nccl.release(), {}};  // never freed, as the library is never closed
}

const FoundNccl& find_nccl() {
  static const FoundNccl& found = *new FoundNccl(open_of_process());  // never destroyed: static destructors may use it
  return found;
}

const Nccl& nccl() {
  const FoundNccl& found = find_nccl();
  if (found.nccl != nullptr) return *found.nccl;
  throw CollectiveError(CollectiveError::Kind::Unsupported, found.error, std::source_location());
}

}  // namespace cox::detail
