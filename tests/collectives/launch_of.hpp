#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>

#include <exception>
#include <memory>
#include <utility>

namespace cox::test {

/// A launch whose release calls f(const LaunchGrant&).
template <class F>
std::shared_ptr<CollectiveLaunch> launch_of(F f) {
  struct Launch final : CollectiveLaunch {
    explicit Launch(F function) : call(std::move(function)) {}
    void take_grant(LaunchGrant&& grant) override { call(std::as_const(grant)); }
    void cancel(const std::exception_ptr&) noexcept override {}
    F call;
  };
  return std::make_shared<Launch>(std::move(f));
}

}  // namespace cox::test
