#include <coxswain/device_handle/service/thread_context.hpp>

#include <coxswain/device_handle/service/post_queue.hpp>

#include <cstddef>

namespace cox {

void ThreadContext::answer_posts() noexcept {
  for (std::size_t i = 0; i < posts_.size(); ++i) {  // one that answers may attach another
    if (const std::shared_ptr<PostQueue> posts = posts_[i].lock()) posts->answer();
  }
}

}  // namespace cox
