#pragma once

#include <checkpoint/checkpoint.hpp>
#include <checkpoint/checkpoint_writer.hpp>
#include <data/text.hpp>
#include <engine/fault.hpp>
#include <engine/kept_layout.hpp>
#include <engine/options.hpp>
#include <engine/rendezvous.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace train {

/// What the ranks of an attempt share. Lives longer than all of them.
struct Job {
  const Options& options;
  const Text& text;
  const cox::CommunicationId& ranks;  ///< of all processes
  Fault& fault;
  Rendezvous& rendezvous;              ///< of the ranks of this process
  CheckpointWriter* writer = nullptr;  ///< null: no checkpoints
  cox::KeptSet* kept = nullptr;        ///< null: the state ends with the process
  // Where the attempt begins; neither: at the first step.
  const Checkpoint* start = nullptr;
  std::optional<std::uint64_t> kept_step = std::nullopt;  ///< after this step, with the contents of `kept`

  [[nodiscard]] std::size_t first_step() const {
    return 1 + (kept_step ? *kept_step : start != nullptr ? start->step : 0);
  }

  /// The ranks of this process follow each other: the number of the first one, and how many there are.
  [[nodiscard]] std::size_t first_rank() const {
    const auto first = std::ranges::find_if(ranks.devices(), is_of_this_process);
    return static_cast<std::size_t>(first - ranks.devices().begin());
  }
  [[nodiscard]] std::size_t local_ranks() const {
    return static_cast<std::size_t>(std::ranges::count_if(ranks.devices(), is_of_this_process));
  }
  /// The device of a rank of this process, by its name in the process.
  [[nodiscard]] cox::DeviceId device(std::size_t rank) const {
    cox::DeviceId device = ranks.devices()[rank];
    device.process = 0;
    return device;
  }

  [[nodiscard]] bool pipeline() const { return options.layout == Layout::Pipeline; }
  /// Number of copies of the model.
  [[nodiscard]] std::size_t replicas() const { return pipeline() ? 1 : ranks.world_size(); }
  /// The number of the copy that a rank works on.
  [[nodiscard]] std::size_t replica_of(std::size_t rank) const { return pipeline() ? 0 : rank; }
  /// The part of the model that a rank computes.
  [[nodiscard]] Stage stage_of_rank(std::size_t rank) const {
    return pipeline() ? stage_of(options.shape, rank, ranks.world_size()) : stage_of(options.shape, 0, 1);
  }
  /// The state of a rank.
  [[nodiscard]] KeptLayout kept_layout(std::size_t rank) const {
    return {ParameterList(options.shape, stage_of_rank(rank)),
            options.layout == Layout::Sharded ? ranks.world_size() : 1, options.steps};
  }

 private:
  static bool is_of_this_process(cox::DeviceId device) {
    return device.process == 0 || device.process == cox::own_process();
  }
};

}  // namespace train
