#pragma once

#include <coxswain/runtime/profile/profile_error.hpp>
#include <coxswain/tests/fuzz/data_steps.hpp>
#include <coxswain/tests/fuzz/state.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// Work that fails, each time once, and what must be told of it. Where failures poison memory it is given some (L14).
template <class Backend>
class FailureSteps {
 public:
  using StateOf = State<Backend>;
  using StreamOf = typename StateOf::StreamOf;

  FailureSteps(StateOf& state, DataSteps<Backend>& data) : state_(state), data_(data) {}

  void fail(StreamOf& stream) {
    if (stream.due.most > 30) {
      state_.history->begin("settle a stream");
      state_.settle(stream);
      return;
    }
    if (state_.one_in(2)) return fail_on_memory(stream);
    switch (state_.below(6)) {
      case 0: return launch_failing(stream, "a launch that is refused", Backend::misused());
      case 1: return launch_failing(stream, "a kernel that fails", Backend::fail_after_submit(stream.client));
      case 2: return write_too_much(stream);
      case 3: return read_foreign(stream);
      case 4: return use_lost(stream);
      default: return allocate_huge(stream);
    }
  }

  void profile(StreamOf& stream) {
    const bool fails = state_.one_in(3);
    begin(stream, fails ? "profile of a launch that fails" : "profile");
    Window to = state_.any_words(stream.device);
    if (to.buffer != nullptr && !to.buffer->known) to.buffer = nullptr;  // else the profile may fail
    const std::uint32_t value = state_.word();
    const auto time = static_cast<std::uint32_t>(state_.between(10, 1000));
    const auto work = [&] {
      if (fails) launch(stream, state_.one_in(2) ? Backend::misused() : Backend::fail_after_submit(stream.client));
      if (to.buffer == nullptr) return;
      launch(stream, slow<Backend>(to.handle(), time));
      launch(stream, Backend::fill(to.handle(), value));
    };
    std::shared_ptr<ProfileDuration> duration;
    try {
      duration = std::make_shared<ProfileDuration>(stream.client.profile(work));
    } catch (...) {  // it may have been thrown before or after the work
      if (to.buffer != nullptr) to.buffer->known = false;
      throw;
    }
    if (to.buffer != nullptr) {
      for (std::size_t i = 0; i < to.size / 4; ++i) to.set_word(i, value);
      to.written(true, 0);
    }
    profiles_.push_back({std::move(duration), fails, state_.history->number()});
    if (profiles_.size() > 4) check_profile();
  }
  void check_profiles() {
    while (!profiles_.empty()) check_profile();
  }

  /// A handle whose device has been shut down since.
  void lose(Handle handle) { lost_ = std::move(handle); }

 private:
  struct Profile {
    std::shared_ptr<ProfileDuration> duration;
    bool fails;
    std::size_t operation;
  };

  void begin(const StreamOf& stream, const std::string& text) {
    state_.history->begin("device " + std::to_string(stream.device) + " stream " +
                          std::to_string(stream.client.stream_id().value) + ": " + text);
  }
  static void launch(StreamOf& stream, typename Backend::Work work) {
    stream.client.launch(std::move(work.kernel), std::move(work.count), std::move(work.arguments));
  }

  void launch_failing(StreamOf& stream, const std::string& what, typename Backend::Work work) {
    begin(stream, what);
    launch(stream, std::move(work));
    stream.due.add();
  }
  // It should have written memory, which is poisoned then, or accepts it as it is.
  void fail_on_memory(StreamOf& stream) {
    const Window to = state_.any_words(stream.device);
    if (to.buffer == nullptr) return;
    const std::string where = " of " + std::to_string(to.buffer->size());
    switch (state_.below(4)) {
      case 0:
        launch_failing(stream, "a launch that is refused on memory" + where, Backend::misused_on(to.handle()));
        break;
      case 1:
        begin(stream, "a write of a wrong size" + where);
        stream.client.write(to.handle(), Bytes::zeroed(to.size + 1));
        stream.due.add();
        break;
      case 2:
        begin(stream, "accept" + where);
        stream.client.accept(to.handle());
        to.buffer->poisoned = false;
        // What a call of the driver that has failed should have written is accepted, too.
        if (state_.world.has_faults()) to.buffer->known = false;
        return;
      default:
        launch_failing(stream, "a kernel that fails on memory" + where, Backend::fail_on(stream.client, to.handle()));
    }
    to.buffer->poison();
  }
  void write_too_much(StreamOf& stream) {
    begin(stream, "a write of a wrong size");
    const std::size_t size = state_.any_size();
    Handle handle;
    if (!state_.allocated(stream, [&](const auto& client) { handle = client.empty(size); })) return;
    stream.client.write(handle, Bytes::zeroed(size + 1));
    stream.due.add();
  }
  // Memory of another device. The read takes the failures of what was queued before it, too.
  void read_foreign(StreamOf& stream) {
    begin(stream, "a read of another device's memory");
    const auto& all = state_.buffers[(stream.device + 1) % device_count];
    if (all.empty() || all.front()->tensor) return;
    if (state_.one_in(2)) {
      data_.hold_up(stream);
      launch(stream, Backend::misused());
      stream.due.add();
      Awaited earlier;
      earlier.due = stream.take();
      earlier.sync = std::make_shared<Future<void>>(stream.client.sync());
      earlier.operation = state_.history->number();
      stream.awaited.push_back(std::move(earlier));
    }
    Awaited awaited;
    awaited.is_refused = true;
    awaited.due = stream.take();
    awaited.read = std::make_shared<Future<std::vector<Bytes>>>(
        stream.client.read_async(std::vector<Handle>{all.front()->handle}));
    state_.await(stream, std::move(awaited));
  }
  // Memory of a device that has been shut down and opened again.
  void use_lost(StreamOf& stream) {
    begin(stream, "a launch on memory from before a shutdown");
    if (lost_.size_in_used() < 4) return;
    launch(stream, Backend::fill(lost_.offset_end(lost_.size_in_used() % 4), 1));
    stream.due.add();
  }
  // More than any device has: refused, and so is a use of it.
  void allocate_huge(StreamOf& stream) {
    begin(stream, "an allocation of more than there is");
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    const Handle handle = stream.client.empty(state_.one_in(2) ? most / 2 : most - state_.below(4096));
    stream.due.add();
    if (state_.one_in(2)) return;
    launch(stream, slow<Backend>(handle, 1));
    stream.due.add();
  }

  void check_profile() {
    const Profile profile = std::move(profiles_.back());
    profiles_.pop_back();
    const std::string what = "the profile of operation " + std::to_string(profile.operation);
    try {
      static_cast<void>(profile.duration->get());
    } catch (const ProfileError& error) {
      if (profile.fails) return;
      throw Difference(what + " failed: " + error.what());
    } catch (const std::exception& error) {
      throw Difference(what + " threw, but no ProfileError: " + error.what());
    }
    if (profile.fails) throw Difference(what + " succeeded, though a launch in it failed");
  }

  StateOf& state_;
  DataSteps<Backend>& data_;
  std::vector<Profile> profiles_;
  Handle lost_;
};

}  // namespace cox::fuzz
