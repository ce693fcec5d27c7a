#pragma once

#include <coxswain/runtime/communication/collective_group.hpp>
#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/tests/fuzz/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::fuzz {

/// One operation that the ranks of a communicator do together, with the memory of each, and what it does to the model.
struct RankOperation {
  CollectiveOperation operation = CollectiveOperation::Barrier;
  ElementType type = ElementType::U8;
  ReduceOperation reduce = ReduceOperation::Sum;
  std::size_t root = 0;   ///< rank
  std::size_t count = 0;  ///< elements of the smaller of a rank's buffers
  bool in_place = false;
  std::vector<Window> sources{};       ///< by rank
  std::vector<Window> destinations{};  ///< by rank

  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool uses(const BufferPtr& buffer) const noexcept;
  /// The buffers that it reads.
  void add_reads(std::vector<BufferPtr>& reads) const;
  /// The call of one rank.
  void add_to(CollectiveGroup& group, std::size_t rank, DeviceId root_device) const;
  /// `devices`: all of it, by bits.
  void apply(std::uint32_t devices) const;
  /// One of those is poisoned: so is what it would have written.
  void poison() const;

 private:
  [[nodiscard]] ByteVector reduced(const std::vector<ByteVector>& contributions) const;
  [[nodiscard]] ByteVector result_of(std::size_t rank, const std::vector<ByteVector>& contributions,
                                     const ByteVector& reduction) const;
};

}  // namespace cox::fuzz
