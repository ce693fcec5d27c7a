#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/service/device_thread_options.hpp>

using namespace std::chrono_literals;
using cox::device_thread_options;

TEST_CASE("Default options that are offered hold until some are set, and never again") {
  constexpr cox::DeviceId any{.type = 999, .index = 1};
  constexpr cox::DeviceId own{.type = 999, .index = 2};
  const auto spinning_for = [](std::chrono::nanoseconds spin) {
    cox::DeviceThreadOptions options;
    options.spin = spin;
    return options;
  };
  cox::set_device_thread_options(own, spinning_for(1us));
  cox::offer_default_device_thread_options(spinning_for(2us));
  CHECK(device_thread_options(any).spin == 2us);
  cox::set_default_device_thread_options(spinning_for(3us));
  CHECK(device_thread_options(any).spin == 3us);
  cox::offer_default_device_thread_options(spinning_for(4us));
  CHECK(device_thread_options(any).spin == 3us);
  CHECK(device_thread_options(own).spin == 1us);
  cox::set_default_device_thread_options({});
}
