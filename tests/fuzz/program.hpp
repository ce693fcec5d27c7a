#pragma once

#include <coxswain/tests/fuzz/collective_steps.hpp>
#include <coxswain/tests/fuzz/data_steps.hpp>
#include <coxswain/tests/fuzz/failure_steps.hpp>
#include <coxswain/tests/fuzz/graph_steps.hpp>
#include <coxswain/tests/fuzz/state.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

namespace cox::fuzz {

/// A random program over all devices: its steps, and shutdowns between them. One thread.
template <class Backend>
class Program {
 public:
  using StateOf = State<Backend>;
  using StreamOf = typename StateOf::StreamOf;

  Program(World<Backend>& world, std::shared_ptr<History> history)
      : state_(world, std::move(history)),
        data_(state_),
        failures_(state_, data_),
        collectives_(state_, data_),
        graphs_(state_, data_, collectives_) {}

  /// Whether the GPUs have faulted, or a call of the driver has failed.
  using HasFaulted = std::function<bool()>;

  /// Throws Difference, and whatever a call throws that should not. After a fault some more operations are made, which
  /// may fail in any way. `is_of_gpus`: each stream must report the fault in the end.
  void run(std::size_t operations, const HasFaulted& has_faulted, bool is_of_gpus) {
    std::size_t after_fault = 0;
    for (std::size_t i = 0; i < operations && after_fault < most_after_fault; ++i)
      if (!succeeds([this] { any_step(); }, has_faulted)) ++after_fault;
    const bool ends = succeeds(
        [this] {
          const std::shared_lock life(state_.world.life());
          notice_shutdowns();
          end();
        },
        has_faulted);
    if (!ends || (is_of_gpus && has_faulted())) end_after_fault(is_of_gpus);
  }
  [[nodiscard]] std::size_t refused() const noexcept { return state_.refused; }

 private:
  static constexpr std::size_t most_after_fault = 60;
  static constexpr std::size_t most_shown = 100;  ///< characters of an error after a fault

  // Returns false if it has failed after a fault.
  template <class F>
  bool succeeds(F&& call, const HasFaulted& has_faulted) {
    try {
      call();
      return true;
    } catch (const WrongContents&) {
      throw;
    } catch (const std::exception& error) {
      if (!has_faulted()) throw;
      state_.history->add(", after a fault: " + std::string(error.what()).substr(0, most_shown));
      return false;
    }
  }
  void end_after_fault(bool is_of_gpus) {
    state_.history->begin("the end after a fault");
    state_.graphs.clear();
    for (auto& of_device : state_.streams)
      for (auto& stream : of_device) {
        while (!stream->awaited.empty()) {
          const Awaited next = std::move(stream->awaited.back());
          stream->awaited.pop_back();
          static_cast<void>(succeeds([&] { next.check(); }, [] { return true; }));
        }
        try {
          stream->client.sync().get();
        } catch (const CallError&) {  // a device that was shut down cannot be opened again
          continue;
        } catch (const ServerError& error) {
          if (error.kind() == ServerError::Kind::Unhealthy) continue;
          throw Difference(std::string("after a fault a sync threw: ") + error.what());
        }
        if (is_of_gpus) throw Difference("after a fault a sync succeeded");
      }
  }

  void any_step() {
    if (state_.one_in(300)) {
      const std::unique_lock alone(state_.world.life());
      notice_shutdowns();
      shut_down();
    } else {
      const std::shared_lock life(state_.world.life());
      notice_shutdowns();
      step();
    }
  }
  void step() {
    state_.drop_surplus();
    StreamOf& stream = state_.any_stream();
    const std::size_t choice = state_.below(1000);
    if (choice < 90) return data_.create(stream);
    if (choice < 130) return data_.create_tensor(stream);
    if (choice < 160) return data_.drop(stream);
    if (choice < 270) return data_.write(stream);
    if (choice < 430) return data_.read(stream);
    if (choice < 620) return data_.kernel(stream);
    if (choice < 680) return data_.meet(stream);
    if (choice < 740) return failures_.fail(stream);
    if (choice < 760) return failures_.profile(stream);
    if (choice < 860) return collectives_.collective();
    if (choice < 920) return collectives_.transfer();
    if (choice < 930) return collectives_.burst();
    if (choice < 950) return graphs_.capture();
    if (choice < 995) return graphs_.replay();
    graphs_.drop();
  }

  void end() {
    state_.history->begin("the end: all buffers are read");
    for (auto& of_device : state_.buffers)
      for (const BufferPtr& buffer : of_device) {
        StreamOf& stream = state_.any_stream(buffer->device);
        Awaited awaited;
        awaited.due = stream.take();
        awaited.operation = state_.history->number();
        awaited.expected.push_back({buffer->bytes, buffer->known, buffer->poisoned, buffer->joint});
        const CopyDescriptor whole =
            buffer->tensor ? buffer->tensor->descriptor() : buffer->handle.copy_descriptor({buffer->size()}, {1}, 1);
        awaited.read = std::make_shared<Future<std::vector<Bytes>>>(stream.client.read_one_tensor_async(whole));
        stream.awaited.push_back(std::move(awaited));
      }
    state_.graphs.clear();
    failures_.check_profiles();
    state_.settle_all();
    for (auto& of_device : state_.buffers) of_device.clear();
  }

  // With work of all kinds queued, or after it is complete.
  void shut_down() {
    const std::size_t device = state_.below(device_count);
    const bool quiet = state_.one_in(3);
    if (const std::size_t other = state_.below(device_count); !quiet && other != device)
      collectives_.send(state_.any_stream(other), state_.any_stream(device), true);
    state_.history->begin((quiet ? "shutdown at rest of device " : "shutdown of device ") + std::to_string(device));
    if (quiet) state_.settle_all();
    const bool keeps_graphs = state_.one_in(2);
    if (!keeps_graphs) drop_graphs(device);
    if (const auto outcome = state_.world.reopen(device); outcome != ShutdownOutcome::Drained)
      throw Difference("a shutdown was " +
                       std::string(outcome == ShutdownOutcome::Discarded ? "Discarded" : "Abandoned"));
    notice_shutdowns();
  }
  // Another program may have shut devices down.
  void notice_shutdowns() {
    for (std::size_t device = 0; device < device_count; ++device) {
      if (std::exchange(state_.epochs[device], state_.world.epoch(device)) != state_.world.epoch(device))
        forget(device);
    }
  }
  void forget(std::size_t device) {
    const std::uint32_t bit = 1U << device;
    const auto lost = [&](Content& content) {
      if ((content.joint & bit) != 0) content.known = false;
    };
    for (auto& of_device : state_.streams)
      for (auto& stream : of_device) {
        const std::size_t perhaps = (stream->joint & bit) != 0 ? stream->joint_count : 0;
        for (Awaited& awaited : stream->awaited) {
          awaited.due.perhaps(perhaps);
          for (Content& content : awaited.expected) lost(content);
        }
        stream->late += perhaps;
      }
    for (auto& all : state_.buffers)
      for (const BufferPtr& buffer : all)
        if ((buffer->joint & bit) != 0) buffer->known = false;
    std::exception_ptr difference;
    for (auto& stream : state_.streams[device]) {
      try {
        stream->check_all();  // what was accepted has run
      } catch (const Difference&) {
        difference = std::current_exception();
      }
      *stream = StreamOf{state_.world.client(device), device};
    }
    *state_.allocators[device] = StreamOf{state_.world.client(device), device};
    for (const BufferPtr& buffer : state_.buffers[device])
      if (!buffer->tensor && buffer->size() >= 4) failures_.lose(buffer->handle);
    state_.buffers[device].clear();
    drop_graphs(device);
    if (difference != nullptr) std::rethrow_exception(difference);
  }
  void drop_graphs(std::size_t device) {
    std::erase_if(state_.graphs, [&](const auto& captured) { return (captured->devices >> device & 1U) != 0; });
  }

  StateOf state_;
  DataSteps<Backend> data_;
  FailureSteps<Backend> failures_;
  CollectiveSteps<Backend> collectives_;
  GraphSteps<Backend> graphs_;
};

}  // namespace cox::fuzz
