#pragma once

#include <boost/asio/execution/context_as.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/query.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace cox::detail {

class PendingHandler;

/// The handlers of one Asio execution context that wait for a device or have been posted and have not run. If the
/// context is destroyed first, it destroys them, like the handlers of Asio's own operations, on the thread that
/// destroys it. A device that completes such an operation later posts nothing.
class PendingHandlers {
 public:
  /// Returns the list of `context`. Throws std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PendingHandlers> for_context(boost::asio::execution_context& context);

 private:
  friend class PendingHandler;
  class Service;

  void drop_all() noexcept;

  std::mutex mutex_;
  std::condition_variable given_up_;
  bool closed_ = false;              // guarded by mutex_, like all members below
  PendingHandler* first_ = nullptr;  // doubly linked list
  int giving_up_ = 0;                // calls of PendingHandler::give_up() that destroy a handler
};

/// An asynchronous operation whose completion handler belongs to an execution context. Owned by std::shared_ptr.
///
/// The handler, and everything else that refers to the context, is destroyed before the context is, even if other
/// threads still own the operation then, and even if the context destroys the function that was posted to it without
/// calling it:
///
///     attach --> post_unless_dropped --> claim, on the executor: the handler is called
///       |                 |`-----------> give_up: the executor cannot be reached
///       `-----------------+------------> drop_handler: the context is destroyed
class PendingHandler : public std::enable_shared_from_this<PendingHandler> {
 public:
  PendingHandler() = default;
  PendingHandler(const PendingHandler&) = delete;
  PendingHandler& operator=(const PendingHandler&) = delete;

 protected:
  virtual ~PendingHandler() { detach(); }

  /// Called once, before the operation can complete; from then on drop_handler() may be called. Returns false if the
  /// context is being destroyed: nothing will be posted, and the caller has to destroy the handler, at the end of what
  /// it does, since the handler may own what called it. Throws std::bad_alloc.
  template <class Executor>
  [[nodiscard]] bool attach(const Executor& executor) {
    using Context = boost::asio::execution::context_as_t<boost::asio::execution_context&>;
    if constexpr (boost::asio::can_query<const Executor&, Context>::value) {
      return attach_to(PendingHandlers::for_context(boost::asio::query(executor, Context{})));
    } else {
      return true;
    }
  }

  /// Calls `post()` unless the handler has been dropped. `post` must enqueue a function on the executor and not run it;
  /// the function calls claim(). The destruction of the context waits until `post` has returned. Throws what `post`
  /// throws; then it may be called again.
  template <class Post>
  void post_unless_dropped(Post&& post) {
    if (list_ == nullptr) return std::forward<Post>(post)();
    const std::scoped_lock lock(list_->mutex_);
    if (linked_) std::forward<Post>(post)();
  }

  /// Called by the posted function. Returns whether the handler may be called; otherwise it has been dropped.
  [[nodiscard]] bool claim() noexcept;

  /// Calls drop_handler() unless that has been done: the handler cannot be posted. The destruction of the context waits
  /// until it has returned.
  void give_up() noexcept;

 private:
  friend class PendingHandlers;

  /// Destroys the handler and everything that refers to its executor. Called with no lock held.
  virtual void drop_handler() noexcept = 0;

  [[nodiscard]] bool attach_to(std::shared_ptr<PendingHandlers> list);
  void detach() noexcept;
  void unlink() noexcept;

  std::shared_ptr<PendingHandlers> list_;
  PendingHandler* previous_ = nullptr;  // guarded by the list's mutex, like all members below
  PendingHandler* next_ = nullptr;
  bool linked_ = false;
};

}  // namespace cox::detail
