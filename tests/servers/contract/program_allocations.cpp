#include <coxswain/tests/servers/contract/random_program.hpp>

#include <algorithm>
#include <span>

namespace cox::test {
namespace {

template <class Server>
std::size_t on_device(std::size_t bytes) {
  return (bytes / Server::memory_alignment + 1) * Server::memory_alignment;
}

}  // namespace

template <class Backend>
std::shared_ptr<ProgramStorage> RandomProgram<Backend>::storage_of(std::size_t bytes) {
  auto storage = std::make_shared<ProgramStorage>(on_device<typename Backend::Server>(bytes), bytes);
  storage->move_to(&account_);
  return storage;
}

template <class Backend>
MemoryLayoutDescriptor RandomProgram<Backend>::any_tensor(std::size_t bytes) {
  const std::size_t elem_size = 4 * between(1, 3);
  const std::size_t elements = std::max<std::size_t>(bytes / elem_size, 1);
  if (one_in(3)) return MemoryLayoutDescriptor::contiguous({elements}, elem_size);
  const std::size_t columns = between(1, std::min<std::size_t>(elements, 200));
  const std::size_t rows = std::max<std::size_t>(elements / columns, 1);
  if (one_in(3)) return MemoryLayoutDescriptor::optimized({between(1, 2), rows, columns}, elem_size);
  return MemoryLayoutDescriptor::optimized({rows, columns}, elem_size);
}

template <class Backend>
std::shared_ptr<ProgramRegion> RandomProgram<Backend>::region_of(const std::shared_ptr<ProgramStorage>& storage,
                                                                 const MemoryLayoutDescriptor& tensor, Strides strides,
                                                                 std::size_t size) {
  auto region = std::make_shared<ProgramRegion>();
  region->id = next_region_++;
  region->words.resize(size / 4);
  region->shape = tensor.shape;
  region->strides = std::move(strides);
  region->elem_size = tensor.elem_size;
  region->storage = storage;
  return region;
}

// Four ways to come by buffers, with content and without. What has none is filled at once, on any stream; of padded
// tensors with content, some keep rows with nothing in between and are used as tensors only.
template <class Backend>
void RandomProgram<Backend>::allocate() {
  using Server = typename Backend::Server;
  const Client& client = any_stream();
  const std::size_t count = one_in(4) ? between(2, 4) : 1;
  std::vector<MemoryLayoutDescriptor> tensors;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back(any_tensor(any_size() / count + 4));
    bytes += on_device<Server>(typename Server::LayoutPolicy(Server::memory_alignment).extent(tensors[i]).size);
  }
  if (bytes > options_.largest * 2) return;
  make_room(bytes);
  const bool filled = one_in(2);
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> given;
  for (const MemoryLayoutDescriptor& tensor : tensors) {
    if (!filled) break;
    const auto words = any_words(*element_count(tensor.shape) * tensor.elem_size / 4);
    const auto raw = std::as_bytes(std::span(words));
    contents.emplace_back(raw.begin(), raw.end());
    given.emplace_back(tensor, one_in(2) ? Bytes::copy_of(words) : Bytes::from_vector(words));
  }
  SmallVector<MemoryLayout, 1> layouts;
  if (count > 1) {
    layouts = filled ? client.create_tensors(std::move(given)) : client.empty_tensors(tensors);
  } else if (tensors[0].strategy == MemoryLayoutStrategy::Contiguous) {
    const std::size_t size = *element_count(tensors[0].shape) * tensors[0].elem_size;
    Handle handle = filled ? client.create(std::move(given[0].second)) : client.empty(size);
    layouts.push_back({std::move(handle), contiguous_strides(tensors[0].shape)});
  } else {
    const Shape shape = tensors[0].shape;
    const std::size_t elem_size = tensors[0].elem_size;
    layouts.push_back(filled ? client.create_tensor(std::move(given[0].second), shape, elem_size)
                             : client.empty_tensor(shape, elem_size));
  }
  const auto storage = storage_of(layouts[0].memory.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = layouts[i].memory.size_in_used();
    auto region = region_of(storage, tensors[i], layouts[i].strides, size);
    ProgramWindow window{std::move(layouts[i].memory), std::move(region), 0};
    ProgramRegion& made = *window.region;
    made.touch(step_, client.stream_id().value, filled ? "create" : "empty");
    if (filled) {
      const ProgramRows rows = rows_of(made);
      scatter(contents[i], made.bytes(), rows);
      made.defined = rows.rows * rows.row == size;
      if (!made.defined && one_in(2)) define(window);
    } else {
      define(window);
    }
    // Into any place: what is among the hot ones changes.
    windows_.push_back(std::move(window));
    if (one_in(4)) std::swap(windows_[below(windows_.size())], windows_.back());
  }
}

template <class Backend>
void RandomProgram<Backend>::define(const ProgramWindow& window) {
  window.region->defined = true;
  const ProgramScalars scalars{static_cast<std::uint32_t>(random_()), static_cast<std::uint32_t>(step_), 1};
  submit_launch(program_jobs[0], {{window, true}}, scalars, true);
}

template <class Backend>
void RandomProgram<Backend>::allocate_counts(std::size_t place) {
  make_room(64);
  const Client& client = any_stream();
  const std::size_t size = between(3, 16);
  std::vector<std::uint32_t> words(size);
  for (std::uint32_t& word : words) word = one_in(8) ? 0 : static_cast<std::uint32_t>(between(1, 2));
  Handle handle = client.create_from_slice(std::span<const std::uint32_t>(words));
  auto region = region_of(storage_of(4 * size), MemoryLayoutDescriptor::contiguous({size}, 4), {1}, 4 * size);
  region->words = std::move(words);
  region->touch(step_, client.stream_id().value, "create (count)");
  ProgramWindow window{std::move(handle), std::move(region), 0};
  if (place < counts_.size()) {
    counts_[place] = std::move(window);
  } else {
    counts_.push_back(std::move(window));
  }
}

COX_INSTANTIATE_RANDOM_PROGRAM

}  // namespace cox::test
