#include <coxswain/servers/cuda/copy/peer_copy.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <algorithm>
#include <source_location>
#include <utility>

namespace cox::detail {
namespace {

/// Copies rows of one length. A dense side is divided into rows of the same length as those of the other side.
void copy(const PeerRange& from, CUcontext from_context, const PeerRange& to, CUcontext to_context, CUstream stream) {
  const std::size_t bytes = from.rows.size();
  if (bytes == 0) return;
  if (from.rows.is_linear() && to.rows.is_linear()) {
    COX_CUDA_TRY(copy_to_peer(to.address, to_context, from.address, from_context, bytes, stream));
    return;
  }
  const CopyPlan& rows = from.rows.is_linear() ? to.rows : from.rows;
  const auto pitch = [&rows](const PeerRange& side) {
    return side.rows.is_linear() ? rows.row_bytes : side.rows.pitch;
  };
  if (!from.rows.is_linear() && !to.rows.is_linear() && from.rows.row_bytes != to.rows.row_bytes)
    throw CollectiveError(CollectiveError::Kind::Unsupported,
                          "transfers between tensors that are padded differently are not supported: rows of " +
                              std::to_string(from.rows.row_bytes) + " and " + std::to_string(to.rows.row_bytes) +
                              " bytes",
                          std::source_location());
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.address;
  copy.srcContext = from_context;
  copy.srcPitch = pitch(from);
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to.address;
  copy.dstContext = to_context;
  copy.dstPitch = pitch(to);
  copy.WidthInBytes = rows.row_bytes;
  copy.Height = rows.rows;
  copy.Depth = 1;
  COX_CUDA_TRY(copy_rows_to_peer(&copy, stream));
}

/// After a failure, copies that were queued before still use the memory of both sides. Returns an event after them;
/// null if they have completed.
std::shared_ptr<CudaEvent> end_of_queued(CUstream stream, CudaEvents& events) noexcept {
  try {
    return events.record(stream);
  } catch (...) {
    COX_CUDA_CHECK(stream_synchronize(stream));
    return nullptr;
  }
}

}  // namespace

void PeerCopy::arrive(std::size_t place, Side side) {
  {
    const std::lock_guard lock(mutex_);
    sides_[place] = std::move(side);
    if (!std::exchange(first_arrived_, true)) return;
  }
  // Without the lock: both sides have arrived, so no other thread writes them.
  const std::shared_ptr<PeerCopyStream> stream = sides_[0].stream;
  stream->complete(*this);
}

void PeerCopy::issue() noexcept {
  auto [sender, receiver] = std::move(sides_);
  End end{.error = sender.failure != nullptr ? sender.failure : receiver.failure,
          .is_refused = false,
          .event = nullptr,
          .may_fail = sender.may_fail};
  if (end.error == nullptr && sender.refusal != nullptr) {
    end.error = sender.refusal;
    end.is_refused = true;
  }
  if (end.error == nullptr) {
    const CurrentContext current(sender.events->context());
    const CUstream stream = sender.stream->stream_->queue().native().native();
    try {
      for (const Side* waited_for : {&sender, &receiver})
        for (const auto& event : waited_for->ready) event->enqueue_wait(stream);
      for (std::size_t i = 0; i < std::min(sender.ranges.size(), receiver.ranges.size()); ++i)
        copy(sender.ranges[i], sender.events->context().native(), receiver.ranges[i],
             receiver.events->context().native(), stream);
      end.event = sender.events->record(stream);
    } catch (...) {
      end.error = std::current_exception();
      end.event = end_of_queued(stream, *sender.events);
    }
  }
  receiver.on_completed(end);  // first, since a thread may wait for the data there
  sender.on_completed(end);
}

void PeerCopyStream::add(std::shared_ptr<PeerCopy> copy) noexcept {
  const std::lock_guard lock(mutex_);
  PeerCopy* const added = copy.get();
  (first_ == nullptr ? first_ : last_->next_) = std::move(copy);
  last_ = added;
}

// One thread at a time, and with no lock held: issue() calls the driver and the completion callbacks.
void PeerCopyStream::complete(PeerCopy& copy) noexcept {
  std::unique_lock lock(mutex_);
  copy.both_arrived_ = true;
  if (std::exchange(issuing_, true)) return;
  while (first_ != nullptr && first_->both_arrived_) {
    const std::shared_ptr<PeerCopy> next = std::exchange(first_, std::move(first_->next_));
    lock.unlock();
    next->issue();
    lock.lock();
  }
  issuing_ = false;
}

}  // namespace cox::detail
