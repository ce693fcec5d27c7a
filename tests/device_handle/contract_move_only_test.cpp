// Closures that can only be moved, through every call. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/use_future.hpp>

using namespace contract;

TEMPLATE_TEST_CASE("Every call takes a closure that can only be moved", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto soon = before(std::chrono::steady_clock::now() + 1h);
  handle.submit([p = std::make_unique<int>(1)](Alpha& alpha) { alpha.value += *p; });
  handle.submit([p = std::make_unique<int>(2)](Alpha& alpha) { alpha.value += *p; }, soon);
  CHECK(handle
            .submit_async([p = std::make_unique<int>(4)](Alpha& alpha) { return alpha.value += *p; },
                          boost::asio::use_future)
            .get() == 7);
  CHECK(handle.exclusive([p = std::make_unique<int>(8)] { return *p; }) == 8);
  CHECK(handle.submit_blocking([p = std::make_unique<int>(16)](Alpha& alpha) { return alpha.value + *p; }) == 23);
  CHECK(handle.submit_blocking([p = std::make_unique<int>(32)](Alpha& alpha) { return alpha.value + *p; }, soon) == 39);
}
