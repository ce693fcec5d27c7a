#include <coxswain/collectives/discovery/discover.hpp>

#include <coxswain/collectives/discovery/launcher.hpp>
#include <coxswain/collectives/store/pmix_session.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <unistd.h>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace cox {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace

WorldPlace discover(const WorldOptions& options) {
  std::shared_ptr<detail::PmixSession> pmix;
  WorldPlace place = detail::discover(options, detail::launcher_variables(), [&pmix] {
    pmix = detail::PmixSession::open();
    return pmix->job();
  });
  place.pmix = std::move(pmix);
  place.host = host_name();
  place.timeout = options.timeout.value_or(settings().get<std::chrono::nanoseconds>("world.timeout"));
  return place;
}

}  // namespace cox
