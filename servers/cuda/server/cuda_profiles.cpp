// What a CudaServer does for profiles: the time that the device takes for the work between two points of a stream.
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <coxswain/runtime/profile/profile_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>
#include <coxswain/servers/cuda/server/cuda_work.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>

namespace cox {
namespace {

using detail::CudaProfile;
using detail::CudaStream;
using detail::IssueTarget;

/// Ends a profile in its turn. As long as that has not happened, failures of the stream belong to the profile: so it is
/// ended also if this is destroyed without having been called.
class ProfileEnd {
 public:
  ProfileEnd(std::shared_ptr<CudaProfile> profile, CudaStream& stream, std::exception_ptr failure,
             ProfileFailures failures, std::source_location site, Promise<ProfileTicks> promise)
      : profile_(std::move(profile)),
        stream_(stream.shared_from_this()),
        failure_{std::move(failure)},
        sequence_(stream.next_sequence()),
        failures_(failures),
        site_(site),
        promise_(std::move(promise)) {
    stream.errors()->bound_profile(profile_->begin_sequence, sequence_);
  }
  ProfileEnd(ProfileEnd&&) noexcept = default;
  ProfileEnd& operator=(ProfileEnd&&) = delete;
  // If the driver refuses what precedes it, this is destroyed while that is handled.
  ~ProfileEnd() {
    if (profile_ == nullptr) return;  // moved from, or called
    close();
    if (const std::exception_ptr error = std::current_exception()) promise_.set_error(error);
  }

  void operator()(const IssueTarget& target) {
    target.flush_launches();
    const std::shared_ptr<CudaProfile> profile = profile_;
    if (profile->failure != nullptr) failure_.error = profile->failure;
    if (failures_ == ProfileFailures::OfProfile)
      if (auto first = detail::StreamErrors::take_for_profile(stream_->errors(), profile->begin_sequence, sequence_))
        failure_ = std::move(first);
    close();
    profile_ = nullptr;
    try {
      COX_CUDA_TRY(event_record(profile->end->native(), target.stream()));
      const bool failed = static_cast<bool>(failure_);
      if (failed) failure_.error = std::make_exception_ptr(profile_failure(failure_.error, stream_->location(), site_));
      promise_.settle_at(
          profile->end,
          [profile, failed, stream = stream_, site = site_] {
            if (detail::gpu_faulted()) throw profile_failure(detail::gpu_fault_error(site), stream->location(), site);
            return failed ? ProfileTicks{} : profile->ticks();
          },
          std::move(failure_));
    } catch (...) {
      promise_.set_error(std::current_exception());
    }
  }

 private:
  void close() noexcept {
    std::erase(stream_->running_profiles, profile_);
    stream_->errors()->end_profile(profile_->begin_sequence);
  }

  std::shared_ptr<CudaProfile> profile_;
  std::shared_ptr<CudaStream> stream_;
  detail::TakenError failure_;
  std::uint64_t sequence_;
  ProfileFailures failures_;
  std::source_location site_;
  Promise<ProfileTicks> promise_;
};

}  // namespace

ProfilingToken CudaServer::start_profile(const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  stream.capture.require_none("a profile", caller.site);
  auto profile = std::make_shared<CudaProfile>();
  profile->begin = device_->timed_events().acquire();
  profile->begin_sequence = stream.next_sequence();
  const ProfilingToken token = stream.profiles.open(profile, caller.site);
  try {
    stream.errors()->begin_profile(profile->begin_sequence);
    device_->submit(stream, {}, {nullptr, nullptr, caller.site},
                    [profile, stream = stream.shared_from_this()](const IssueTarget& target) {
                      stream->running_profiles.push_back(profile);
                      COX_CUDA_TRY(event_record(profile->begin->native(), target.stream()));
                    });
  } catch (...) {
    // The profile has not begun: end it, so that it takes no failures of the stream.
    std::erase(stream.running_profiles, profile);
    stream.errors()->end_profile(profile->begin_sequence);
    static_cast<void>(stream.profiles.end(token, caller.site));
    throw;
  }
  return token;
}

ProfileDuration CudaServer::end_profile(ProfilingToken token, ProfileFailures failures, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  Promise<ProfileTicks> promise(device_->facts()->completion_thread);
  ProfileDuration duration(promise.future(), TimingMethod::Device);
  auto ended = stream.profiles.end(token, caller.site);
  const std::shared_ptr<CudaProfile> profile = std::move(ended.position);
  ProfileEnd end(profile, stream, std::move(ended.failure), failures, caller.site, std::move(promise));
  profile->end = device_->timed_events().acquire();
  device_->submit_after_all(stream, {}, {nullptr, nullptr, caller.site}, std::move(end));
  return duration;
}

}  // namespace cox
