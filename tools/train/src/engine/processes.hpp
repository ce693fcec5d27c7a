#pragma once

#include <engine/options.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace train {

/// Training can continue if all processes of the world are started again: another one has ended or failed.
class WorldFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The processes that train together: those of the world that the environment names (cox::World), or this one alone.
/// Process 0 prints, and writes the files of the whole run. One thread.
class Processes {
 public:
  /// Joins the world with the devices of this process, and sets options.devices to the number of all. Blocks until all
  /// processes have joined. Throws as cox::World::join, WorldFailed for its WorldError, and WrongArguments if a process
  /// has another kind of devices.
  explicit Processes(Options& options);

  [[nodiscard]] std::size_t count() const { return world_.size(); }
  [[nodiscard]] std::size_t number() const { return world_.process(); }
  [[nodiscard]] bool is_first() const { return number() == 0; }
  /// The devices of all processes, in the order of ranks.
  [[nodiscard]] const cox::CommunicationId& ranks() const { return ranks_; }

  /// The values of all processes, by number. All must call it. Blocks for the others. Throws WorldFailed, or
  /// cox::ServerError if the devices cannot exchange anything.
  template <class Client, class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> gather(const T& own) const {
    if (count() == 1) return {own};
    std::vector<T> values(count());
    try {
      const Client client = Client::load(own_device_);
      const cox::Handle part = client.create(cox::Bytes::from_vector(std::vector<T>{own}));
      const cox::Handle all = client.empty(count() * sizeof(T));
      client.all_gather(part, all, cox::ElementType::U8, one_of_each_);
      std::memcpy(values.data(), client.read_one(all).span().data(), count() * sizeof(T));
    } catch (...) {
      fail(std::current_exception());
    }
    return values;
  }
  /// This process does not gather any more: the others need not wait for it.
  template <class Client>
  void abort(const std::exception_ptr& cause) const {
    if (count() > 1) Client::load(own_device_).abort_collective(one_of_each_, cause);
  }

 private:
  [[noreturn]] static void fail(const std::exception_ptr& error);

  cox::World world_;
  cox::CommunicationId ranks_;
  cox::CommunicationId one_of_each_;  // the first device of each process
  cox::DeviceId own_device_;          // by its name in the process
};

/// Whether devices of several processes cannot exchange anything, however often they are started.
[[nodiscard]] bool is_unsupported(const std::exception_ptr& error);

}  // namespace train
