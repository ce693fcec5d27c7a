#pragma once

#include <checkpoint/checkpoint.hpp>
#include <checkpoint/checkpoint_writer.hpp>
#include <data/text.hpp>
#include <engine/fault.hpp>
#include <engine/options.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>

#include <cstddef>

namespace train {

/// What the ranks of an attempt share. Lives longer than all of them.
struct Job {
  const Options& options;
  const Text& text;
  const cox::CommunicationId& ranks;
  const Checkpoint* start;   ///< null: from the beginning
  CheckpointWriter* writer;  ///< null: no checkpoints
  Fault& fault;
  FailureSignal& failure;

  [[nodiscard]] bool pipeline() const { return options.layout == Layout::Pipeline; }
  /// Number of copies of the model.
  [[nodiscard]] std::size_t replicas() const { return pipeline() ? 1 : ranks.world_size(); }
  /// The number of the copy that a rank works on.
  [[nodiscard]] std::size_t replica_of(std::size_t rank) const { return pipeline() ? 0 : rank; }
  /// The part of the model that a rank computes.
  [[nodiscard]] Stage stage_of_rank(std::size_t rank) const {
    return pipeline() ? stage_of(options.shape, rank, ranks.world_size()) : stage_of(options.shape, 0, 1);
  }
};

}  // namespace train
