#include <coxswain/servers/cuda/copy/small_read.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <atomic>
#include <utility>

namespace cox::detail {
namespace {

// For this long only the words are polled: a copy that has nothing to wait for completes within this time.
constexpr std::chrono::microseconds words_alone{10};
// For this long the words and the event are polled. After that CudaEvent::wait_until polls the event alone, less and
// less often.
constexpr std::chrono::microseconds look_for{100};

/// Calls `function(word, sentinel)` for each word until it returns false. Returns whether it returned true for all
/// words.
template <class Word, class F>
bool all_words_of(std::span<std::byte> bytes, const F& function) {
  auto* const words = reinterpret_cast<Word*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / sizeof(Word); ++i)
    if (!function(std::atomic_ref<Word>(words[i]), static_cast<Word>(SmallRead::sentinel >> (32 - 8 * sizeof(Word)))))
      return false;
  return true;
}

template <class F>
bool all_words(std::span<std::byte> bytes, std::size_t word_size, const F& function) {
  switch (word_size) {
    case 4: return all_words_of<std::uint32_t>(bytes, function);
    case 2: return all_words_of<std::uint16_t>(bytes, function);
    default: return all_words_of<std::uint8_t>(bytes, function);
  }
}

}  // namespace

void SmallRead::begin(CUdeviceptr address, CUstream stream) {
  all_words(destination_, word_size(destination_.size()), [](auto word, auto value) {
    word.store(value, std::memory_order_release);
    return true;
  });
  COX_CUDA_TRY(copy_to_host(destination_.data(), address, destination_.size(), stream));
}

// Acquire: all that the device wrote before the words is visible.
bool SmallRead::has_arrived() noexcept {
  const bool come = all_words(destination_, word_size(destination_.size()),
                              [](auto word, auto value) { return word.load(std::memory_order_acquire) != value; });
  if (come) event_->mark_reached();
  return come;
}

bool SmallRead::reached() noexcept { return has_arrived() || event_->reached(); }

void SmallRead::wait() noexcept { static_cast<void>(wait_until(std::chrono::steady_clock::time_point::max())); }

bool SmallRead::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  for (auto now = begin; now < deadline && now - begin < look_for; now = std::chrono::steady_clock::now())
    if (has_arrived() || (now - begin >= words_alone && event_->poll())) return true;
  return event_->wait_until(deadline);
}

}  // namespace cox::detail
