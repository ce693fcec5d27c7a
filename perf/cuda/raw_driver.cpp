#include <coxswain/perf/cuda/raw_driver.hpp>

namespace cox::perf {
namespace {

RawDriver find_functions() {
  const detail::Driver& library = detail::driver();
  RawDriver driver;
#define COX_CUDA_ENTRY(member, function, version) \
  driver.member = reinterpret_cast<PFN_##function##_v##version>(library.find(#function, version));
#include <coxswain/perf/cuda/raw_driver_entries.inc>
#undef COX_CUDA_ENTRY
  return driver;
}

}  // namespace

const RawDriver& raw_driver() {
  static const RawDriver driver = find_functions();
  return driver;
}

}  // namespace cox::perf
