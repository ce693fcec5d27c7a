#pragma once

#include <boost/asio/execution/context_as.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/query.hpp>

#include <memory>
#include <mutex>
#include <utility>

namespace cox::detail {

class PendingHandler;

/// The handlers of one Asio execution context that wait for a device. When the context is destroyed first, it destroys
/// them, as it does those of Asio's own operations; a device that completes such an operation later posts nothing.
class PendingHandlers {
 public:
  /// Of `context`. Throws std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PendingHandlers> for_context(boost::asio::execution_context& context);

 private:
  friend class PendingHandler;
  class Service;

  void drop_all() noexcept;

  std::mutex mutex_;
  bool closed_ = false;              // guarded by mutex_, as all below
  PendingHandler* first_ = nullptr;  // linked both ways
};

/// An asynchronous operation whose completion handler belongs to an execution context. Owned by std::shared_ptr.
class PendingHandler : public std::enable_shared_from_this<PendingHandler> {
 public:
  PendingHandler() = default;
  PendingHandler(const PendingHandler&) = delete;
  PendingHandler& operator=(const PendingHandler&) = delete;

 protected:
  /// Not while the operation is attached to a context that another thread may destroy, that is: by its last owner.
  virtual ~PendingHandler() { detach(); }

  /// Once, before the operation can complete: from now on drop_handler() may be called. Throws std::bad_alloc.
  template <class Executor>
  void attach(const Executor& executor) {
    using Context = boost::asio::execution::context_as_t<boost::asio::execution_context&>;
    if constexpr (boost::asio::can_query<const Executor&, Context>::value)
      attach_to(PendingHandlers::for_context(boost::asio::query(executor, Context{})));
  }

  /// Calls `post()`, which gives the handler to its executor and does not run it, unless the context has been
  /// destroyed; that waits meanwhile. Throws what `post` throws; then it may be called again.
  template <class Post>
  void post_unless_dropped(Post&& post) {
    if (list_ == nullptr) return std::forward<Post>(post)();
    const std::scoped_lock lock(list_->mutex_);
    if (!linked_) return;
    std::forward<Post>(post)();
    unlink();
  }

 private:
  friend class PendingHandlers;

  /// Destroys the handler and all that refers to its executor. On the thread that destroys the context.
  virtual void drop_handler() noexcept = 0;

  void attach_to(std::shared_ptr<PendingHandlers> list);
  void detach() noexcept;
  void unlink() noexcept;

  std::shared_ptr<PendingHandlers> list_;
  PendingHandler* previous_ = nullptr;  // guarded by the list's mutex, as all below
  PendingHandler* next_ = nullptr;
  bool linked_ = false;
};

}  // namespace cox::detail
