#include <coxswain/runtime/trace/nvtx.hpp>

// NVTX is header-only: its functions look for a profiler at the first call, and do nothing if there is none.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace cox::trace::detail {
namespace {

nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t created = nvtxDomainCreateA("coxswain");
  return created;
}

}  // namespace

const bool Nvtx::available = true;

void Nvtx::push(const char* name) noexcept {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &attributes);
}

void Nvtx::pop() noexcept { nvtxDomainRangePop(domain()); }

}  // namespace cox::trace::detail
#else
namespace cox::trace::detail {

const bool Nvtx::available = false;
void Nvtx::push(const char*) noexcept {}
void Nvtx::pop() noexcept {}

}  // namespace cox::trace::detail
#endif
