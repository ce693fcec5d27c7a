#pragma once

#include <coxswain/runtime/launch/kernel_arguments.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace cox::detail {

/// KernelArguments in compact form, for the queue to the device thread; the arguments of most launches fit. A launch
/// with CompactArguments takes three cache lines of the queue, with KernelArguments six. Each cache line costs the
/// client up to 10 ns.
class CompactArguments {
 public:
  /// Whether `arguments` can be stored in this form: no tensor maps, and at most 12 words of buffers and metadata. The
  /// metadata must also fit into the inline capacity of MetadataBindingInfo, so that the device thread does not
  /// allocate in expand().
  [[nodiscard]] static bool fits(const KernelArguments& arguments) noexcept {
    return arguments.tensor_maps.empty() &&
           arguments.info.data.size() <= decltype(arguments.info.data)::inline_capacity &&
           arguments.buffers.words().size() + arguments.info.data.size() <= max_words &&
           arguments.info.dynamic_metadata_offset <= std::numeric_limits<std::uint8_t>::max();
  }

  /// Precondition: fits(arguments).
  explicit CompactArguments(KernelArguments&& arguments) noexcept
      : buffer_words_(static_cast<std::uint8_t>(arguments.buffers.words().size())),
        info_words_(static_cast<std::uint8_t>(arguments.info.data.size())),
        dynamic_metadata_offset_(static_cast<std::uint8_t>(arguments.info.dynamic_metadata_offset)) {
    arguments.buffers.take_words(buffers());
    std::ranges::copy(arguments.info.data, &words_[buffer_words_]);
  }
  CompactArguments(CompactArguments&& other) noexcept
      : buffer_words_(std::exchange(other.buffer_words_, 0)),
        info_words_(other.info_words_),
        dynamic_metadata_offset_(other.dynamic_metadata_offset_),
        words_(other.words_) {}
  CompactArguments& operator=(CompactArguments&&) = delete;
  ~CompactArguments() { KernelBuffers().adopt_words(buffers()); }

  [[nodiscard]] KernelArguments expand() && noexcept {
    KernelArguments arguments;
    for (const std::uint64_t word : std::span(words_).subspan(buffer_words_, info_words_))
      arguments.info.data.push_back(word);
    arguments.info.dynamic_metadata_offset = dynamic_metadata_offset_;
    arguments.buffers.adopt_words(buffers());
    buffer_words_ = 0;
    return arguments;
  }

 private:
  static constexpr std::size_t max_words = 12;

  [[nodiscard]] std::span<std::uint64_t> buffers() noexcept { return std::span(words_).first(buffer_words_); }

  std::uint8_t buffer_words_;
  std::uint8_t info_words_;
  std::uint8_t dynamic_metadata_offset_;
  std::array<std::uint64_t, max_words> words_;  // words of the buffers, then of the metadata
};
static_assert(sizeof(CompactArguments) == 104, "with the rest of a launch, three cache lines");

}  // namespace cox::detail
