#include <coxswain/tests/servers/contract/random_program.hpp>

#include <algorithm>
#include <span>

namespace cox::test {

template <class Backend>
void RandomProgram<Backend>::write() {
  const ProgramWindow& whole = windows_[any_window()];
  if (!whole.region->defined || whole.region->constant) return write_rows();
  const ProgramWindow window = any_part(whole, 4);
  const Client& client = any_stream();
  auto words = any_words(window.size() / 4);
  std::ranges::copy(words, window.words().begin());
  window.region->touch(step_, client.stream_id().value, "write");
  if (window.is_whole_allocation()) window.region->storage->heal();
  client.write(window.handle, Bytes::from_vector(std::move(words)));
}

// Rows of any width at any place of the window, elements of any size.
template <class Backend>
ProgramRows RandomProgram<Backend>::any_rows(std::size_t size, std::size_t& elem_size) {
  elem_size = std::size_t{1} << below(4);
  const std::size_t elements = std::max<std::size_t>(size / elem_size, 1);
  if (size < elem_size) elem_size = 1;
  const std::size_t pitch = between(1, std::min<std::size_t>(elements, 300));
  const std::size_t columns = between(1, pitch);
  const std::size_t rows = between(1, std::min<std::size_t>((elements - columns) / pitch + 1, 400));
  return {rows, columns * elem_size, pitch * elem_size};
}

template <class Backend>
void RandomProgram<Backend>::write_rows() {
  const ProgramWindow& window = windows_[any_window()];
  ProgramRegion& region = *window.region;
  if (region.constant) return;
  const Client& client = any_stream();
  ProgramRows rows = rows_of(region);
  CopyDescriptor to;
  if (region.defined) {
    std::size_t elem_size = 1;
    rows = any_rows(window.size(), elem_size);
    to = window.handle.copy_descriptor({rows.rows, rows.row / elem_size}, {rows.pitch / elem_size, 1}, elem_size);
  } else if (window.is_whole()) {
    to = window.handle.copy_descriptor(region.shape, region.strides, region.elem_size);
  } else {
    return;
  }
  const auto words = any_words((rows.rows * rows.row + 3) / 4);
  const auto dense = std::as_bytes(std::span(words)).first(rows.rows * rows.row);
  scatter(dense, window.bytes(), rows);
  region.touch(step_, client.stream_id().value, "write rows");
  // Padding belongs to the row before it.
  if (window.is_whole_allocation() && rows.rows * rows.pitch >= window.size()) region.storage->heal();
  client.write_tensor(std::move(to), Bytes::copy_of(dense));
}

template <class Backend>
void RandomProgram<Backend>::read() {
  const Client& client = any_stream();
  if (one_in(2)) expect_sync(client);  // the read does not report failures before it, so that its bytes are compared
  std::vector<Handle> handles;
  std::vector<Expected> expected;
  for (std::size_t count = between(1, 3); count > 0; --count) {
    const ProgramWindow& whole = one_in(8) ? counts_[below(counts_.size())] : windows_[any_window()];
    if (!whole.region->defined) continue;
    const ProgramWindow window = any_part(whole, 1);
    handles.push_back(window.handle);
    const auto bytes = window.bytes();
    expected.push_back(expected_of(window, {bytes.begin(), bytes.end()}, client));
  }
  expect(client.read_async(handles), std::move(expected), client);
}

template <class Backend>
void RandomProgram<Backend>::read_rows() {
  const Client& client = any_stream();
  if (one_in(2)) expect_sync(client);
  std::vector<CopyDescriptor> tensors;
  std::vector<Expected> expected;
  for (std::size_t count = between(1, 3); count > 0; --count) {
    const ProgramWindow& window = windows_[any_window()];
    const ProgramRegion& region = *window.region;
    if (window.is_whole() && (one_in(2) || !region.defined)) {
      tensors.push_back(window.handle.copy_descriptor(region.shape, region.strides, region.elem_size));
      expected.push_back(expected_of(window, gather(window.bytes(), rows_of(region)), client));
    } else if (region.defined) {
      std::size_t elem_size = 1;
      const ProgramRows rows = any_rows(window.size(), elem_size);
      tensors.push_back(
          window.handle.copy_descriptor({rows.rows, rows.row / elem_size}, {rows.pitch / elem_size, 1}, elem_size));
      expected.push_back(expected_of(window, gather(window.bytes(), rows), client));
    }
  }
  expect(client.read_tensor_async(std::move(tensors)), std::move(expected), client);
}

template <class Backend>
void RandomProgram<Backend>::read_now() {
  const ProgramWindow& window = windows_[any_window()];
  if (!window.region->defined) return;
  const Client& client = any_stream();
  std::vector<Expected> expected;
  expected.push_back(expected_of(window, {window.bytes().begin(), window.bytes().end()}, client));
  if (one_in(2)) settle(client);
  std::vector<ProgramFailure> failures = std::exchange(due_of(client).failures, {});
  check({client.read_async(std::vector<Handle>{window.handle}), std::move(expected), std::move(failures), step_,
         client.stream_id().value});
}

COX_INSTANTIATE_RANDOM_PROGRAM

}  // namespace cox::test
