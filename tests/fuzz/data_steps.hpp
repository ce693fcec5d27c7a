#pragma once

#include <coxswain/tests/fuzz/slow_kernel.hpp>
#include <coxswain/tests/fuzz/state.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// Allocations, uploads, downloads and kernels on one device.
template <class Backend>
class DataSteps {
 public:
  using StateOf = State<Backend>;
  using StreamOf = typename StateOf::StreamOf;
  using Work = typename Backend::Work;

  explicit DataSteps(StateOf& state) : state_(state) {}

  void create(StreamOf& stream) {
    if (state_.capturing != nullptr) return;
    const std::size_t size = state_.any_size();
    begin(stream, "create " + std::to_string(size));
    state_.make(stream, state_.any_bytes(size));
  }

  void create_tensor(StreamOf& stream) {
    constexpr std::array<std::size_t, 4> sizes{1, 2, 4, 8};
    const std::size_t rows = state_.one_in(8) ? 0 : state_.between(1, 12);
    const std::size_t columns = state_.one_in(12) ? 0 : state_.between(1, 40);
    const std::size_t elem_size = sizes[state_.below(sizes.size())];
    begin(stream, "create_tensor " + std::to_string(rows) + " x " + std::to_string(columns));
    auto buffer = std::make_shared<Buffer>();
    buffer->device = stream.device;
    buffer->bytes = state_.any_bytes(rows * columns * elem_size);
    const bool made = state_.allocated(stream, [&](const auto& client) {
      buffer->tensor =
          Tensor{client.create_tensor_from_slice(buffer->bytes, {rows, columns}, elem_size), rows, columns, elem_size};
    });
    if (made) state_.keep(std::move(buffer));
  }

  void drop(StreamOf& stream) {
    begin(stream, "drop a buffer");
    auto& all = state_.buffers[stream.device];
    if (!all.empty()) state_.drop(stream.device, state_.below(all.size()));
  }

  void write(StreamOf& stream) {
    const BufferPtr buffer = any_buffer(stream.device);
    if (buffer == nullptr) return create(stream);
    if (buffer->tensor) return write_tensor(stream, buffer);
    Window window{buffer, 0, buffer->size()};
    if (state_.one_in(2)) {
      window.begin = state_.below(window.size + 1);
      window.size = state_.below(window.size - window.begin + 1);
    }
    begin(stream, "write " + text_of(window));
    ByteVector bytes = state_.any_bytes(window.size);
    stream.client.write(window.handle(), Bytes::copy_of(bytes));
    state_.uploads(window, [window, bytes = std::move(bytes)] {
      std::ranges::copy(bytes, window.bytes().begin());
      window.written(true, 0);
    });
  }

  void read(StreamOf& stream) {
    std::vector<CopyDescriptor> parts;
    Awaited awaited;
    std::string text = "read";
    const std::size_t count = state_.between(1, 3);
    for (std::size_t i = 0; i < count; ++i) {
      const BufferPtr buffer = any_buffer(stream.device);
      if (buffer == nullptr) break;
      text += " " + add_part(*buffer, parts, awaited.expected);
    }
    if (parts.empty()) return create(stream);
    begin(stream, text);
    const bool good = std::ranges::all_of(awaited.expected, &Content::known);
    const bool drops = good && stream.most_untaken() == 0 && state_.one_in(16);
    awaited.due = stream.take();
    awaited.read = std::make_shared<Future<std::vector<Bytes>>>(stream.client.read_tensor_async(std::move(parts)));
    if (drops) return state_.history->add(", dropped");
    state_.await(stream, std::move(awaited));
  }

  void kernel(StreamOf& stream) {
    const Window to = state_.any_words(stream.device);
    if (to.buffer == nullptr) return create(stream);
    const std::uint32_t value = state_.word();
    const std::size_t words = to.size / 4;
    switch (state_.below(6)) {
      case 0: {
        begin(stream, "multiply_add " + text_of(to));
        launch(stream, Backend::multiply_add(to.handle(), 3, value));
        return state_.launches(stream, nullptr, to, [=] {
          for (std::size_t i = 0; i < words; ++i) to.set_word(i, to.word(i) * 3 + value);
          to.written(to.buffer->known, to.buffer->joint);
        });
      }
      case 1: {
        begin(stream, "slow kernel on " + text_of(to));
        launch(stream, slow<Backend>(to.handle(), static_cast<std::uint32_t>(state_.between(50, 2000))));
        return state_.launches(stream, nullptr, to, [] {});
      }
      case 2:
      case 3: {
        Window from = state_.any_words(stream.device, to.buffer);
        if (from.buffer == nullptr || from.size < to.size) break;
        from.size = to.size;
        return state_.one_in(2) ? copy(stream, from, to) : add(stream, from, to);
      }
      case 4: return fill_dynamic(stream, to, value);
      default: break;
    }
    begin(stream, "fill " + text_of(to));
    launch(stream, Backend::fill(to.handle(), value));
    state_.launches(stream, nullptr, to, [=] { set_all(to, value); });
  }

  /// The stream waits on the host for a while: for a large upload, which waits for a kernel of another stream.
  void hold_up(StreamOf& stream) {
    if (state_.world.tight()) return;
    state_.history->add(", held up on device " + std::to_string(stream.device) + " stream " +
                        std::to_string(stream.client.stream_id().value));
    const BufferPtr large = state_.make(stream, state_.any_bytes(std::size_t{256} << 10U));
    StreamOf& other = state_.any_stream(stream.device);
    launch(other, slow<Backend>(large->handle, static_cast<std::uint32_t>(state_.between(100, 3000))));
    large->bytes = state_.any_bytes(large->size());
    stream.client.write(large->handle, Bytes::copy_of(std::span<const std::byte>(large->bytes)));
  }

  /// Calls that look at the device, and syncs.
  void meet(StreamOf& stream) {
    switch (state_.below(5)) {
      case 0: {
        begin(stream, "flush");
        stream.check_all();
        std::string text;
        const std::size_t failed = failures_of([&] { stream.client.flush(); }, "a flush", &text);
        if (failed > stream.due.most + stream.late)
          throw Difference("a flush had " + std::to_string(failed) + " failures of " + stream.due.text() + ": " + text);
        stream.due.least -= std::min(stream.due.least, failed);
        stream.due.most -= std::min(stream.due.most, failed);
        return;
      }
      case 1: begin(stream, "memory_cleanup"); return stream.client.memory_cleanup();
      case 2: {
        begin(stream, "memory_usage");
        const std::size_t failed =
            failures_of([&] { static_cast<void>(stream.client.memory_usage()); }, "memory_usage");
        if (failed > stream.most_untaken())
          throw Difference("memory_usage was refused for failures that are not there");
        return;
      }
      case 3: {
        begin(stream, "sync and wait");
        state_.settle(stream);
        return;
      }
      default: {
        begin(stream, "sync");
        Awaited awaited;
        awaited.due = stream.take();
        awaited.sync = std::make_shared<Future<void>>(stream.client.sync());
        return state_.await(stream, std::move(awaited));
      }
    }
  }

  /// A kernel or a write, as the work of a capture or of a profile.
  void work(StreamOf& stream) { state_.one_in(3) ? write(stream) : kernel(stream); }

 private:
  void begin(StreamOf& stream, const std::string& text) {
    state_.history->begin("device " + std::to_string(stream.device) + " stream " +
                          std::to_string(stream.client.stream_id().value) + ": " + text);
  }
  static std::string text_of(const Window& window) {
    return std::to_string(window.begin) + "+" + std::to_string(window.size) + " of " +
           std::to_string(window.buffer->size());
  }
  static void launch(StreamOf& stream, Work work) {
    stream.client.launch(std::move(work.kernel), std::move(work.count), std::move(work.arguments));
  }
  static void set_all(const Window& to, std::uint32_t value) {
    for (std::size_t i = 0; i < to.size / 4; ++i) to.set_word(i, value);
    to.written(true, 0);
  }
  BufferPtr any_buffer(std::size_t device) {
    auto& all = state_.buffers[device];
    return all.empty() ? nullptr : all[state_.below(all.size())];
  }

  void write_tensor(StreamOf& stream, const BufferPtr& buffer) {
    begin(stream, "write_tensor of " + std::to_string(buffer->size()));
    const Tensor& tensor = *buffer->tensor;
    const std::size_t count = state_.one_in(2) ? tensor.rows : state_.below(tensor.rows + 1);
    const std::size_t first = state_.below(tensor.rows - count + 1);
    const std::size_t row = tensor.columns * tensor.elem_size;
    ByteVector bytes = state_.any_bytes(count * row);
    stream.client.write_tensor(tensor.descriptor(first, count), Bytes::copy_of(bytes));
    if (bytes.empty() && tensor.layout.memory.size() != 0) return;  // nothing is done
    const Window window{buffer, first * row, bytes.size()};
    state_.uploads(window, [window, bytes = std::move(bytes)] {
      std::ranges::copy(bytes, window.bytes().begin());
      window.written(true, 0);
    });
  }

  // A part of the buffer as a read finds it. Returns its text.
  std::string add_part(const Buffer& buffer, std::vector<CopyDescriptor>& parts, std::vector<Content>& expected) {
    std::size_t begin = 0;
    std::size_t size = buffer.size();
    if (buffer.tensor) {
      const Tensor& tensor = *buffer.tensor;
      const std::size_t count = state_.one_in(2) ? tensor.rows : state_.below(tensor.rows + 1);
      const std::size_t first = state_.below(tensor.rows - count + 1);
      begin = first * tensor.columns * tensor.elem_size;
      size = count * tensor.columns * tensor.elem_size;
      parts.push_back(tensor.descriptor(first, count));
    } else {
      if (state_.one_in(2)) {
        begin = state_.below(size + 1);
        size = state_.below(size - begin + 1);
      }
      parts.push_back(
          buffer.handle.offset_start(begin).offset_end(buffer.size() - begin - size).copy_descriptor({size}, {1}, 1));
    }
    const auto from = buffer.bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    expected.push_back({{from, from + static_cast<std::ptrdiff_t>(size)}, buffer.known, buffer.poisoned, buffer.joint});
    return std::to_string(begin) + "+" + std::to_string(size) + " of " + std::to_string(buffer.size());
  }

  void copy(StreamOf& stream, const Window& from, const Window& to) {
    begin(stream, "copy " + text_of(from) + " to " + text_of(to));
    launch(stream, Backend::copy(from.handle(), to.handle()));
    state_.launches(stream, from.buffer, to, [=] {
      std::ranges::copy(from.bytes(), to.bytes().begin());
      to.written(from.buffer->known, from.buffer->joint);
    });
  }
  void add(StreamOf& stream, const Window& from, const Window& to) {
    begin(stream, "add " + text_of(from) + " to " + text_of(to));
    launch(stream, Backend::add_to(from.handle(), to.handle()));
    state_.launches(stream, from.buffer, to, [=] {
      for (std::size_t i = 0; i < to.size / 4; ++i) to.set_word(i, to.word(i) + from.word(i));
      to.written(from.buffer->known && to.buffer->known, from.buffer->joint | to.buffer->joint);
    });
  }
  // With as many cubes as device memory says when it is the kernel's turn: one, or none.
  void fill_dynamic(StreamOf& stream, const Window& to, std::uint32_t value) {
    const bool none = state_.one_in(3);
    begin(stream, std::string("fill by a dynamic count of ") + (none ? "0, " : "1, ") + text_of(to));
    if (state_.capturing != nullptr || state_.world.tight()) {
      launch(stream, Backend::fill(to.handle(), value));
      return state_.launches(stream, nullptr, to, [=] { set_all(to, value); });
    }
    const std::vector<std::uint32_t> cubes{none ? 0U : 1U, 1, 1};
    Work work = Backend::fill(to.handle(), value);
    const Handle count = stream.client.create(Bytes::copy_of(cubes));
    launch(stream, std::move(work).with_count(CubeCount::dynamic(count)));
    state_.launches(stream, nullptr, to, [=] {
      if (!none) set_all(to, value);
    });
  }

  StateOf& state_;
};

}  // namespace cox::fuzz
