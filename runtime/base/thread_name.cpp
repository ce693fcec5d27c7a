#include <coxswain/runtime/base/thread_name.hpp>

#include <pthread.h>

#include <algorithm>
#include <array>

namespace cox::detail {

void name_this_thread(const std::string& name) noexcept {
  std::array<char, 16> text{};
  name.copy(text.data(), std::min(name.size(), text.size() - 1));
  pthread_setname_np(pthread_self(), text.data());
}

}  // namespace cox::detail
