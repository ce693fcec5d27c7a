#pragma once

#include <boost/asio/execution/context_as.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/query.hpp>

#include <memory>
#include <mutex>
#include <utility>

namespace cox::detail {

class PendingHandler;

/// The handlers of one Asio execution context that wait for a device. If the context is destroyed first, it destroys
/// them, like the handlers of Asio's own operations. A device that completes such an operation later posts nothing.
class PendingHandlers {
 public:
  /// Returns the list of `context`. Throws std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PendingHandlers> for_context(boost::asio::execution_context& context);

 private:
  friend class PendingHandler;
  class Service;

  void drop_all() noexcept;

  std::mutex mutex_;
  bool closed_ = false;              // guarded by mutex_, like all members below
  PendingHandler* first_ = nullptr;  // doubly linked list
};

/// An asynchronous operation whose completion handler belongs to an execution context. Owned by std::shared_ptr.
class PendingHandler : public std::enable_shared_from_this<PendingHandler> {
 public:
  PendingHandler() = default;
  PendingHandler(const PendingHandler&) = delete;
  PendingHandler& operator=(const PendingHandler&) = delete;

 protected:
  /// An attached operation must be destroyed by its last shared_ptr owner only, because another thread may be
  /// destroying the context.
  virtual ~PendingHandler() { detach(); }

  /// Called once, before the operation can complete. From then on drop_handler() may be called. Throws std::bad_alloc.
  template <class Executor>
  void attach(const Executor& executor) {
    using Context = boost::asio::execution::context_as_t<boost::asio::execution_context&>;
    if constexpr (boost::asio::can_query<const Executor&, Context>::value)
      attach_to(PendingHandlers::for_context(boost::asio::query(executor, Context{})));
  }

  /// Calls `post()` unless the context has been destroyed. `post` must enqueue the handler on its executor and not run
  /// it. The destruction of the context waits until `post` has returned. Throws what `post` throws; then it may be
  /// called again.
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

  /// Destroys the handler and everything that refers to its executor. Called on the thread that destroys the context.
  virtual void drop_handler() noexcept = 0;

  void attach_to(std::shared_ptr<PendingHandlers> list);
  void detach() noexcept;
  void unlink() noexcept;

  std::shared_ptr<PendingHandlers> list_;
  PendingHandler* previous_ = nullptr;  // guarded by the list's mutex, like all members below
  PendingHandler* next_ = nullptr;
  bool linked_ = false;
};

}  // namespace cox::detail
