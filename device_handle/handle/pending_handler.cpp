#include <coxswain/device_handle/handle/pending_handler.hpp>

namespace cox::detail {

class PendingHandlers::Service final : public boost::asio::execution_context::service {
 public:
  using key_type = Service;
  static inline boost::asio::execution_context::id id;

  explicit Service(boost::asio::execution_context& context) : service(context) {}
  [[nodiscard]] const std::shared_ptr<PendingHandlers>& handlers() const noexcept { return handlers_; }

 private:
  void shutdown() noexcept override { handlers_->drop_all(); }

  std::shared_ptr<PendingHandlers> handlers_ = std::make_shared<PendingHandlers>();
};

std::shared_ptr<PendingHandlers> PendingHandlers::for_context(boost::asio::execution_context& context) {
  return boost::asio::use_service<Service>(context).handlers();
}

// One at a time, without allocation and without holding the lock: a handler's destructor may start or end operations.
void PendingHandlers::drop_all() noexcept {
  std::unique_lock lock(mutex_);
  closed_ = true;
  while (first_ != nullptr) {
    // Null only if the call that started the operation has thrown and destroys it, with its handler, on its own thread.
    std::shared_ptr<PendingHandler> handler = first_->weak_from_this().lock();
    first_->unlink();
    lock.unlock();
    if (handler != nullptr) handler->drop_handler();
    handler.reset();  // also without the lock: it may be the last reference
    lock.lock();
  }
  given_up_.wait(lock, [this] { return giving_up_ == 0; });
}

bool PendingHandler::attach_to(std::shared_ptr<PendingHandlers> list) {
  list_ = std::move(list);
  const std::scoped_lock lock(list_->mutex_);
  if (list_->closed_) return false;
  next_ = std::exchange(list_->first_, this);
  if (next_ != nullptr) next_->previous_ = this;
  linked_ = true;
  return true;
}

bool PendingHandler::claim() noexcept {
  if (list_ == nullptr) return true;
  const std::scoped_lock lock(list_->mutex_);
  if (!linked_) return false;
  unlink();
  return true;
}

void PendingHandler::give_up() noexcept {
  if (list_ == nullptr) return drop_handler();
  {
    const std::scoped_lock lock(list_->mutex_);
    if (!linked_) return;
    unlink();
    ++list_->giving_up_;
  }
  drop_handler();
  const std::scoped_lock lock(list_->mutex_);
  --list_->giving_up_;
  list_->given_up_.notify_all();
}

void PendingHandler::detach() noexcept {
  if (list_ == nullptr) return;
  const std::scoped_lock lock(list_->mutex_);
  if (linked_) unlink();
}

void PendingHandler::unlink() noexcept {
  (previous_ != nullptr ? previous_->next_ : list_->first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  previous_ = next_ = nullptr;
  linked_ = false;
}

}  // namespace cox::detail
