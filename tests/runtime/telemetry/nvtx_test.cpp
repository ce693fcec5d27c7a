#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <string>
#include <vector>

namespace trace = cox::trace;

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace {

struct Service {
  explicit Service(cox::DeviceId) {}
};

std::vector<std::string> calls;  // on one thread at a time

int NVTX_API on_push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  calls.emplace_back(attributes->message.ascii);
  return 0;
}

int NVTX_API on_pop(nvtxDomainHandle_t) {
  calls.emplace_back("pop");
  return 0;
}

// What a profiler does to be told.
int NVTX_API inject(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&on_push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&on_pop);
  return 1;
}

}  // namespace

TEST_CASE("With nvtx, tasks and spans are NVTX ranges that nest and end, and nothing need be kept") {
  REQUIRE(trace::nvtx_available());
  InitializeInjectionNvtx2_fnptr = &inject;  // NVTX looks at it when it is first called
  trace::start({.capacity = 0, .nvtx = true});
  const cox::DeviceId device{.type = 0, .index = 78};
  auto handle = cox::DeviceHandle<Service>::get(device);
  handle.submit_blocking([](Service&) {
    cox::name_operation("launch");
    const trace::Span span("kernel", trace::Track::this_thread(), trace::Category::Stream);
  });
  cox::shutdown(device);
  CHECK(trace::stop().events.empty());
  REQUIRE(calls.size() == 8);
  CHECK(calls[0] == "open Service");
  CHECK(calls[1] == "pop");
  CHECK_THAT(calls[2], Catch::Matchers::StartsWith("submit_blocking"));
  CHECK(std::vector<std::string>(calls.begin() + 3, calls.end()) ==
        std::vector<std::string>{"launch", "kernel", "pop", "pop", "pop"});

  calls.clear();
  trace::start();
  {
    const trace::Span span("not for NVTX", trace::Track::this_thread(), trace::Category::Client);
  }
  CHECK(trace::stop().events.size() == 1);
  CHECK(calls.empty());
}
#else
TEST_CASE("Without NVTX at build time, a trace that asks for it is refused and says why") {
  CHECK_FALSE(trace::nvtx_available());
  CHECK_THROWS_WITH(trace::start({.nvtx = true}), Catch::Matchers::ContainsSubstring("nvToolsExt.h"));
  CHECK_FALSE(trace::enabled());
}
#endif
