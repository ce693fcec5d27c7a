#pragma once

#include <coxswain/tests/fuzz/collective_steps.hpp>
#include <coxswain/tests/fuzz/data_steps.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// Graphs: captured on one stream, or on one stream of several devices with collectives of those; replayed and dropped.
template <class Backend>
class GraphSteps {
 public:
  using StateOf = State<Backend>;
  using StreamOf = typename StateOf::StreamOf;
  using Captured = typename StateOf::Captured;

  GraphSteps(StateOf& state, DataSteps<Backend>& data, CollectiveSteps<Backend>& collectives)
      : state_(state), data_(data), collectives_(collectives) {}

  void capture() {
    if (state_.graphs.size() > 4) return drop();
    auto captured = std::make_unique<Captured>();
    std::vector<std::size_t> devices{state_.below(device_count)};
    captured->joint = state_.one_in(3);
    if (captured->joint) devices = state_.any_devices(2);
    std::ranges::sort(devices);  // the order of ranks
    captured->devices = CollectiveSteps<Backend>::bits_of(devices);
    for (const std::size_t device : devices) captured->streams.push_back(&state_.any_stream(device));
    state_.history->begin("capture on " + std::to_string(devices.size()) + " devices");
    for (StreamOf* const stream : captured->streams) {
      // Memory for what is captured is there, and no work on it is in flight.
      if (state_.buffers[stream->device].empty()) state_.make(*stream, state_.any_bytes(256));
      state_.settle(*stream);
    }
    try {
      for (StreamOf* const stream : captured->streams) stream->client.graph_prepare();
      if (!captured->joint && state_.one_in(3)) {
        data_.work(*captured->streams.front());
        if (captured->streams.front()->most_untaken() != 0) state_.settle(*captured->streams.front());
      }
      for (StreamOf* const stream : captured->streams) stream->client.graph_start_capture();
      state_.capturing = captured.get();
      const std::size_t operations = state_.between(1, 5);
      for (std::size_t i = 0; i < operations; ++i) {
        if (captured->joint && state_.one_in(2)) {
          collectives_.collective(devices, captured->streams, 1);
        } else {
          data_.work(*captured->streams[state_.below(devices.size())]);
        }
      }
      state_.capturing = nullptr;
      for (StreamOf* const stream : captured->streams) {
        state_.history->begin("stop the capture on device " + std::to_string(stream->device));
        captured->graphs.push_back(stream->client.graph_stop_capture());
      }
    } catch (...) {
      leave(*captured);
      throw;
    }
    state_.graphs.push_back(std::move(captured));
  }

  void replay() {
    if (state_.graphs.empty()) return capture();
    const std::size_t index = state_.below(state_.graphs.size());
    Captured& captured = *state_.graphs[index];
    std::string text = "replay of graph " + std::to_string(index) + " on";
    for (const StreamOf* const stream : captured.streams)
      text += " " + std::to_string(stream->client.stream_id().value);
    state_.history->begin(text);
    if (captured.joint && !is_known(captured)) return state_.history->add(", not with poison");
    const bool late = state_.one_in(4);
    if (late)
      for (StreamOf* const stream : captured.streams) data_.hold_up(*stream);
    {
      const std::lock_guard order(state_.world.order_of(captured.devices));
      for (const auto& graph : captured.graphs) graph.replay();
    }
    if (captured.joint)
      for (StreamOf* const stream : captured.streams) {
        stream->joint |= captured.devices;
        stream->joint_count += captured.effects.size();
      }
    apply(captured);
    if (state_.one_in(late ? 2 : 6)) {
      state_.history->add(", then dropped");
      state_.graphs.erase(state_.graphs.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }

  void drop() {
    state_.history->begin("drop a graph");
    if (state_.graphs.empty()) return;
    const std::size_t index = state_.below(state_.graphs.size());
    state_.graphs.erase(state_.graphs.begin() + static_cast<std::ptrdiff_t>(index));
  }

 private:
  // After a failure: the captures that still go on end.
  void leave(const Captured& captured) noexcept {
    state_.capturing = nullptr;
    for (std::size_t i = captured.graphs.size(); i < captured.streams.size(); ++i) try {
        static_cast<void>(captured.streams[i]->client.graph_stop_capture());
      } catch (const std::exception&) {  // its capture has failed, or was not begun
      }
  }
  static bool is_known(const Captured& captured) {
    return std::ranges::all_of(captured.uses, [](const auto& use) { return use.buffer->known; });
  }
  // A replay without collectives is one operation (L14).
  void apply(const Captured& captured) {
    std::vector<BufferPtr> reads;
    std::vector<BufferPtr> writes;
    for (const auto& use : captured.uses) {
      if (use.reads) reads.push_back(use.buffer);
      if (use.writes) writes.push_back(use.buffer);
    }
    state_.runs(*captured.streams.front(), reads, writes, [&] {
      for (const auto& effect : captured.effects) effect();
    });
  }

  StateOf& state_;
  DataSteps<Backend>& data_;
  CollectiveSteps<Backend>& collectives_;
};

}  // namespace cox::fuzz
