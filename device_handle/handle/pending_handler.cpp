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
  for (;;) {
    std::shared_ptr<PendingHandler> handler;
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
      if (first_ == nullptr) return;
      handler = first_->weak_from_this().lock();  // null: it is being destroyed, and its destructor waits for the lock
      first_->unlink();
    }
    if (handler != nullptr) handler->drop_handler();
  }
}

void PendingHandler::attach_to(std::shared_ptr<PendingHandlers> list) {
  list_ = std::move(list);
  const std::scoped_lock lock(list_->mutex_);
  if (list_->closed_) return;  // the context is being destroyed; the last owner destroys the handler
  next_ = std::exchange(list_->first_, this);
  if (next_ != nullptr) next_->previous_ = this;
  linked_ = true;
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
